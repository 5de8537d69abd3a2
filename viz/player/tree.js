/* The tree of one round as a Plotly figure: a trace of marks, a trace of labels, one path (shape) per kind of line. */
(function (DP) {
  "use strict";
  const { geometry, legible, react, plural, LARGE, escapePlotly, value, h, ANCHOR, BONUS, FONT, FAMILY, SIZES, BITS } = DP.parts;

  const MARKS = ["ghost", "fine", "fineOnly", "tree", "only", "fold", "held", "anchor", "bonus"];
  const TEXTS = ["ghost", "slight", "tree", "fold", "held", "anchor", "bonus", "ticks"];
  const PATHS = ["guide", "ghost", "thin", "middle", "thick", "held", "next", "chipTree", "chipOnly", "chipHeld", "chipAnchor", "chipBonus"];
  const MANY = 400; // ghosts beyond this are not drawn: their marks would only be a haze
  const AS_PATH = 16; // marks of one kind beyond which they are drawn as one path: Plotly takes 0.1 ms for each marker
  const CONFIG = { staticPlot: true, displayModeBar: false, displaylogo: false, responsive: false };
  const whenIdle = window.requestIdleCallback || ((work) => setTimeout(work, 50)); // Safari has none
  const cancelIdle = window.cancelIdleCallback || clearTimeout;

  /** Rounded box as a path of lines and curves (Plotly's shapes know no arcs). */
  function box(x0, y0, x1, y1, r) {
    return (
      `M${x0 + r} ${y0}H${x1 - r}Q${x1} ${y0} ${x1} ${y0 + r}V${y1 - r}Q${x1} ${y1} ${x1 - r} ${y1}` +
      `H${x0 + r}Q${x0} ${y1} ${x0} ${y1 - r}V${y0 + r}Q${x0} ${y0} ${x0 + r} ${y0}Z`
    );
  }

  /** Marks as one path: few numbers a mark, since Plotly parses each. Round joins make the smallest squares dots. */
  function dots({ x, y }, symbol, size) {
    const out = [];
    const r = symbol === "diamond" ? 0.65 * size : size < 5 ? size / 4 : size / 2;
    const flat = 0.87 * r;
    const k = 1.33 * r;
    for (let i = 0; i < x.length; i++) {
      const [a, b] = [x[i], y[i]];
      if (symbol === "diamond") out.push(`M${(a - r).toFixed(1)} ${b.toFixed(1)}L${a.toFixed(1)} ${(b - r).toFixed(1)}L${(a + r).toFixed(1)} ${b.toFixed(1)}L${a.toFixed(1)} ${(b + r).toFixed(1)}Z`);
      else if (symbol === "triangle-right") out.push(`M${(a - r / 2).toFixed(1)} ${(b - flat).toFixed(1)}L${(a + r).toFixed(1)} ${b.toFixed(1)}L${(a - r / 2).toFixed(1)} ${(b + flat).toFixed(1)}Z`);
      else if (size >= 5) {
        const [left, right, middle] = [(a - r).toFixed(1), (a + r).toFixed(1), b.toFixed(1)];
        out.push(`M${left} ${middle}C${left} ${(b - k).toFixed(1)} ${right} ${(b - k).toFixed(1)} ${right} ${middle}C${right} ${(b + k).toFixed(1)} ${left} ${(b + k).toFixed(1)} ${left} ${middle}Z`);
      } else out.push(`M${(a - r).toFixed(1)} ${(b - r).toFixed(1)}H${(a + r).toFixed(1)}V${(b + r).toFixed(1)}H${(a - r).toFixed(1)}Z`);
    }
    return out.join("");
  }

  const ZOOMS = [1, 1.5, 2, 3, 4, 6];

  class TreeView {
    /** `host`: element to fill. `onHover(node|null)`, `onSelect(node)`: ANCHOR, BONUS or an index into nodes. */
    constructor(host, { onHover, onSelect }) {
      this.plot = h("div.plot", { "aria-hidden": "true" });
      this.hoverRing = h("div.ring.ring-hover", { hidden: true });
      this.selectRing = h("div.ring.ring-select", { hidden: true });
      this.pulse = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      this.pulse.setAttribute("class", "dp-pulse");
      this.stage = h("div.stage", { role: "img" }, this.plot, this.pulse, this.hoverRing, this.selectRing);
      const zoom = (label, sign, step) => h("button.zoom", { type: "button", "aria-label": label, "data-tip": label, onclick: () => this.zoomBy(step) }, sign);
      const foldLabel = "Fold unlikely branches";
      this.foldButton = h("button.zoom", { type: "button", "aria-label": foldLabel, "data-tip": foldLabel, "aria-pressed": "false", onclick: () => this.fold(!this.folded) }, "Fold");
      this.foldSwitch = h("button.link", { type: "button", onclick: () => this.fold(!this.folded) }, foldLabel);
      this.foldText = h("span", { role: "status" });
      this.foldRow = h("p.fold-row", { hidden: true }, this.foldText, this.foldSwitch); // the pane puts it under large trees
      this.zoomBar = h("div.zoom-bar", null, this.foldButton, zoom("Smaller", "−", -1), zoom("Whole tree", "Fit", 0), zoom("Larger", "+", 1));
      this.empty = h("p.tree-note", { hidden: true });
      this.scroller = h("div.scroller", null, this.stage);
      this.host = host;
      host.append(this.scroller, this.zoomBar, this.empty);
      this.cache = new Map();
      this.zoom = 1;
      this.scale = 1; // px of the screen to one of the geometry: Present draws everything larger
      this.refine = null; // (kinds, run, k, scorer, g) => void: last word on what is drawn (Present grows the tree with it)
      this.folding = null; // unlikely subtrees are one mark with a count; null: where the tree is wider than a phone
      this.opened = new Map(); // round -> nodes whose folded children were asked for
      this.origin = null; // token of the output that the anchor is: the axis counts tokens instead of depth
      this.guide = null; // depth before which a line marks the text position that both trees share
      this.current = null;
      this.onHover = onHover;
      this.over = null;
      let pending = null;
      this.stage.addEventListener("pointermove", (event) => {
        pending = event;
        requestAnimationFrame(() => {
          if (pending) this.setHover(this.nodeAt(pending));
          pending = null;
        });
      });
      this.stage.addEventListener("pointerleave", () => {
        pending = null;
        this.setHover(null);
      });
      this.stage.addEventListener("click", (event) => {
        const node = this.nodeAt(event);
        if (node !== null && this.stands(node)) this.unfold(node);
        else onSelect(node);
      });
    }

    /** How many nodes the mark at `node` stands for; 0 if it is an ordinary node. */
    stands(node) {
      const { g } = this.current;
      return (node >= 0 && g.stands[node]) || 0;
    }

    get folded() {
      return this.folding ?? Boolean(this.current?.g.folded);
    }

    /** Fold unlikely subtrees, or show every node again. */
    fold(on) {
      this.folding = on;
      this.opened.clear();
      this.redraw();
    }

    /** Show what a mark stands for: its likeliest nodes; what is left lies folded behind them. */
    unfold(mark) {
      const { run, k } = this.current;
      const key = `${run.serial}/${k}`;
      const parent = run.rounds[k].nodes.parent[mark];
      this.opened.set(key, new Set([...(this.opened.get(key) || []), parent]));
      const height = () => this.current.g.y[this.current.g.index(parent)] * this.scale;
      const before = height();
      this.redraw();
      this.scroller.scrollTop += height() - before; // what was clicked stays where it is, as far as it can
    }

    showFolding(g, kinds) {
      this.foldButton.setAttribute("aria-pressed", String(this.folded));
      if (g.n > LARGE || (g.narrow && g.folded)) this.foldRow.hidden = false; // and then for the rest of the run, so that nothing jumps
      if (this.foldRow.hidden) return;
      let [drawn, labels] = [0, 0];
      for (let i = 0; i < g.n; i++) if (kinds.drawn(i) && !["ghost", "fold"].includes(kinds.kind[i])) [drawn, labels] = [drawn + 1, labels + kinds.shown[i]];
      const folded = [...kinds.counts.values()].reduce((a, b) => a + b, 0);
      this.foldText.textContent = !this.folded
        ? `${plural(drawn, "node")}, ${labels} with room for a label. `
        : folded
          ? `${folded} of ${plural(folded + drawn, "node")} folded behind ${plural(kinds.counts.size, "mark")} ▸: click one to unfold it. `
          : "Nothing to fold in this round. ";
      this.foldSwitch.textContent = this.folded ? "Show every node" : this.foldButton.dataset.tip;
    }

    redraw() {
      this.cache.clear();
      if (!this.current) return;
      const { run, k, scorer, node } = this.current;
      this.over = null;
      this.draw(run, k, scorer, node);
    }

    readColours() {
      const style = getComputedStyle(this.host);
      const read = (name) => style.getPropertyValue(`--dp-${name}`).trim();
      this.colours = Object.fromEntries(
        ["bg", "ink", "soft", "faint", "line", "line-strong", "accent", "on-accent", "chip", "chip-line"].map((n) => [n, read(n)]),
      );
      this.cache.clear();
    }

    /** Read the size of the box. Only when it may have changed: reading makes the browser lay the page out. */
    measure() {
      this.box = { width: this.host.clientWidth, height: this.host.clientHeight };
      return this.box.width > 0;
    }

    size() {
      const [width, height] = [this.box.width / this.scale, this.box.height / this.scale];
      return { width: Math.max(260, width) * this.zoom, height: Math.max(200, height) * this.zoom, narrow: width < 640 };
    }

    /** One step larger or smaller about the middle of what is in view; 0: the whole tree. */
    zoomBy(step) {
      if (!this.current) return;
      const at = ZOOMS.indexOf(this.zoom);
      const zoom = step ? ZOOMS[Math.max(0, Math.min(ZOOMS.length - 1, at + step))] : 1;
      if (zoom === this.zoom) return;
      const box = this.scroller;
      const middle = [(box.scrollLeft + box.clientWidth / 2) / box.scrollWidth, (box.scrollTop + box.clientHeight / 2) / box.scrollHeight];
      this.zoom = zoom;
      const { run, k, scorer, node } = this.current;
      this.draw(run, k, scorer, node);
      box.scrollLeft = middle[0] * box.scrollWidth - box.clientWidth / 2;
      box.scrollTop = middle[1] * box.scrollHeight - box.clientHeight / 2;
    }

    geometryOf(run, k) {
      const { width, height, narrow } = this.size();
      const key = `${run.serial}/${k}/${width}/${height}/${narrow}`;
      let g = this.cache.get(key);
      if (!g) {
        if (this.cache.size > 40) this.cache.clear();
        g = geometry(run, k, width, height, narrow, this.folding === false ? null : this.opened.get(`${run.serial}/${k}`) || new Set(), this.folding === null);
        this.cache.set(key, g);
      }
      return g;
    }

    /** Draw round k of the run as `scorer` sees it. */
    draw(run, k, scorer, selected) {
      if (!this.colours) this.readColours();
      const before = this.current;
      const g = this.geometryOf(run, k);
      const kinds = this.classify(run, k, scorer, g);
      if (this.refine) this.refine(kinds, run, k, scorer, g);
      const [width, height] = [g.width * this.scale, g.height * this.scale];
      const sized = this.plot.dp === `${width}x${height}`;
      if (!sized) {
        this.plot.dp = `${width}x${height}`;
        this.pulse.setAttribute("viewBox", `0 0 ${g.width} ${g.height}`);
        for (const element of [this.plot, this.stage]) {
          element.style.width = `${width}px`;
          element.style.height = `${height}px`;
        }
        this.host.classList.toggle("dp-is-narrow", g.narrow);
        if (g.narrow) this.host.style.setProperty("--dp-tree-rows", `${height}px`);
      }
      const figure = this.figure(g, kinds);
      react(this.plot, figure, CONFIG);
      this.current = { run, k, scorer, g, kinds, node: selected };
      this.select(selected);
      this.setHover(null);
      this.place(this.hoverRing, null); // also where Present put it
      this.showFolding(g, kinds);
      if (before && before.run === run && before.k === k && before.scorer !== scorer) this.showChange(before, g, kinds);
      this.lookAhead(run, before && before.run === run && before.k > k ? k - 1 : k + 1);
    }

    /** While the visitor looks, find out where the points of the round go that will probably be next. */
    lookAhead(run, k) {
      cancelIdle(this.idle);
      if (run.rounds[k]) this.idle = whenIdle(() => this.box && this.current && this.current.run === run && this.geometryOf(run, k)); // no box: hidden meanwhile
    }

    /** What each point is under this scorer: in its tree, on the path it holds of the coming text, only in it. */
    classify(run, k, scorer, g) {
      const round = run.rounds[k];
      const bit = run.bit(scorer);
      const own = scorer === run.ownScorer;
      const several = run.scorers(k).length > 1;
      const trees = round.nodes.trees;
      const kind = new Array(g.n + 2);
      const held = run.held(k, scorer);
      const cum = round.nodes[`cum_${scorer === "verified" ? run.settings.scorer : scorer}`] || [];
      const weight = new Uint8Array(g.n);
      for (let i = 0; i < g.n; i++) {
        const inTree = trees[i] & bit;
        kind[i] = !inTree ? "ghost" : several && (trees[i] & 7) === BITS[scorer] ? "only" : "tree";
        const logp = value(cum[i]);
        weight[i] = logp === null ? 1 : logp > -1.6 ? 2 : logp > -4 ? 1 : 0;
      }
      held.forEach((n) => (kind[n] = "held"));
      const counts = new Map(); // what a fold mark stands for in this scorer's tree
      if (g.folded) {
        for (let i = 0; i < g.n; i++) {
          const mark = g.folded.behind[i];
          if (mark >= 0 && trees[i] & bit) counts.set(mark, (counts.get(mark) || 0) + 1);
        }
        for (let i = 0; i < g.n; i++) if (g.stands[i]) kind[i] = counts.has(i) ? "fold" : "ghost";
      }
      kind[g.n] = "anchor";
      // A node of another tree may carry the bonus token: in the run's own tree the bonus mark stands for it.
      const bonus = own || g.bonusNode < 0;
      const reaches = own || held.length === round.path.length; // … the token before it
      kind[g.n + 1] = !bonus ? "none" : reaches ? "bonus" : "ghost";
      if (bonus && g.bonusNode >= 0) kind[g.bonusNode] = "none";
      const ghosts = several && kind.reduce((sum, what) => sum + (what === "ghost"), 0) <= MANY;
      const visible = new Uint8Array(g.n + 2);
      for (const i of [g.n, ...g.parent.keys()].slice(0, -1)) // the anchor, then parents before children
        visible[i] = kind[i] !== "none" && !g.hidden[i] && (kind[i] !== "ghost" || g.spine[i] || (ghosts && !g.tight[i] && (visible[g.parent[i]] || g.parent[i] === g.bonusNode)));
      visible[g.n + 1] = bonus;
      const drawn = (i) => visible[i] === 1;
      return { kind, held, weight, own, drawn, counts, shown: legible(g, drawn) };
    }

    figure(g, { kind, weight, own, drawn, counts, shown }) {
      const c = this.colours;
      const marks = Object.fromEntries(MARKS.map((m) => [m, { x: [], y: [] }]));
      const texts = Object.fromEntries(TEXTS.map((t) => [t, { x: [], y: [], text: [] }]));
      const paths = Object.fromEntries(PATHS.map((p) => [p, []]));
      const put = (i, what) => {
        marks[what].x.push(g.x[i]);
        marks[what].y.push(g.y[i]);
      };
      const write = (i, what) => {
        if (!g.label[i] || !shown[i]) return;
        texts[what].x.push(g.labelX[i]);
        texts[what].y.push(g.labelY[i]);
        texts[what].text.push(escapePlotly(what === "fold" ? `+${counts.get(i)}` : g.label[i]));
      };
      const chip = (i, what) => {
        if (!g.chips) return;
        const half = (g.spine[i] ? SIZES.spineChip : SIZES.chip) / 2;
        paths[what].push(box(g.x[i], g.y[i] - half, g.end[i], g.y[i] + half, 7));
      };
      for (let i = 0; i < g.n; i++) {
        const what = kind[i];
        if (!drawn(i)) continue;
        if (what === "ghost") {
          paths.ghost.push(g.edge(i));
          put(i, "ghost");
          if (!g.crowded || g.spine[i]) write(i, "ghost");
          continue;
        }
        if (what === "held") paths.held.push(g.edge(i));
        else paths[["thin", "middle", "thick"][weight[i]]].push(g.edge(i));
        put(i, !g.tight[i] ? what : what === "tree" ? "fine" : what === "only" ? "fineOnly" : what);
        write(i, what !== "only" && what !== "tree" ? what : g.slight[i] ? "slight" : "tree");
        if (what !== "fold") chip(i, what === "held" ? "chipHeld" : what === "only" ? "chipOnly" : "chipTree");
      }
      put(g.n, "anchor");
      write(g.n, "anchor");
      chip(g.n, "chipAnchor");
      if (kind[g.n + 1] === "bonus") {
        paths.next.push(g.edge(g.n + 1));
        chip(g.n + 1, "chipBonus");
      } else if (drawn(g.n + 1)) paths.ghost.push(g.edge(g.n + 1));
      if (drawn(g.n + 1)) {
        put(g.n + 1, kind[g.n + 1]);
        write(g.n + 1, kind[g.n + 1]);
      }
      g.ticks.forEach((tick, depth) => {
        const text = this.origin === null ? tick.text : String(this.origin + depth);
        if (!text) return;
        texts.ticks.x.push(tick.x - 3);
        texts.ticks.y.push(tick.y);
        texts.ticks.text.push(text);
      });
      const guide = this.guide !== null && g.bus && g.bus[this.guide];
      if (guide) paths.guide.push(`M${guide.toFixed(1)} 2V${g.height - 20}`);

      const solid = own; // filled: it happened; outlined: it would have been held
      const heldMark = g.chips ? 9 : g.narrow ? 13 : 11;
      const looks = {
        ghost: { symbol: "circle", size: 7, color: c.bg, line: { color: c["line-strong"], width: 1.2 } },
        fine: { symbol: "circle", size: 3.5, color: c.soft, line: { width: 0 } },
        fineOnly: { symbol: "diamond", size: 5.5, color: c.bg, line: { color: c.ink, width: 1.2 } },
        tree: { symbol: "circle", size: 7, color: c.soft, line: { width: 0 } },
        only: { symbol: "diamond", size: 10, color: c.bg, line: { color: c.ink, width: 1.8 } },
        fold: { symbol: "triangle-right", size: 11, color: c.soft, line: { width: 0 } },
        held: { symbol: "circle", size: heldMark, color: solid ? c.accent : c.bg, line: { color: g.chips ? c.bg : c.accent, width: g.chips && solid ? 1.5 : 2.5 } },
        anchor: { symbol: "circle", size: g.chips ? 9 : 12, color: c.ink, line: { color: c.bg, width: 1.5 } },
        bonus: { symbol: "square", size: g.chips ? 9 : 11, color: c.bg, line: { color: c.accent, width: 2.2 } },
      };
      if (g.chips && !solid) looks.held.line.color = c.accent;
      const inks = {
        ghost: { color: c.faint, size: FONT },
        slight: { color: c.ink, size: FONT, weight: 600 },
        tree: { color: c.ink, size: FONT },
        fold: { color: c.soft, size: FONT, weight: 600 },
        held: { color: g.chips && solid ? c["on-accent"] : c.accent, size: g.spineFont, weight: 600 },
        anchor: { color: g.chips ? c.bg : c.ink, size: g.spineFont, weight: 600 },
        bonus: { color: c.accent, size: g.spineFont, weight: 600 },
        ticks: { color: c.faint, size: 13 },
      };
      const lines = {
        guide: { color: c.accent, width: 1.5, dash: "2px,4px" },
        ghost: { color: c["line-strong"], width: 1, dash: "2px,3px" },
        thin: { color: c["line-strong"], width: 1 },
        middle: { color: c["line-strong"], width: 1.8 },
        thick: { color: c["line-strong"], width: g.chips ? 3 : 2.3 },
        held: { color: c.accent, width: solid ? 5 : 3.5 },
        next: { color: c.accent, width: 2 },
        chipTree: { color: c["chip-line"], width: 1 },
        chipOnly: { color: c.ink, width: 1.6 },
        chipHeld: { color: c.accent, width: 2 },
        chipAnchor: { color: c.ink, width: 1 },
        chipBonus: { color: c.accent, width: 2, dash: "4px,3px" },
      };
      const s = this.scale;
      if (s !== 1) {
        for (const look of Object.values(looks)) [look.size, look.line.width] = [look.size * s, look.line.width * s];
        for (const sized of [...Object.values(inks), ...Object.values(lines)]) for (const name of ["size", "width"]) if (sized[name]) sized[name] *= s;
      }
      const fills = { chipTree: c.chip, chipOnly: c.chip, chipHeld: solid ? c.accent : c.bg, chipAnchor: c.ink, chipBonus: c.bg };
      const many = MARKS.filter((m) => marks[m].x.length > AS_PATH);
      const drawnMarks = many.map((m) => {
        const { symbol, size, color, line } = looks[m];
        const outline = line.width ? line : { color, width: size < 5 ? size / 2 : 0 };
        return { type: "path", path: dots(marks[m], symbol, size / s), layer: "below", line: outline, fillcolor: color, name: `${m} marks` };
      });
      for (const m of many) marks[m] = { x: [], y: [] };
      // One trace for all marks and one for all labels: Plotly's cost is by trace (0.5 ms each) more than by point.
      const each = (lists, of) => Object.entries(lists).flatMap(([kind, { x }]) => x.map(() => of(kind)));
      const all = (lists, name) => Object.values(lists).flatMap((list) => list[name]);
      const common = { type: "scatter", hoverinfo: "skip", cliponaxis: false };
      const data = [
        {
          ...common,
          mode: "markers",
          name: "marks",
          x: all(marks, "x"),
          y: all(marks, "y"),
          customdata: each(marks, (kind) => kind),
          marker: {
            opacity: 1,
            symbol: each(marks, (kind) => looks[kind].symbol),
            size: each(marks, (kind) => looks[kind].size),
            color: each(marks, (kind) => looks[kind].color),
            line: { color: each(marks, (kind) => looks[kind].line.color || looks[kind].color), width: each(marks, (kind) => looks[kind].line.width) },
          },
        },
        {
          ...common,
          type: "tokens", // labels.js
          mode: "text",
          name: "labels",
          textposition: "middle right",
          x: all(texts, "x"),
          y: all(texts, "y"),
          text: all(texts, "text"),
          customdata: each(texts, (kind) => kind),
          textfont: { family: FAMILY, color: each(texts, (kind) => inks[kind].color), size: each(texts, (kind) => inks[kind].size), weight: each(texts, (kind) => inks[kind].weight || 400) },
        },
      ];
      const shapes = PATHS.filter((p) => paths[p].length).map((p) => ({ type: "path", path: paths[p].join(""), layer: "below", line: lines[p], fillcolor: fills[p] || "rgba(0,0,0,0)", name: p }));
      const axis = { visible: false, fixedrange: true, type: "linear", autorange: false };
      const layout = {
        width: g.width * s,
        height: g.height * s,
        margin: { l: 0, r: 0, t: 0, b: 0 },
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        showlegend: false,
        hovermode: false,
        dragmode: false,
        font: { family: FAMILY, size: FONT },
        xaxis: { ...axis, range: [0, g.width] },
        yaxis: { ...axis, range: [g.height, 0] },
        shapes: [...shapes, ...drawnMarks],
      };
      return { data, layout };
    }

    /** The node under the pointer: ANCHOR, BONUS, an index, or null. */
    nodeAt(event) {
      if (!this.current) return null;
      const frame = this.stage.getBoundingClientRect();
      const px = (event.clientX - frame.left) / this.scale;
      const py = (event.clientY - frame.top) / this.scale;
      const { g, kinds } = this.current;
      let best = null;
      let least = 20;
      for (let i = 0; i < g.n + 2; i++) {
        if (!kinds.drawn(i)) continue;
        const right = g.chips ? g.end[i] : kinds.shown[i] && g.label[i] ? g.labelEnd[i] : g.x[i];
        const dx = px < g.x[i] ? g.x[i] - px : px > right ? px - right : 0;
        const dy = Math.abs(py - (g.chips || g.narrow ? g.y[i] : px > g.x[i] + 6 ? g.labelY[i] : g.y[i]));
        const distance = Math.hypot(dx, dy) + (kinds.kind[i] === "ghost" ? 1 : 0);
        if (distance < least) [best, least] = [i, distance];
      }
      return best === null ? null : best === g.n ? ANCHOR : best === g.n + 1 ? BONUS : best;
    }

    setHover(node) {
      if (node === this.over) return;
      this.over = node;
      this.place(this.hoverRing, node);
      this.stage.style.cursor = node === null ? "" : "pointer";
      this.onHover(node);
    }

    select(node) {
      if (this.current) this.current.node = node;
      this.place(this.selectRing, node);
    }

    place(ring, node) {
      const { g, kinds } = this.current || {};
      const hide = node === null || node === undefined || !g || !kinds.drawn(g.index(node));
      ring.hidden = hide;
      if (hide) return;
      const i = g.index(node);
      const half = (g.spine[i] ? SIZES.spineChip : SIZES.chip) / 2 + 4;
      const around = g.chips
        ? [g.x[i] - 5, g.end[i] + 4, g.y[i] - half, g.y[i] + half]
        : [g.x[i] - 10, g.x[i] + 10, g.y[i] - 10, g.y[i] + 10];
      const [x0, x1, y0, y1] = around.map((at) => at * this.scale);
      ring.style.cssText = `left:${x0}px;top:${y0}px;width:${x1 - x0}px;height:${y1 - y0}px;border-radius:${(g.chips ? 10 : 20) * this.scale}px`;
    }

    /** After a change of scorer: the nodes that came in flash once (250 ms at most), nothing moves. */
    showChange(before, g, kinds) {
      if (this.flash) this.flash.cancel();
      if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
      let path = "";
      for (let i = 0; i < g.n; i++) {
        if (before.kinds.kind[i] === "ghost" && kinds.kind[i] !== "ghost" && kinds.drawn(i))
          path += `M${g.x[i] - 9} ${g.y[i]}a9 9 0 1 0 18 0a9 9 0 1 0 -18 0`;
      }
      this.pulse.replaceChildren();
      if (!path) return;
      const rings = document.createElementNS("http://www.w3.org/2000/svg", "path");
      rings.setAttribute("d", path);
      this.pulse.append(rings);
      this.flash = this.pulse.animate([{ opacity: 1 }, { opacity: 0 }], { duration: 240, easing: "ease-out", fill: "forwards" });
    }

    clear(note) {
      this.current = null;
      this.hoverRing.hidden = this.selectRing.hidden = true;
      this.stage.hidden = this.zoomBar.hidden = true;
      this.note(note);
    }

    note(text) {
      this.empty.hidden = !text;
      this.empty.textContent = text || "";
    }

    destroy() {
      cancelIdle(this.idle);
      Plotly.purge(this.plot);
    }
  }

  Object.assign(DP.parts, { TreeView });
})((window.DominoPlayer = window.DominoPlayer || {}));
