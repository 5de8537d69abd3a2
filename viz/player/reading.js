/* A trace file in the browser, where there is no server to read it: unpack, check, place. The rules are those of
   dominotree/trace/jsonform.py and check.py, so far as something that is shown or saved depends on them.

   await DominoPlayer.reading.served(file, {bytes, unpacked}) -> what viz.layout.served gives; Error with one sentence
   await DominoPlayer.reading.unpacked(response or file, most) -> its text, gzipped or not */
(function (DP) {
  "use strict";
  const SCHEMA = "dominotree.trace";
  const VERSION = 1;
  const MB = 1 << 20;
  const VERIFIED = 8;
  const COLUMNS = [
    ...["token", "parent", "depth", "order", "base_logit", "delta", "marginal", "static", "conditional", "logz_m", "logz_v"],
    ...["cum_marginal", "cum_static", "cum_conditional", "target_logprob", "target_rank", "trees", "accepted"],
  ];
  const LOGS = COLUMNS.slice(4, 15); // a number, "-inf" or null

  const object = (x) => x !== null && typeof x === "object" && !Array.isArray(x);
  const whole = Number.isSafeInteger;
  const log = (x) => x === null || x === "-inf" || Number.isFinite(x);

  class Bad extends Error {}
  function need(holds, what) {
    if (!holds) throw new Bad(what);
  }

  /** The bytes of a stream, at most `most`; null if there are more. */
  async function drained(stream, most) {
    const pieces = [];
    let size = 0;
    const reader = stream.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return new Blob(pieces);
      size += value.byteLength;
      if (size > most) {
        reader.cancel().catch(() => {});
        return null;
      }
      pieces.push(value);
    }
  }

  /** Text of a response or file. Some hosts unpack .gz files on the way, so what counts is how the bytes begin. */
  async function unpacked(source, most = Infinity) {
    let data = await source.blob?.() ?? source;
    const [first, second] = new Uint8Array(await data.slice(0, 2).arrayBuffer());
    if (first === 0x1f && second === 0x8b) {
      need(window.DecompressionStream, "it is gzipped, which this browser cannot unpack");
      try {
        data = await drained(data.stream().pipeThrough(new DecompressionStream("gzip")), most);
      } catch {
        throw new Bad("its gzip data is damaged or incomplete");
      }
    }
    need(data && data.size <= most, `it is larger than ${most / MB} MB`);
    const bytes = await data.arrayBuffer();
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    } catch {
      throw new Bad("it is neither gzip nor UTF-8 text");
    }
  }

  // ---- is it what its fields promise?

  function known(ids, tokens, where) {
    for (const id of ids) need(whole(id) && Object.hasOwn(tokens, id), `${where} has the id ${id}, which is not in tokens`);
  }

  function checkNodes(round, where) {
    const { nodes } = round;
    const n = nodes.token.length;
    const children = new Set();
    let verified = 0;
    let deepest = 0;
    for (let k = 0; k < n; k++) {
      const [parent, depth, trees, order] = [nodes.parent[k], nodes.depth[k], nodes.trees[k], nodes.order[k]];
      need(whole(parent) && parent >= -1 && parent < k, `${where}node ${k} has parent ${parent}, which does not come before it`);
      need(depth === (parent < 0 ? 1 : nodes.depth[parent] + 1), `${where}node ${k} has depth ${depth}, which is not its parent's plus one`);
      need(whole(trees) && trees > 0 && trees < 16 && (parent < 0 || !(trees & ~nodes.trees[parent])), `${where}node ${k} is in trees ${trees}, which its parent is not`);
      const name = `${parent}/${nodes.token[k]}`;
      need(!children.has(name), `${where}node ${k} repeats token ${nodes.token[k]} of a sibling`);
      children.add(name);
      need(trees & VERIFIED ? whole(order) : order === null, `${where}node ${k} has pop order ${order}, but only the verified tree's nodes have one`);
      need(typeof nodes.accepted[k] === "boolean", `${where}nodes.accepted holds ${nodes.accepted[k]}`);
      if (trees & VERIFIED) [verified, deepest] = [verified + 1, Math.max(deepest, depth)];
    }
    for (const name of LOGS) need(nodes[name].every(log), `${where}nodes.${name} holds what is no number`);
    need(verified === round.verified_nodes, `${where}verified_nodes is ${round.verified_nodes}, the verified tree has ${verified}`);
    need(deepest === round.depth_reached, `${where}depth_reached is ${round.depth_reached}, the verified tree's depth ${deepest}`);
    const orders = nodes.order.filter((order) => order !== null).sort((a, b) => a - b);
    need(orders.every((order, k) => order === k), `${where}pop orders are not 0 … ${verified - 1}, one for each verified node`);
    let at = -1;
    round.path.forEach((k, step) => {
      need(whole(k) && k >= 0 && k < n && nodes.trees[k] & VERIFIED && nodes.parent[k] === at, `${where}the accepted path leaves the verified tree at step ${step + 1} (node ${k})`);
      need(nodes.token[k] === round.committed[step], `${where}committed token ${step + 1} is not that of node ${k} of the accepted path`);
      at = k;
    });
    need(nodes.accepted.every((yes, k) => yes === round.path.includes(k)), `${where}nodes.accepted marks other nodes than the accepted path`);
  }

  function checkRound(round, tokens, rounds_only, where) {
    need(object(round) && object(round.nodes), `${where}it is not an object with nodes`);
    for (const name of ["path", "committed"]) need(Array.isArray(round[name]), `${where}${name} is not a list`);
    for (const name of ["visits", "pops", "flags", "level_logz_m", "level_logz_v"]) need(Array.isArray((round[name] ??= [])), `${where}${name} is not a list`);
    for (const name of ["times_ms", "counterfactual"]) need(object((round[name] ??= {})), `${where}${name} is not an object`);
    const { nodes } = round;
    for (const name of COLUMNS) {
      need(Array.isArray(nodes[name]), `${where}nodes.${name} is missing`);
      need(nodes[name].length === nodes.token?.length, `${where}nodes.${name} has ${nodes[name].length} entries, token has ${nodes.token?.length}`);
    }
    const { path, committed, bonus, kept } = round;
    need(committed.length === path.length + 1 && committed[path.length] === bonus, `${where}committed is not the ${path.length} accepted drafts and the bonus token`);
    need(whole(kept) && kept >= 0 && kept <= committed.length, `${where}kept is ${kept} of ${committed.length} committed tokens`);
    for (const name of ["position", "verified_nodes", "depth_reached"]) need(whole(round[name]), `${where}${name} is ${round[name]}, not a whole number`);
    if (nodes.token.length || !rounds_only) checkNodes(round, where);
    known([round.anchor, ...committed, ...nodes.token], tokens, where.slice(0, -2));
    for (const ms of Object.values(round.times_ms)) need(Number.isFinite(ms) && ms >= 0, `${where}times_ms holds ${ms}, not milliseconds`);
    for (const found of Object.values(round.counterfactual)) need(object(found) && whole(found.accepted), `${where}counterfactual holds what is no count`);
    round.visits.forEach((visit, k) => {
      need(object(visit) && visit.node === (k ? path[k - 1] : -1) && visit.chosen === committed[k], `${where}visits are not the anchor and the accepted path with the tokens chosen there`);
      need(Array.isArray((visit.top ??= [])) && visit.top.every((row) => Array.isArray(row) && row.length === 2 && log(row[1])), `${where}visits[${k}].top is not a list of [id, log-probability]`);
      known(visit.top.map(([id]) => id), tokens, `${where}visits[${k}]`);
    });
    need(!round.visits.length || round.visits.length === committed.length, `${where}visits are not the anchor and the accepted path with the tokens chosen there`);
    round.pops.forEach((pop, k) => {
      need(object(pop) && whole(pop.node) && pop.node >= -1 && pop.node < nodes.token.length, `${where}pops[${k}].node is no node`);
      const columns = ["token", "base_logit", "delta", "score"].map((name) => pop[name]);
      need(columns.every((column) => Array.isArray(column) && column.length === columns[0].length), `${where}pops[${k}] has columns of different lengths`);
      known(columns[0], tokens, `${where}pops[${k}]`);
    });
  }

  function check(trace) {
    const { header, prompt, tokens, rounds, summary } = trace;
    for (const [name, part] of Object.entries({ header, prompt, tokens, summary })) need(object(part), `${name} is missing`);
    need(Array.isArray(rounds), "rounds is missing");
    need(object(header.settings) && typeof header.settings.method === "string", "header.settings.method is missing");
    need(header.pair === undefined || object(header.pair), "header.pair is not an object");
    need(typeof prompt.text === "string", "prompt.text is missing");
    for (const [id, hex] of Object.entries(tokens)) need(/^(0|[1-9]\d*)$/.test(id) && /^([0-9a-f]{2})*$/.test(hex), `token ${id} is ${hex}, not lower-case hex digits`);
    let anchor = trace.first_token;
    let position = null;
    if (anchor !== null && anchor !== undefined) known([anchor], tokens, "first_token");
    rounds.forEach((round, k) => {
      checkRound(round, tokens, header.record === "rounds", `round ${k + 1}: `);
      need(round.index === k + 1, `round ${k + 1} has the index ${round.index}`);
      need(round.anchor === anchor && (position === null || position === round.position), `round ${k + 1} does not start where the text before it ends`);
      need(k === rounds.length - 1 || round.kept === round.committed.length, `round ${k + 1} cut tokens off, but it is not the last one`);
      [anchor, position] = [round.bonus, round.position + round.committed.length];
    });
    if (summary.stop_reason === undefined || summary.stop_reason === null) return;
    const sums = {
      rounds: rounds.length,
      committed: rounds.reduce((sum, { committed }) => sum + committed.length, 0),
      new_tokens: (trace.first_token === null ? 0 : 1) + rounds.reduce((sum, { kept }) => sum + kept, 0),
    };
    for (const [name, sum] of Object.entries(sums)) need(summary[name] === sum, `summary.${name} is not what the rounds add up to`);
  }

  /** A name for what the text says: the id that it claims, where that is one, else one from its characters. */
  function idOf(trace, text) {
    if (/^[0-9a-f]{16}$/.test(trace.run_id || "")) return trace.run_id;
    let [a, b] = [0x811c9dc5, 0x01000193]; // FNV-1a, twice
    for (let k = 0; k < text.length; k++) [a, b] = [Math.imul(a ^ text.charCodeAt(k), 0x01000193), Math.imul(b ^ text.charCodeAt(k), 0x85ebca6b)];
    return [a, b].map((part) => (part >>> 0).toString(16).padStart(8, "0")).join("");
  }

  function read(text) {
    need(text.trim(), "it is empty");
    let trace;
    try {
      trace = JSON.parse(text);
    } catch {
      throw new Bad("it is not strict JSON");
    }
    if (!object(trace) || trace.schema !== SCHEMA) throw Object.assign(new Bad(`it is not a trace (no "schema": "${SCHEMA}")`), { way: "choose a file that was saved as a trace" });
    if (trace.version > VERSION) throw Object.assign(new Bad(`it has version ${trace.version}, newer than the ${VERSION} that this page reads`), { way: "use a newer page" });
    need(trace.version === VERSION, `its version ${trace.version} is unknown`);
    check(trace);
    return { ...trace, run_id: idOf(trace, text), layout: DP.placing.place(trace) };
  }

  /** A file as the player takes it. `bytes`, `unpacked`: the most that is read of it, before and after gunzip. */
  async function served(file, { bytes = Infinity, unpacked: most = Infinity } = {}) {
    try {
      need(file.size <= bytes, `it is larger than ${bytes / MB} MB`);
      return read(await unpacked(file, most));
    } catch (error) {
      if (!(error instanceof Bad)) throw error;
      throw new Error(`${file.name || "This file"} cannot be read: ${error.message}; ${error.way || "use an undamaged copy or record the run again"}.`);
    }
  }

  DP.reading = { served, unpacked };
})((window.DominoPlayer = window.DominoPlayer || {}));
