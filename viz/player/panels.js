/* What stands around the tree: node panel, verify walk, output text, strip of rounds, table of the round. */
(function (DP) {
  "use strict";
  const { h, term, value, number, percent, plural, missing, BITS, STAGES, SCORERS, SCORER_TITLES, ANCHOR, BONUS, DASH } = DP.parts;

  const BIDI = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/;
  const names = (list) => (list.length < 2 ? list.join("") : `${list.slice(0, -1).join(", ")} and ${list[list.length - 1]}`);
  const at = (column, k) => (column && k < column.length ? column[k] : null);

  /** Why a node was or was not accepted, in one sentence. */
  function verdict(run, k, node) {
    const round = run.rounds[k];
    const nodes = round.nodes;
    if (nodes.accepted[node]) return ["yes", "Accepted: the target chose this token here."];
    if (!(nodes.trees[node] & BITS.verified)) return ["out", "Not in the tree that this run verified, so the target never judged it."];
    const visit = round.visits.find((v) => v.node === nodes.parent[node]);
    if (visit) return ["no", "Not accepted: the target chose ", h("b.tok", null, run.label(visit.chosen)), " here."];
    return ["no", "Not reached: a token before it on its path was not accepted."];
  }

  class NodePanel {
    constructor(host) {
      this.host = host;
      this.shown = "";
    }

    /** `node`: ANCHOR, BONUS, an index or null (a legend). */
    show(run, k, scorer, node) {
      const key = run ? `${run.serial}/${run.size}/${k}/${scorer}/${node}` : "";
      if (key === this.shown) return;
      this.shown = key;
      if (!run || node === null) this.host.replaceChildren(legend());
      else if (node === ANCHOR || node === BONUS) this.host.replaceChildren(...this.special(run, k, node));
      else this.host.replaceChildren(...this.node(run, k, scorer, node));
    }

    head(run, token, what) {
      const hex = run.hexes.get(token);
      const bytes = hex ? hex.toUpperCase().replace(/(..)(?=.)/g, "$1 ") : DASH;
      return [
        h("p.kicker", null, what),
        h("p.token", null, run.label(token)),
        h("p.meta", null, `id ${token} · ${hex ? plural(hex.length / 2, "byte") : "bytes"} `, h("code", null, bytes)),
      ];
    }

    special(run, k, node) {
      const round = run.rounds[k];
      if (node === ANCHOR)
        return [
          ...this.head(run, round.anchor, [term("anchor", "Anchor"), ` · position ${round.position}`]),
          h("p.verdict", null, "Committed by the round before. Every draft of this round continues from here."),
        ];
      const last = round.visits[round.visits.length - 1];
      const entry = last && last.top.find(([token]) => token === round.bonus);
      return [
        ...this.head(run, round.bonus, [term("bonus", "Bonus"), ` · position ${round.position + round.path.length + 1}`]),
        h("p.verdict.yes", null, run.isTree || round.path.length ? "The target's own choice where the walk stopped. It is the next anchor." : "The target's own choice. It is the next anchor."),
        h("dl.facts", null, ...fact("Target probability", entry ? `${percent(entry[1])} (log p ${number(entry[1])})` : DASH)),
      ];
    }

    node(run, k, scorer, i) {
      const round = run.rounds[k];
      const n = round.nodes;
      const logit = value(at(n.base_logit, i));
      const delta = value(at(n.delta, i));
      const order = at(n.order, i);
      const [state, ...why] = verdict(run, k, i);
      const inside = SCORERS.filter((s) => n.trees[i] & BITS[s]);
      const rank = at(n.target_rank, i);
      const where = [`Depth ${n.depth[i]} · position ${round.position + n.depth[i]}`];
      if (!missing(order)) where.push(` · node ${order + 1} of ${round.verified_nodes} in build order`);
      const rows = SCORERS.map((s) => {
        const own = value(at(n[s], i));
        const cum = value(at(n[`cum_${s}`], i));
        const bar = h("span.bar", null, h("i", { style: `width:${own === null ? 0 : 100 * Math.exp(Math.min(0, own))}%` }));
        return h(
          s === scorer ? "tr.now" : "tr",
          null,
          h("th", { scope: "row" }, term(s, SCORER_TITLES[s])),
          h("td.barcell", null, bar),
          h("td", null, percent(own)),
          h("td", null, number(own)),
          h("td", null, number(cum)),
        );
      });
      return [
        ...this.head(run, n.token[i], where),
        h(`p.verdict.${state}`, null, ...why),
        ...(scorer !== run.ownScorer && SCORERS.includes(run.ownScorer) && SCORERS.includes(scorer)
          ? [h("p.hint", null, `That is of the ${SCORER_TITLES[run.ownScorer].toLowerCase()} tree, which was verified; the ${SCORER_TITLES[scorer].toLowerCase()} tree ${inside.includes(scorer) ? "has this token, too" : "does not have this token"}.`)]
          : []),
        h(
          "table.scores",
          null,
          h("caption.sr", null, "Scores of this token by scorer"),
          h("thead", null, h("tr", null, h("th", null, term("topm", "over top-M")), h("th", { colspan: "2" }, "p"), h("th", null, term("logp", "log p")), h("th", null, term("cumulative", "Σ path")))),
          h("tbody", null, ...rows),
        ),
        h(
          "dl.facts",
          null,
          ...fact(term("logit", "L"), number(logit)),
          ...fact(term("delta", "ΔL"), delta === null ? DASH : (delta > 0 ? "+" : "") + number(delta)),
          ...fact("Target p", `${percent(at(n.target_logprob, i))} (log p ${number(at(n.target_logprob, i))})`),
          ...fact(term("rank", "Target rank"), missing(rank) ? DASH : String(rank + 1)),
          ...(run.isTree ? fact("In the trees of", inside.length ? names(inside.map((s) => SCORER_TITLES[s].toLowerCase())) : DASH) : []),
        ),
      ];
    }
  }

  function fact(name, text) {
    return [h("dt", null, name), h("dd", null, text)];
  }

  function legend() {
    const entry = (kind, ...text) => h("li", null, h(`span.key.key-${kind}`, { "aria-hidden": "true" }), h("span", null, ...text));
    return h(
      "div.legend",
      null,
      h("p.kicker", null, "How to read the tree"),
      h(
        "ul",
        null,
        entry("anchor", term("anchor", "Anchor"), ": the text so far ends here"),
        entry("held", "Accepted ", term("draft", "draft"), ": the straight line is the text that came out"),
        entry("would", "Would have been accepted, had this tree been verified"),
        entry("bonus", term("bonus", "Bonus"), ": the target's own next token"),
        entry("tree", "Drafted, not accepted; a thicker line is a likelier path"),
        entry("only", "Only in this scorer's tree"),
        entry("ghost", "Only in another scorer's tree"),
      ),
      h("p.hint", null, "Point at a token for its scores; click to keep it."),
    );
  }

  class WalkPanel {
    constructor(host, { onSelect }) {
      this.host = host;
      this.onSelect = onSelect;
    }

    /** `title`: name of the run where two are shown; `scorer`: whose tree is drawn, which may be another than was verified. */
    show(run, k, title, scorer) {
      const round = run.rounds[k];
      const nodes = round.nodes;
      const verified = SCORER_TITLES[run.ownScorer] && scorer !== run.ownScorer ? ` of the ${SCORER_TITLES[run.ownScorer].toLowerCase()} tree, the one that was verified` : "";
      const items = round.visits.map((visit, step) => {
        const from = visit.node === ANCHOR ? round.anchor : nodes.token[visit.node];
        const known = visit.top.some(([token]) => token === visit.chosen);
        const tops = (known ? visit.top : [[visit.chosen, null], ...visit.top]).slice(0, 3);
        if (!tops.some(([token]) => token === visit.chosen)) tops[2] = visit.top.find(([token]) => token === visit.chosen);
        const chips = tops.map(([token, logp]) =>
          h(token === visit.chosen ? "span.top.chosen" : "span.top", null, h("b", null, run.label(token)), ` ${percent(logp)}`),
        );
        const next = round.path[step];
        const ends = next === undefined;
        return h(
          ends ? "li.stop" : "li",
          null,
          h("button.link", { type: "button", onclick: () => this.onSelect(visit.node) }, run.label(from)),
          h("span.tops", null, ...chips),
          ends ? h("p.why", null, ...this.reason(run, round, visit)) : null,
        );
      });
      this.host.replaceChildren(
        h("p.kicker", null, title ? `${title} · ` : "", term("verify", "Verify walk"), `${verified}: what the target wanted after each token${run.settings.temperature > 0 ? " (before temperature)" : ""}`),
        items.length ? h("ol.walk", null, ...items) : h("p.hint", null, "The verify walk of this round was not recorded."),
        round.verified_nodes
          ? h("p.hint", null, `Accepted: ${round.path.length} of ${plural(round.depth_reached, "level")}, ${round.path.length} of ${plural(round.verified_nodes, "drafted node")}.`)
          : "",
      );
    }

    reason(run, round, visit) {
      const chosen = h("b.tok", null, run.label(visit.chosen));
      const { parent, trees } = round.nodes;
      const children = parent.filter((p, i) => p === visit.node && trees[i] & BITS.verified).length;
      if (!round.verified_nodes) return ["Nothing was drafted: ", chosen, " is the target's own next token."];
      if (!children) return ["The walk ends at a leaf: nothing was drafted after it. The target's choice ", chosen, " is the bonus token."];
      const lost = children === 1 ? "not the one drafted child" : `none of the ${children} drafted children`;
      return ["The walk stops: the target chose ", chosen, `, which is ${lost} here. It is the bonus token.`];
    }
  }

  /** The output text, one colour a round; a click on a word goes to its round. */
  class TextPanel {
    constructor(host, { onRound, onWord }) {
      this.host = host;
      this.onRound = onRound;
      this.text = h("p.output", { "aria-label": "Output text, coloured by round" });
      this.kicker = h("p.kicker", null, "Output");
      host.append(this.kicker, this.text);
      this.spans = [];
      this.written = 0;
      this.run = null;
      this.now = null;
      this.text.addEventListener("click", (event) => {
        const span = event.target.closest("[data-round]");
        if (!span || !getSelection().isCollapsed) return;
        const piece = event.target.closest("[data-piece]");
        onWord(Number(span.dataset.round), piece ? this.run.pieces[Number(piece.dataset.piece)] : null);
      });
    }

    /** How the run ended, in words; "" while it goes on. */
    ended(how) {
      this.kicker.textContent = how ? `Output · ${how}` : "Output";
    }

    /** Write what is new; all of it when the run is another one. */
    update(run) {
      if (run !== this.run) {
        this.run = run;
        this.spans = [];
        this.written = 0;
        this.now = null;
        this.text.replaceChildren();
      }
      for (; this.written < run.pieces.length; this.written++) {
        const piece = run.pieces[this.written];
        let span = this.spans[piece.round];
        if (!span) {
          span = h(`span.r.c${piece.round ? (piece.round - 1) % 6 : "0"}`, { "data-round": piece.round });
          if (!piece.round) span.className = "dp-r dp-prefill";
          this.spans[piece.round] = span;
          this.text.append(span);
        }
        const word = h(piece.node === BONUS ? "span.t.tb" : "span.t", { "data-piece": this.written }, piece.text);
        if (BIDI.test(piece.text)) word.classList.add("dp-isolate"); // so that it cannot turn round its neighbours
        span.append(word);
      }
    }

    /** The decoder's rest (half a character at the very end) arrives with the end of the run. */
    settle(run) {
      this.update(run);
      const last = this.text.querySelector(".dp-r:last-child .dp-t:last-child");
      if (last) last.textContent = run.pieces[run.pieces.length - 1].text;
    }

    mark(k) {
      if (this.now) this.now.classList.remove("dp-now");
      this.now = this.spans[k + 1] || null;
      if (!this.now) return;
      this.now.classList.add("dp-now");
      clearTimeout(this.later);
      this.later = setTimeout(() => this.reveal(), 60); // measuring would make the browser lay out twice a step
    }

    /** Scroll the text so far that the round's words can be seen. */
    reveal() {
      const box = this.text;
      if (!this.now || box.scrollHeight <= box.clientHeight + 4) return;
      const top = this.now.offsetTop;
      if (top < box.scrollTop || top + 30 > box.scrollTop + box.clientHeight) box.scrollTop = Math.max(0, top - box.clientHeight / 3);
    }
  }

  const SVG = "http://www.w3.org/2000/svg";
  const svg = (tag, attributes) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, text] of Object.entries(attributes)) element.setAttribute(name, text);
    return element;
  };

  /** A bar per round: tokens committed above, stacked stage times below. Drawn as one path per series. */
  class Strip {
    constructor(host, { onRound }) {
      this.host = host;
      this.canvas = svg("svg", { class: "dp-bars", role: "presentation" });
      this.paths = {};
      for (const name of ["accepted", "bonus", ...STAGES]) this.canvas.append((this.paths[name] = svg("path", { class: `dp-s-${name}` })));
      this.cursor = svg("rect", { class: "dp-cursor", y: 0, rx: 2 });
      this.canvas.prepend(this.cursor);
      this.line = svg("path", { class: "dp-axis" });
      this.slits = svg("path", { class: "dp-slits" });
      this.canvas.append(this.slits, this.line);
      this.tip = h("p.strip-tip", { "aria-hidden": "true" });
      const key = (name, text) => h("li", null, h(`span.swatch.sw-${name}`), text);
      host.append(
        h(
          "div.strip-head",
          null,
          h("ul.strip-key", null, key("accepted", "accepted drafts"), key("bonus", "bonus"), ...STAGES.map((s) => key(s, s))),
          this.tip,
        ),
        this.canvas,
      );
      const roundAt = (event) => {
        if (!this.run || !this.run.size) return null;
        const box = this.canvas.getBoundingClientRect();
        return Math.max(0, Math.min(this.run.size - 1, Math.floor((event.clientX - box.left) / this.step)));
      };
      this.canvas.addEventListener("click", (event) => roundAt(event) !== null && onRound(roundAt(event)));
      this.canvas.addEventListener("pointermove", (event) => this.describe(roundAt(event)));
      this.canvas.addEventListener("pointerleave", () => this.describe(this.at));
    }

    update(run) {
      this.run = run;
      const width = this.canvas.clientWidth || this.host.clientWidth;
      const height = 84;
      const middle = 46;
      if (!width) return;
      this.width = width;
      this.canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.step = Math.min(34, width / Math.max(1, run.size));
      const gap = this.step > 5 ? Math.min(3, this.step / 5) : 0;
      const most = Math.max(2, ...run.rounds.map((r) => r.committed.length));
      const times = run.rounds.map((r) => STAGES.map((s) => value((r.times_ms || {})[s]) || 0));
      const sums = times.map((t) => t.reduce((a, b) => a + b, 0));
      // One slow round must not flatten all others: bars are cut at four times the median, with a slit to show it.
      const longest = Math.min(Math.max(1e-9, ...sums), 4 * ([...sums].sort((a, b) => a - b)[sums.length >> 1] || Infinity));
      const paths = Object.fromEntries(Object.keys(this.paths).map((name) => [name, ""]));
      let slits = "";
      const bar = (x, w, y0, y1) => (y1 - y0 > 0.05 ? `M${x.toFixed(2)} ${y0.toFixed(2)}h${w.toFixed(2)}V${y1.toFixed(2)}h${(-w).toFixed(2)}Z` : "");
      run.rounds.forEach((round, k) => {
        const x = k * this.step + gap / 2;
        const w = this.step - gap;
        const unit = (middle - 4) / most;
        const top = middle - round.path.length * unit;
        paths.accepted += bar(x, w, top, middle - 0.5);
        paths.bonus += bar(x, w, top - unit, top - 0.5);
        let y = middle + 3;
        STAGES.forEach((stage, j) => {
          const end = Math.min(height - 2, y + ((height - middle - 5) * times[k][j]) / longest);
          paths[stage] += bar(x, w, y, end);
          y = end;
        });
        if (sums[k] > 1.001 * longest) slits += bar(x - 1, w + 2, height - 8, height - 6);
      });
      for (const [name, path] of Object.entries(paths)) this.paths[name].setAttribute("d", path);
      this.slits.setAttribute("d", slits);
      this.line.setAttribute("d", `M0 ${middle + 1}H${Math.min(width, this.step * run.size)}`);
      this.cursor.setAttribute("height", height);
      this.cursor.toggleAttribute("hidden", !run.size);
      if (!run.size) this.tip.textContent = "";
    }

    mark(k) {
      this.at = k;
      if (!this.step) return;
      const width = Math.max(this.step, 3);
      this.cursor.setAttribute("x", k * this.step + (this.step - width) / 2);
      this.cursor.setAttribute("width", width);
      this.describe(k);
    }

    describe(k) {
      if (k === null || k === undefined || !this.run || !this.run.rounds[k]) return void (this.tip.textContent = "");
      const round = this.run.rounds[k];
      const times = STAGES.map((s) => [s, value((round.times_ms || {})[s])]).filter(([, t]) => t !== null);
      const total = times.reduce((sum, [, t]) => sum + t, 0);
      const parts = times.map(([s, t]) => `${s} ${number(t, t < 10 ? 2 : 1)}`).join(" + ");
      this.tip.textContent = `Round ${k + 1}: ${parts || DASH}${times.length > 1 ? ` = ${number(total, 1)}` : ""}${times.length ? " ms" : ""}`;
    }
  }

  /** The round as a table, for screen readers and for reading off numbers; filled only while it is open. */
  class RoundTable {
    constructor(host, { onSelect }) {
      this.body = h("div.table-wrap", { tabindex: "0", role: "region", "aria-label": "Table of the round" });
      this.details = h("details.table", null, h("summary", null, "Table of this round"), this.body);
      host.append(this.details);
      this.onSelect = onSelect;
      this.details.addEventListener("toggle", () => this.fill());
    }

    show(run, k, scorer) {
      this.now = { run, k, scorer };
      if (this.details.open) this.fill();
    }

    fill() {
      if (!this.details.open || !this.now) return;
      const { run, k, scorer } = this.now;
      const round = run.rounds[k];
      const n = round.nodes;
      const rows = n.token.map((token, i) => {
        const own = n[scorer === "verified" ? run.settings.scorer : scorer];
        const inside = SCORERS.filter((s) => n.trees[i] & BITS[s]).map((s) => SCORER_TITLES[s].toLowerCase());
        return h(
          n.accepted[i] ? "tr.yes" : "tr",
          null,
          h("td", null, String(n.depth[i])),
          h("td", null, n.parent[i] === ANCHOR ? run.label(round.anchor) : run.label(n.token[n.parent[i]])),
          h("th", { scope: "row" }, h("button.link", { type: "button", onclick: () => this.onSelect(i) }, run.label(token))),
          h("td", null, percent(at(own, i))),
          h("td", null, number(at(n.delta, i))),
          h("td", null, percent(at(n.target_logprob, i))),
          h("td", null, inside.join(", ") || DASH),
          h("td", null, n.accepted[i] ? "accepted" : n.trees[i] & BITS.verified ? "not accepted" : "not verified"),
        );
      });
      this.body.replaceChildren(
        h(
          "table.nodes",
          null,
          h("caption", null, `Round ${k + 1}: anchor ${run.label(round.anchor)}, ${plural(n.token.length, "node")}, bonus token ${run.label(round.bonus)}`),
          h("thead", null, h("tr", null, ...["Depth", "After", "Token", "p by this scorer", "ΔL", "Target p", "In the trees of", "Outcome"].map((t) => h("th", { scope: "col" }, t)))),
          h("tbody", null, ...rows),
        ),
      );
    }
  }

  Object.assign(DP.parts, { NodePanel, WalkPanel, TextPanel, Strip, RoundTable, verdict });
})((window.DominoPlayer = window.DominoPlayer || {}));
