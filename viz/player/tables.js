/* A run as files, made in the browser: the two CSV tables (dominotree/trace/tables.py, byte for byte: a test compares
   them) and the trace as JSON. For pages without a server, and for a server that is gone.

   DominoPlayer.tables.rounds(trace) · nodes(trace) -> CSV text of a parsed trace JSON · traceOf(run) -> that trace */
(function (DP) {
  "use strict";
  const { bytesOf, tokenText, characterLength, value, missing, BITS, STAGES } = DP.parts;
  const NAMES = ["marginal", "static", "conditional"]; // in the order of the columns
  const words = (text) => text.trim().split(/\s+/);
  const ROUNDS = words(`
    run_id method drafter round start_position nodes depth_reached accepted_drafts committed_tokens tau_so_far
    draft_ms build_ms verify_ms commit_ms budget scorer builder temperature seed text_committed
    counterfactual_marginal counterfactual_static counterfactual_conditional
    kept_tokens text_committed_escaped censored_marginal censored_static censored_conditional`);
  const NODES = words(`
    run_id round node parent depth token_id token_text token_escaped token_hex expansion_order
    base_logit delta_logit marginal_logprob static_logprob conditional_logprob logz_m logz_v
    cum_marginal cum_static cum_conditional target_logprob target_rank
    in_marginal in_static in_conditional in_verified_tree accepted`);
  /** What pandas takes for a missing value unless told otherwise. */
  const TAKEN_FOR_MISSING = new Set("#N/A,#N/A N/A,#NA,<NA>,N/A,n/a,NA,NULL,null,NaN,nan,-NaN,-nan,None,-1.#IND,1.#IND,-1.#QNAN,1.#QNAN".split(","));

  /** A float as Python writes it: the shortest digits that read back the same, always with a point or an exponent. */
  function float(x) {
    x = value(x);
    if (x === null) return "";
    if (x === -Infinity) return "-inf";
    const [mantissa, tens] = x.toExponential().split("e");
    const power = Number(tens);
    if (x !== 0 && (power < -4 || power >= 16)) return `${mantissa}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
    const text = power < 0 && x !== 0 ? x.toFixed(Math.max(0, mantissa.replace(/^-?\d\.?/, "").length - power)) : String(x);
    return Object.is(x, -0) ? "-0.0" : text.includes(".") ? text : `${text}.0`;
  }

  const plain = (x) => (missing(x) ? "" : x === true ? "True" : x === false ? "False" : String(x));

  /** Bytes for a column that people read: an apostrophe before what a spreadsheet runs or pandas loses. */
  function cell(bytes) {
    const shown = tokenText(bytes);
    const formula = [...shown].length > 1 && "=+-@".includes(shown[0]);
    return formula || TAKEN_FOR_MISSING.has(shown) ? `'${shown}` : shown;
  }

  /** Any bytes as a JSON string in ASCII; a byte XY that is part of no character becomes the lone surrogate \udcXY. */
  function escaped(bytes) {
    let text = "";
    for (let at = 0; at < bytes.length; ) {
      const length = characterLength(bytes, at);
      text += length ? new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes.subarray(at, at + length)) : String.fromCharCode(0xdc00 + bytes[at]);
      at += length || 1;
    }
    const short = { '"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", "\b": "\\b" };
    let out = "";
    for (let k = 0; k < text.length; k++) out += short[text[k]] || (text[k] >= " " && text[k] <= "~" ? text[k] : `\\u${text.charCodeAt(k).toString(16).padStart(4, "0")}`);
    return `"${out}"`;
  }

  const csv = (columns, rows) => [columns, ...rows].map((row) => `${row.map((x) => `"${x.replaceAll('"', '""')}"`).join(",")}\n`).join("");

  function joined(parts) {
    const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) {
      bytes.set(part, at);
      at += part.length;
    }
    return bytes;
  }

  function rounds({ run_id, header, rounds, tokens }) {
    const { settings, pair = {} } = header;
    const start = [run_id, settings.method, plain(header.drafter_label || pair.drafter)];
    const asked = [plain(settings.budget), plain(settings.scorer), plain(settings.builder), float(settings.temperature), plain(settings.seed)];
    let committed = 0;
    return csv(
      ROUNDS,
      rounds.map((round, k) => {
        committed += round.committed.length;
        const text = joined(round.committed.slice(0, round.kept).map((id) => bytesOf(tokens[id])));
        const other = NAMES.map((name) => (round.counterfactual || {})[name]);
        return [
          ...start,
          ...[round.index, round.position, round.verified_nodes, round.depth_reached, round.path.length, round.committed.length].map(plain),
          float(committed / (k + 1)),
          ...STAGES.map((stage) => float((round.times_ms || {})[stage])),
          ...asked,
          cell(text),
          ...other.map((c) => plain(c && c.accepted)),
          plain(round.kept),
          escaped(text),
          ...other.map((c) => plain(c && c.censored)),
        ];
      }),
    );
  }

  function nodes({ run_id, rounds, tokens }) {
    const forms = new Map();
    const form = (id) => {
      if (!forms.has(id)) {
        const bytes = bytesOf(tokens[id]);
        forms.set(id, [String(id), cell(bytes), escaped(bytes), `x${tokens[id]}`]);
      }
      return forms.get(id);
    };
    const floats = ["base_logit", "delta", "marginal", "static", "conditional", "logz_m", "logz_v", "cum_marginal", "cum_static", "cum_conditional", "target_logprob"];
    return csv(
      NODES,
      rounds.flatMap(({ index, nodes: n }) =>
        n.token.map((token, i) => [
          ...[run_id, index, i, n.parent[i], n.depth[i]].map(plain),
          ...form(token),
          plain(n.order[i]),
          ...floats.map((name) => float(n[name][i])),
          plain(n.target_rank[i]),
          ...[...NAMES, "verified"].map((name) => plain(Boolean(n.trees[i] & BITS[name]))),
          plain(n.accepted[i]),
        ]),
      ),
    );
  }

  /** The trace that a player's run was made from, as far as it has come. */
  function traceOf(run) {
    const { header, prompt, summary, rounds } = run;
    return { schema: "dominotree.trace", version: 1, run_id: run.id, header, prompt, first_token: run.firstToken ?? null, rounds, tokens: Object.fromEntries(run.hexes), summary };
  }

  DP.tables = { rounds, nodes, traceOf };
})((window.DominoPlayer = window.DominoPlayer || {}));
