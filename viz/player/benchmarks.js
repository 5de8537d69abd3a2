/* The Benchmarks tab: published figures and our own runs as charts. Data and sentences come from viz/benchmarks.py.
   Needs vendor/plotly-basic.min.js, text.js, geometry.js and glossary.js of the player.

   DominoBenchmarks.open(element, {styles: url, data: url}) does all of it, or
   const b = DominoBenchmarks.mount(element, {theme: "auto"|"light"|"dark"});
   b.load(data) · b.setError(sentence) · b.theme(name) · b.state() · b.setState(s) · b.destroy() */
(function () {
  "use strict";
  const { h, term, tips, number, FAMILY } = window.DominoPlayer.parts;

  const PAPER = "arXiv:2607.08642";
  const PAPER_URL = "https://arxiv.org/abs/2607.08642";
  const CONFIG = { displayModeBar: false, displaylogo: false, responsive: false, scrollZoom: false, doubleClick: false, showTips: false };
  const NARROW = 640; // px: labels go above the marks, panels below each other
  const OURS = "DominoTree@16";
  const RIVALS = ["DDTree@16", "CaDDTree", "Domino", "DFlash"];
  const METRICS = {
    speedup_over_ar: { title: "Speed-up", axis: "Speed-up over plain decoding (×)", unit: "×", digits: 2 },
    tau: { title: "τ", axis: "τ (tokens per round, bonus included)", unit: "", digits: 2, word: " tokens a round" },
    tokens_per_second: { title: "Tokens/s", axis: "Decoding speed (tokens per second)", unit: "", digits: 0, word: " tokens/s" },
    build_ms: { title: "Build time", axis: "Build stage (ms per round)", unit: "", digits: 2, word: " ms" },
  };
  /* Colour says whose drafter: accent Domino, warm DFlash; shape says which method. */
  const MARKS = {
    AR: { symbol: "x-thin-open", colour: "faint", size: 9 },
    DFlash: { symbol: "triangle-up-open", colour: "warn", size: 10 },
    CaDDTree: { symbol: "square-open", colour: "warn", size: 10 },
    "DDTree@16": { symbol: "diamond", colour: "warn", size: 11 },
    Domino: { symbol: "circle-open", colour: "accent", size: 10 },
    "DominoTree@16": { symbol: "circle", colour: "accent", size: 13 },
  };
  const LADDER = {
    "marg@16": { title: "marginal", symbol: "circle-open", colour: "faint", size: 10 },
    "condstatic@16": { title: "static-corrected", symbol: "square-open", colour: "ink", size: 10 },
    "dominotree@16": { title: "conditional", symbol: "circle", colour: "accent", size: 13 },
  };
  /* Our own runs: stars and polygons, which no published figure has. */
  const OWN = {
    ar: { symbol: "cross-thin-open", colour: "faint", size: 10 },
    dflash: { symbol: "triangle-down-open", colour: "soft", size: 10 },
    domino: { symbol: "pentagon-open", colour: "accent", size: 11 },
    ddtree: { symbol: "bowtie-open", colour: "soft", size: 11 },
    marginal: { symbol: "hexagon-open", colour: "faint", size: 11 },
    static: { symbol: "diamond-wide-open", colour: "ink", size: 12 },
    dominotree: { symbol: "star", colour: "accent", size: 16 },
  };
  /* On a drafter of their own, beside a Domino drafter's runs. */
  const OWN_PLAIN = {
    dflash: { symbol: "triangle-down-open", colour: "warn", size: 10 },
    ddtree: { symbol: "bowtie-open", colour: "warn", size: 11 },
    marginal: { symbol: "bowtie-open", colour: "warn", size: 11 },
  };
  /* The same runs on a GPU's clock. */
  const SPEED = {
    ours: { title: "DominoTree", symbol: "star", colour: "accent", size: 16 },
    fixed: { title: "other trees and chains", symbol: "hexagon-open", colour: "ink", size: 11 },
    adaptive: { title: "stops by the cost of a verify, at most 256 nodes", symbol: "diamond-wide-open", colour: "warn", size: 12 },
  };
  const WIDTHS = {
    alpaca: { symbol: "circle", colour: "accent", size: 9, dash: "solid" },
    gsm8k: { symbol: "square-open", colour: "ink", size: 9, dash: "dash" },
    humaneval: { symbol: "diamond", colour: "warn", size: 10, dash: "dot" },
  };
  const STAGES = { draft_ms: "draft", build_ms: "build", verify_ms: "verify", commit_ms: "commit" };
  const STAGE_COLOURS = { light: ["#3f4a5a", "#7b8798", "#b3bcc8", "#dbe0e7"], dark: ["#e3e8ef", "#a2adbc", "#657182", "#3d4653"] };
  const STAGE_INKS = { light: ["#fff", "#0b0e13", "#15181e", "#15181e"], dark: ["#08111f", "#08111f", "#fff", "#fff"] };
  const BUILDERS = { gpu_native: "CUDA graph", python_builder: "Python" };

  const signed = (x, digits = 1) => (x > 0 ? "+" : "") + number(x, digits);
  const only = (list, wish) => list.filter((row) => Object.entries(wish).every(([name, value]) => row[name] === value));
  const distinct = (list, name) => [...new Set(list.map((row) => row[name]))];
  const best = (list, name) => list.reduce((a, b) => (b[name] > a[name] ? b : a));
  const plainText = (element) => element.textContent.trim();

  /** A mark for a legend. Sizes as in the charts. */
  function swatch(mark, host) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "-9 -9 18 18");
    svg.setAttribute("aria-hidden", "true");
    svg.setAttribute("class", `dp-mark dp-ink-${mark.colour}`);
    const open = /open/.test(mark.symbol);
    const r = mark.size / 2;
    const ring = (n, turn = 0, inner = 0) =>
      `M${[...Array(inner ? 2 * n : n).keys()]
        .map((k) => {
          const radius = inner && k % 2 ? inner : r;
          const angle = (2 * Math.PI * k) / (inner ? 2 * n : n) - Math.PI / 2 + turn;
          return `${(radius * Math.cos(angle)).toFixed(1)} ${(radius * Math.sin(angle)).toFixed(1)}`;
        })
        .join("L")}Z`;
    const shapes = {
      circle: `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`,
      square: `M${-r} ${-r}H${r}V${r}H${-r}Z`,
      diamond: ring(4).replace(/[\d.]+/g, (v) => (v * 1.3).toFixed(1)),
      "diamond-wide": `M0 ${-0.65 * 1.3 * r}L${1.3 * r} 0L0 ${0.65 * 1.3 * r}L${-1.3 * r} 0Z`,
      "triangle-up": ring(3).replace(/[\d.]+/g, (v) => (v * 1.15).toFixed(1)),
      "triangle-down": ring(3, Math.PI).replace(/[\d.]+/g, (v) => (v * 1.15).toFixed(1)),
      pentagon: ring(5),
      hexagon: ring(6),
      bowtie: `M${-r} ${-r}L${r} ${r}V${-r}L${-r} ${r}Z`,
      star: ring(5, 0, r * 0.42),
      "x-thin": `M${-r} ${-r}L${r} ${r}M${-r} ${r}L${r} ${-r}`,
      "cross-thin": `M0 ${-r}V${r}M${-r} 0H${r}`,
    };
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", shapes[mark.symbol.replace("-open", "")]);
    path.setAttribute("class", open ? "dp-open" : "dp-full");
    svg.append(path);
    host?.append(svg);
    return svg;
  }

  /** A group of buttons of which one is pressed. `options`: [[value, title], …]. */
  class Choice {
    constructor(label, options, value, onChange) {
      this.value = this.usual = value;
      this.onChange = onChange;
      this.group = h("div.segments", { role: "group", "aria-label": label });
      this.element = h("div.choice", null, h("span.choice-label", null, label), this.group);
      this.label = label;
      this.setOptions(options);
    }
    setOptions(options) {
      this.options = options;
      const values = options.map(([value]) => value);
      this.value = [this.value, this.usual].find((value) => values.includes(value)) ?? values[0] ?? null;
      this.group.replaceChildren(
        ...options.map(([value, title]) => h("button.segment", { type: "button", "data-value": String(value), onclick: () => this.set(value) }, h("span", null, title))),
      );
      this.element.hidden = options.length < 2;
      this.show();
    }
    show() {
      this.options.forEach(([value], k) => this.group.children[k].setAttribute("aria-pressed", String(value === this.value)));
    }
    set(value, quiet) {
      if (!this.options.some(([v]) => v === value)) return;
      this.value = value;
      this.show();
      if (!quiet) this.onChange(`${this.label}: ${plainText(this.group.querySelector('[aria-pressed="true"]'))}`);
    }
  }

  /** One chart: title, sentence, filters, legend, plot, source, table. `draw(chart)` returns {data, layout, height}. */
  class Chart {
    constructor({ name, title, source, choices = [], tag = null, draw, click = null }) {
      Object.assign(this, { name, draw, click, choices });
      this.takeaway = h("p.takeaway");
      this.legend = h("ul.marks");
      this.plot = h("div.bench-plot", { "aria-hidden": "true" });
      this.empty = h("p.bench-empty", { hidden: true });
      this.table = h("div.table-wrap", { tabindex: "0", role: "region", "aria-label": `Table: ${plainText(title)}` });
      this.details = h("details.bench-table", { ontoggle: () => this.fillTable() }, h("summary", null, "Table"), this.table);
      this.source = h("p.source", null, ...source);
      title.id = `bench-${name}`;
      this.element = h(
        "section.chart",
        { "aria-labelledby": title.id, "data-chart": name },
        h("div.chart-head", null, title, tag),
        this.takeaway,
        h("div.chart-choices", null, ...choices.map((c) => c.element)),
        this.legend,
        this.plot,
        this.empty,
        h("div.chart-foot", null, this.source, this.details),
      );
    }

    fillTable() {
      if (!this.details.open || !this.shown) return;
      const { columns, rows } = this.shown.table;
      this.table.replaceChildren(
        h(
          "table.nodes",
          null,
          h("caption", null, this.takeaway.textContent),
          h("thead", null, h("tr", null, ...columns.map((c) => h("th", { scope: "col" }, c)))),
          h("tbody", null, ...rows.map((row) => h("tr", null, ...row.map((cell, k) => h(k ? "td" : "th", k ? null : { scope: "row" }, cell === null || cell === undefined ? "–" : String(cell)))))),
        ),
      );
    }

    setLegend(entries) {
      this.legend.hidden = !entries.length;
      this.legend.replaceChildren(...entries.map(([mark, text]) => h("li", null, mark instanceof Element ? mark : swatch(mark), h("span", null, text))));
    }
  }

  class Benchmarks {
    constructor(element, { theme = "auto" } = {}) {
      this.data = null;
      this.error = h("p.error", { role: "alert", hidden: true });
      this.live = h("p.sr", { role: "status", "aria-live": "polite" });
      this.body = h("div.bench", null, h("p.bench-wait", null, "Loading the figures …"));
      this.root = h("div", { class: "dp dp-benchmarks", "aria-busy": "true" }, this.error, this.live, this.body);
      element.replaceChildren(this.root);
      this.hideTip = tips(this.root);
      this.media = matchMedia("(prefers-color-scheme: dark)");
      this.onMedia = () => this.theme(this.themeName);
      this.media.addEventListener("change", this.onMedia);
      this.themeName = theme;
      this.root.dataset.theme = this.resolved();
      this.observer = new ResizeObserver(() => this.resized());
      this.observer.observe(this.root);
    }

    // ---- what is shown

    load(data) {
      const charts = {};
      for (const [name, { columns, rows, takeaways, about }] of Object.entries(data.charts))
        charts[name] = { takeaways, about, rows: rows.map((row) => Object.fromEntries(columns.map((c, k) => [c, row[k]]))) };
      this.data = { ...data, charts };
      this.setError("");
      this.build();
      this.renderAll();
      return this;
    }

    setError(text) {
      this.error.textContent = text;
      this.error.hidden = !text;
      if (!text || this.data) return;
      this.body.replaceChildren();
      this.root.setAttribute("aria-busy", "false");
    }

    rows(name) {
      return this.data.charts[name].rows;
    }
    nameOf(dataset) {
      return this.data.names[dataset] || dataset;
    }

    build() {
      const speeds = this.rows("methods");
      const change = (...names) => (what) => {
        this.live.textContent = what;
        this.render(...names);
      };
      const three = ["cells", "methods", "intervals"];
      const metrics = (names) => names.map((m) => [m, METRICS[m].title]);
      this.filters = {
        target: new Choice("Target", distinct(speeds, "target").map((t) => [t, t]), "Qwen3-4B", change(...three)),
        temperature: new Choice("Temperature", distinct(speeds, "temperature").map((t) => [t, String(t)]), 0, change(...three)),
        metric: new Choice("Metric", metrics(["speedup_over_ar", "tau", "tokens_per_second"]), "speedup_over_ar", change("cells", "methods")),
        against: new Choice("Against", [["trees", "DDTree or CaDDTree"], ["Domino", "Domino"], ["DFlash", "DFlash"]], "trees", change("cells")),
        rival: new Choice("Against", [["all", "All four"], ...RIVALS.map((r) => [r, r])], this.root.clientWidth < NARROW ? RIVALS[0] : "all", change("intervals")),
        setting: new Choice("Builder", [["matched_builder", "Matched"], ["best_builder", "Each one's best"]], "matched_builder", change("ladder")),
        ladder: new Choice("Metric", metrics(["tau", "tokens_per_second", "build_ms"]), "tau", change("ladder")),
        width: new Choice("Metric", metrics(["tau", "tokens_per_second", "build_ms"]), "tokens_per_second", change("width")),
        stages: new Choice("Method", [["dominotree@16", "DominoTree"], ["chain", "Domino chain"]], "dominotree@16", change("stages")),
        heat: new Choice("Temperature", distinct(this.rows("stages"), "temperature").map((t) => [t, String(t)]), 0, change("stages")),
      };
      const f = this.filters;
      const paper = () => h("a", { href: PAPER_URL, target: "_blank", rel: "noopener" }, PAPER);
      const cite = (...what) => ["Published: ", paper(), `, ${what.join("")}`];
      const rtx = "Qwen3-4B on an RTX 5080, bf16, batch 1";
      this.charts = {
        cells: new Chart({
          name: "cells",
          title: h("h3", null, "Ahead or behind, cell by cell"),
          choices: [f.against],
          source: cite("speedup_tau.csv. Per cent by which DominoTree@16 is above (+) or below (−) the better of the named rivals; marked cells are behind. Click a cell to select its column."),
          draw: () => this.drawCells(),
          click: (point) => {
            f.target.set(point.customdata[0], true);
            f.temperature.set(point.customdata[1]);
          },
        }),
        methods: new Chart({
          name: "methods",
          title: h("h3", null, "Every method on every dataset"),
          source: cite("speedup_tau.csv, 2048 new tokens. At the right: DominoTree@16 against the best other method. Circles use the Domino drafter, angular marks the DFlash drafter. Each speed-up is over the method's own plain decoding run, Domino's over a lean common one. 4B and 8B ran on different machines."),
          draw: () => this.drawMethods(),
        }),
        intervals: new Chart({
          name: "intervals",
          title: h("h3", null, "How sure: differences with 95 % intervals"),
          choices: [f.rival],
          source: cite("intervals.csv, paired bootstrap over prompts. Against Domino: tokens per second; against the others: speed-up, each over its own plain decoding."),
          draw: () => this.drawIntervals(),
        }),
        ladder: new Chart({
          name: "ladder",
          title: h("h3", null, "What conditioning on the path adds"),
          choices: [f.setting, f.ladder],
          source: cite(`conditioning_ladder.csv, ${rtx}, temperature 0, budget 16. The same drafter and best-first tree; only the scores differ.`),
          draw: () => this.drawLadder(),
        }),
        own: this.ownChart(change),
        speed: this.speedChart(),
        width: new Chart({
          name: "width",
          title: h("h3", null, ...["How many candidates a level keeps (", term("topm", "top-M"), ")"]),
          choices: [f.width],
          source: cite(`candidate_width.csv, ${rtx}, Python builder. GSM8K was not measured at 32.`),
          draw: () => this.drawWidth(),
        }),
        stages: new Chart({
          name: "stages",
          title: h("h3", null, "Where a round's time goes, by builder"),
          choices: [f.stages, f.heat],
          source: cite(`stage_times_4b.csv, ${rtx}. Means per round; the table also has plain decoding, which has no stages.`),
          draw: () => this.drawStages(),
        }),
      };
      const c = this.charts;
      const speed = only(this.rows("cells"), { metric: "speedup_over_ar", against: "trees" });
      const tau = only(this.rows("cells"), { metric: "tau", against: "trees" });
      const below = (cells) => cells.filter((r) => r.value < r.rival_value).length;
      const stat = (n, of, label) => h("div", null, h("dt", null, ...label), h("dd", null, `${n} of ${of}`));
      this.body.replaceChildren(
        h(
          "div.bench-head",
          null,
          h("p.title", null, h("strong", null, "Published figures"), " · ", paper(), " · budget 16, top-M 64, 8 children, bf16, batch 1 · ", h("strong", null, "our own runs"), " are drawn apart, with marks of their own"),
          h(
            "div.head-row",
            null,
            h("h2.headline", null, h("b", null, "DominoTree against the other methods")),
            h(
              "dl.stats",
              null,
              stat(speed.length - below(speed), speed.length, ["cells faster than DDTree and CaDDTree"]),
              stat(below(speed), speed.length, ["slower than one of them"]),
              stat(below(tau), tau.length, ["lower in ", term("tau", "τ")]),
            ),
          ),
        ),
        h("div.bench-filters", { role: "toolbar", "aria-label": "Filters" }, f.target.element, f.temperature.element, f.metric.element),
        h("div.bench-row.bench-first", null, c.cells.element, c.methods.element),
        c.intervals.element,
        h("h2.headline.bench-second", null, h("b", null, "Why it works and what it costs")),
        h("div.bench-row", null, c.ladder.element, c.own.element),
        c.speed.element,
        h("div.bench-row", null, c.width.element, c.stages.element),
      );
    }

    ownChart(change) {
      const rows = this.rows("own");
      const names = ["runs", "pair", "view", "temperature", "top_m", "budget"];
      const titles = { runs: "Texts", pair: "Pair", view: "Drafter", temperature: "Temperature", top_m: "Top-M", budget: "Nodes" };
      const usual = { temperature: 0, top_m: 64, budget: 16 };
      this.own = Object.fromEntries(
        names.map((name) => [
          name,
          new Choice(titles[name], [], usual[name] ?? null, (what) => {
            this.settleOwn();
            change("own")(what);
          }),
        ]),
      );
      const tag = h("span.tag", null, "our run");
      const chart = new Chart({
        name: "own",
        title: h("h3", null, "The same on the pair that ships here"),
        tag,
        choices: Object.values(this.own),
        source: [""],
        draw: () => this.drawOwn(),
      });
      chart.element.classList.add("dp-own");
      this.ownNames = names;
      if (rows.length) this.settleOwn();
      return chart;
    }

    /** Our own speeds on a GPU. */
    speedChart() {
      const { machine, dtype, prompts, tokens, date, drafter, dflash } = this.data.charts.speed.about;
      const chart = new Chart({
        name: "speed",
        title: h("h3", null, `How fast the pair that ships here is${machine ? ` on an ${machine}` : " on a GPU"}`),
        tag: h("span.tag", null, "our run"),
        source: [
          machine
            ? `Our run: SmolLM2-135M, ${drafter} and ${dflash}, ${machine}, ${dtype}, batch 1, ${prompts} prompts × ${tokens} tokens, ${date}. Each prompt against plain decoding on the same machine in the same mode; bars reach from the slowest prompt to the fastest. Another model, drafter and text than the published figures: compare the order, not the height.`
            : "Our run.",
        ],
        draw: () => this.drawSpeed(),
      });
      chart.element.classList.add("dp-own");
      return chart;
    }

    drawSpeed() {
      const rows = this.rows("speed");
      if (!rows.length) return { empty: "No runs on a GPU are here: they come from docs/performance.", table: { columns: [], rows: [] } };
      const c = this.colours;
      const title = (r) => this.data.methods[r.method] || r.method;
      const order = [...rows].sort((a, b) => b.ratio - a.ratio);
      const series = Object.entries(SPEED).map(([kind, mark]) => ({
        name: mark.title,
        mark,
        points: order.filter((r) => r.kind === kind).map((r) => ({
          x: r.ratio,
          y: order.indexOf(r),
          low: r.low,
          high: r.high,
          text: `<b>${title(r)}</b>: ${number(r.ratio)}× (${number(r.low)} to ${number(r.high)}), τ ${number(r.tau)}<br>of a round: ${Object.entries(STAGES).map(([s, name]) => `${name} ${number(100 * r[s], 0)} %`).join(", ")}`,
        })),
      }));
      const links = order.map((r, y) => ({ y, from: 1, to: r.ratio, delta: 0, hidden: true, text: `${number(r.ratio)}×` }));
      const figure = this.dots({ names: order.map(title), series, links, axis: METRICS.speedup_over_ar.axis, range: [0, Math.max(...rows.map((r) => r.high)) * 1.05], column: "median", narrow: this.charts.speed.narrow });
      figure.layout.shapes.push({ type: "line", yref: "paper", x0: 1, x1: 1, y0: 0, y1: 1, line: { width: 1.5, color: c.ink }, layer: "between" });
      return {
        ...figure,
        takeaway: this.takeaway("speed", ""),
        legend: series.filter((s) => s.points.length).map((s) => [s.mark, s.name]),
        table: {
          columns: ["Method", "× AR, median", "Slowest prompt", "Fastest prompt", "τ", ...Object.values(STAGES).map((name) => `${name}, %`)],
          rows: order.map((r) => [title(r), ...["ratio", "low", "high", "tau"].map((n) => number(r[n])), ...Object.keys(STAGES).map((s) => number(100 * r[s], 0))]),
        },
      };
    }

    /** Offer only what exists with the choices before it. What is null in a row stands with every value. */
    settleOwn() {
      let rows = this.rows("own");
      for (const name of this.ownNames) {
        const values = distinct(rows, name).filter((v) => v !== null);
        if (name in { budget: 1, temperature: 1, top_m: 1 }) values.sort((a, b) => (a === "full") - (b === "full") || a - b);
        this.own[name].setOptions(values.map((v) => [v, name === "runs" ? v[0].toUpperCase() + v.slice(1) : String(v)]));
        const value = this.own[name].value;
        rows = rows.filter((row) => row[name] === value || row[name] === null);
      }
      return rows;
    }

    // ---- drawing

    render(...names) {
      for (const name of names) this.renderOne(this.charts[name]);
    }

    /** All charts, one a frame, so that the tab answers while they are drawn. */
    renderAll() {
      cancelAnimationFrame(this.frame);
      if (!this.data || !this.root.clientWidth) return;
      this.width = this.root.clientWidth;
      this.root.setAttribute("aria-busy", "true");
      this.readColours();
      const rest = Object.values(this.charts);
      const next = () => {
        const chart = rest.shift();
        if (!chart) return this.root.setAttribute("aria-busy", "false");
        this.renderOne(chart);
        this.frame = requestAnimationFrame(next);
      };
      next();
    }

    renderOne(chart) {
      if (!this.root.clientWidth) return;
      const width = chart.plot.clientWidth;
      chart.width = width;
      chart.narrow = width < NARROW;
      const drawn = chart.draw();
      chart.shown = drawn;
      chart.takeaway.textContent = drawn.takeaway || "";
      chart.empty.hidden = !drawn.empty;
      chart.plot.hidden = Boolean(drawn.empty);
      chart.setLegend(drawn.legend || []);
      chart.fillTable();
      if (drawn.empty) {
        chart.empty.textContent = drawn.empty;
        return;
      }
      const fresh = !chart.plot.data;
      chart.plot.style.height = `${drawn.layout.height}px`;
      Plotly.react(chart.plot, drawn.data, { ...this.layout(width), ...drawn.layout }, CONFIG);
      if (fresh && chart.click) chart.plot.on("plotly_click", (event) => chart.click(event.points[0]));
    }

    readColours() {
      const style = getComputedStyle(this.root);
      const read = (name) => style.getPropertyValue(`--dp-${name}`).trim();
      this.colours = Object.fromEntries(["bg", "ink", "soft", "faint", "line", "line-strong", "accent", "warn", "chip"].map((n) => [n, read(n)]));
    }

    layout(width) {
      const c = this.colours;
      return {
        width,
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: FAMILY, size: 13, color: c.soft },
        showlegend: false,
        hovermode: "closest",
        dragmode: false,
        hoverlabel: { bgcolor: c.ink, bordercolor: c.ink, font: { family: FAMILY, size: 13, color: c.bg }, align: "left", namelength: 0 },
      };
    }

    axis(title, more = {}) {
      const c = this.colours;
      return {
        title: { text: title, font: { size: 13, color: c.faint }, standoff: 10 },
        fixedrange: true,
        zeroline: false,
        showline: false,
        gridcolor: c.line,
        tickcolor: c.line,
        tickfont: { size: 13, color: c.faint },
        automargin: false,
        ...more,
      };
    }

    /** Rows from top to bottom, named at the left. */
    rowAxis(names, more = {}) {
      return this.axis("", {
        tickvals: names.map((_, k) => k),
        ticktext: names,
        range: [names.length - 0.5, -0.5],
        tickfont: { size: 13, color: this.colours.ink },
        ticks: "",
        ticklabelstandoff: 8,
        ...more,
      });
    }

    marker(mark, scale = 1) {
      const colour = this.colours[mark.colour];
      const open = /open/.test(mark.symbol);
      return { symbol: mark.symbol, size: mark.size * scale, color: colour, opacity: 1, line: { width: open ? 2 : 1, color: open ? colour : this.colours.bg } };
    }

    margin(labels) {
      return Math.max(...labels.map((l) => l.length)) * 7.2 + 14;
    }

    /** A dot plot: one row a dataset, one mark a method, a link from `from` to `to` and its size at the right. */
    dots({ names, series, links, axis, range, height = 34, column, narrow = false, top = 24 }) {
      const c = this.colours;
      const data = series.map((s) => ({
        type: "scatter",
        mode: "markers",
        name: s.name,
        x: s.points.map((p) => p.x),
        y: s.points.map((p) => p.y),
        customdata: s.points.map((p) => p.text),
        hovertemplate: "%{customdata}<extra></extra>",
        marker: this.marker(s.mark, narrow ? 0.8 : 1),
        cliponaxis: false,
        ...(s.points.some((p) => p.low !== null && p.low !== undefined)
          ? { error_x: { type: "data", symmetric: false, array: s.points.map((p) => (p.high === null ? null : p.high - p.x)), arrayminus: s.points.map((p) => (p.low === null ? null : p.x - p.low)), color: c[s.mark.colour], thickness: 1.5, width: 4 } }
          : {}),
      }));
      const shapes = links.filter((l) => !l.hidden).map((l) => ({
        type: "line", layer: "between", x0: l.from, x1: l.to, y0: l.y, y1: l.y,
        line: { width: 4, color: c[l.delta < 0 ? "warn" : "accent"] }, opacity: 0.35,
      }));
      const annotations = links.map((l) => ({
        xref: "paper", x: 1, xanchor: "left", xshift: 12, y: l.y, yanchor: "middle", showarrow: false,
        text: l.delta < 0 ? `<b>${l.text}</b>` : l.text, font: { size: 13, color: c[l.delta < 0 ? "warn" : "accent"] },
      }));
      if (column)
        annotations.push({ xref: "paper", yref: "paper", x: 1, y: 1, xanchor: "left", yanchor: "bottom", xshift: 12, yshift: 2, showarrow: false, text: column, font: { size: 13, color: c.faint } });
      return {
        data,
        layout: {
          height: names.length * height + top + 54,
          margin: { l: this.margin(names), r: links.length ? 74 : 16, t: top, b: 54 },
          xaxis: this.axis(axis, { range }),
          yaxis: this.rowAxis(names, { gridcolor: c.line }),
          shapes,
          annotations,
        },
      };
    }

    drawCells() {
      const f = this.filters;
      const c = this.colours;
      const metric = METRICS[f.metric.value];
      const rows = only(this.rows("cells"), { metric: f.metric.value, against: f.against.value });
      const datasets = distinct(rows, "dataset");
      const targets = distinct(rows, "target");
      const heats = distinct(rows, "temperature");
      const column = (row) => targets.indexOf(row.target) * (heats.length + 0.25) + heats.indexOf(row.temperature);
      const row = (r) => datasets.indexOf(r.dataset);
      const most = Math.max(...this.rows("cells").map((r) => Math.abs(r.delta_percent)));
      const lost = (r) => r.value < r.rival_value;
      const shapes = rows.map((r) => ({
        type: "rect", layer: "below", x0: column(r) - 0.47, x1: column(r) + 0.47, y0: row(r) - 0.45, y1: row(r) + 0.45,
        fillcolor: c[lost(r) ? "warn" : "accent"], opacity: 0.08 + 0.42 * Math.sqrt(Math.abs(r.delta_percent) / most), line: { width: 0 },
      }));
      for (const r of rows.filter(lost))
        shapes.push({ type: "rect", x0: column(r) - 0.45, x1: column(r) + 0.45, y0: row(r) - 0.42, y1: row(r) + 0.42, line: { width: 1.5, color: c.warn } });
      const chosen = column({ target: f.target.value, temperature: f.temperature.value });
      shapes.push({ type: "line", x0: chosen - 0.47, x1: chosen + 0.47, y0: -0.5, y1: -0.5, line: { width: 3, color: c.ink } });
      const text = (x) => `${number(x, metric.digits)}${metric.unit}`;
      const names = datasets.map((d) => this.nameOf(d));
      const columns = targets.flatMap((target) => heats.map((temperature) => ({ target, temperature })));
      return {
        takeaway: this.takeaway("cells", f.metric.value, f.against.value),
        data: [
          {
            type: "scatter",
            mode: "markers+text",
            x: rows.map(column),
            y: rows.map(row),
            text: rows.map((r) => (lost(r) ? `<b>${signed(r.delta_percent)}</b>` : signed(r.delta_percent))),
            textfont: { size: this.charts.cells.narrow ? 10 : 13, color: c.ink },
            marker: { symbol: "square", size: 30, color: "rgba(0,0,0,0)", line: { width: 0 } },
            customdata: rows.map((r) => [r.target, r.temperature, `${r.target}, ${this.nameOf(r.dataset)}, temperature ${r.temperature}<br>DominoTree@16 ${text(r.value)}, ${r.rival} ${text(r.rival_value)}<br>${signed(r.delta_percent)} %`]),
            hovertemplate: "%{customdata[2]}<extra></extra>",
          },
        ],
        layout: {
          height: names.length * 34 + 66,
          margin: { l: this.margin(names), r: 4, t: 62, b: 4 },
          xaxis: this.axis("", {
            side: "top", showgrid: false, ticks: "", range: [-0.5, Math.max(...rows.map(column)) + 0.5],
            tickvals: columns.map(column), ticktext: columns.map((k) => (column(k) === chosen ? `<b>${k.temperature}</b>` : String(k.temperature))), tickfont: { size: 13, color: c.soft },
          }),
          yaxis: this.rowAxis(names, { showgrid: false, range: [names.length - 0.5, -0.55] }),
          shapes,
          annotations: [
            ...targets.map((target, k) => ({
              x: k * (heats.length + 0.25) + (heats.length - 1) / 2, yref: "paper", y: 1, yanchor: "bottom", yshift: 26, showarrow: false, text: target, font: { size: 13, color: c.ink },
            })),
            ...["temperature", "difference, %"].map((text, k) => ({
              xref: "paper", x: 0, xanchor: "right", xshift: -8, yref: "paper", y: 1, yanchor: "bottom", yshift: k ? 26 : 3, showarrow: false, text, font: { size: 13, color: c.faint },
            })),
          ],
        },
        table: {
          columns: ["Dataset", "Target", "Temperature", "DominoTree@16", "Rival", "Rival's value", "Difference, %"],
          rows: rows.map((r) => [this.nameOf(r.dataset), r.target, r.temperature, text(r.value), r.rival, text(r.rival_value), signed(r.delta_percent)]),
        },
      };
    }

    takeaway(name, ...keys) {
      return this.data.charts[name].takeaways[keys.join("|")] || "";
    }

    drawMethods() {
      const f = this.filters;
      const name = f.metric.value;
      const metric = METRICS[name];
      const rows = only(this.rows("methods"), { target: f.target.value, temperature: f.temperature.value });
      const datasets = distinct(rows, "dataset");
      const text = (r) => `${number(r[name], metric.digits)}${metric.unit}${metric.word || ""}`;
      const series = Object.entries(MARKS).map(([method, mark]) => ({
        name: method,
        mark,
        points: only(rows, { method }).map((r) => ({
          x: r[name],
          y: datasets.indexOf(r.dataset),
          text: `<b>${method}</b> on ${this.nameOf(r.dataset)}: ${text(r)}<br>speed-up ${number(r.speedup_over_ar)}×, τ ${number(r.tau)}, ${number(r.tokens_per_second, 0)} tokens/s, ${r.prompts} prompts`,
        })),
      }));
      const links = datasets.map((dataset, y) => {
        const here = only(rows, { dataset });
        const ours = here.find((r) => r.method === OURS)[name];
        const rival = best(here.filter((r) => r.method !== OURS && r.method !== "AR"), name);
        const delta = 100 * (ours / rival[name] - 1);
        return { y, from: rival[name], to: ours, delta, text: `${signed(delta)} %` };
      });
      const most = Math.max(...rows.map((r) => r[name]));
      const figure = this.dots({ names: datasets.map((d) => this.nameOf(d)), series, links, axis: metric.axis, range: [name === "tokens_per_second" ? 0 : 0.7, most * 1.04], column: "vs best", top: this.charts.cells.element.offsetTop === this.charts.methods.element.offsetTop ? 62 : 24, narrow: this.charts.methods.narrow });
      return {
        ...figure,
        takeaway: this.takeaway("methods", f.target.value, f.temperature.value, name),
        legend: Object.entries(MARKS).reverse().map(([method, mark]) => [mark, method === "AR" ? "AR (plain decoding)" : method]),
        table: {
          columns: ["Dataset", "Method", "Speed-up over AR, ×", "τ", "Tokens/s", "Prompts"],
          rows: rows.map((r) => [this.nameOf(r.dataset), r.method, number(r.speedup_over_ar), number(r.tau), number(r.tokens_per_second, 1), r.prompts]),
        },
      };
    }

    drawIntervals() {
      const f = this.filters;
      const c = this.colours;
      const chart = this.charts.intervals;
      const all = only(this.rows("intervals"), { target: f.target.value, temperature: f.temperature.value });
      const rivals = f.rival.value === "all" ? RIVALS : [f.rival.value];
      const of = (rival) => all.filter((r) => r.ratio.endsWith(` / ${rival}`));
      const scopes = distinct(all, "scope");
      const rollups = ["Math", "Code", "Chat", "Overall"];
      const sets = scopes.filter((s) => !rollups.includes(s));
      const order = [...sets, ...scopes.filter((s) => rollups.includes(s))];
      const at = (scope) => order.indexOf(scope) + (rollups.includes(scope) ? 0.35 : 0);
      const names = order.map((s) => this.nameOf(s));
      const shownRows = rivals.flatMap(of);
      const low = Math.min(0, ...shownRows.map((r) => r.low_95));
      const high = Math.max(0, ...shownRows.map((r) => r.high_95));
      const pad = 0.04 * (high - low);
      const across = chart.width < 820 ? (chart.width < 560 ? 1 : 2) : 4;
      const columns = Math.min(across, rivals.length);
      const lines = Math.ceil(rivals.length / columns);
      const left = this.margin(names);
      const panel = 318;
      const inner = chart.width - left - 12;
      const gap = 26 / inner;
      const wide = (1 - gap * (columns - 1)) / columns;
      const pitch = panel + 88;
      const height = lines * pitch - 10;
      const tall = panel / height;
      const layout = { height, margin: { l: left, r: 12, t: 0, b: 0 }, shapes: [], annotations: [] };
      const data = [];
      const kinds = [
        ["above", (r) => r.low_95 > 0, { symbol: "circle", colour: "accent", size: 10 }],
        ["includes", (r) => r.low_95 <= 0 && r.high_95 >= 0, { symbol: "circle-open", colour: "faint", size: 10 }],
        ["below", (r) => r.high_95 < 0, { symbol: "diamond", colour: "warn", size: 12 }],
      ];
      rivals.forEach((rival, k) => {
        const [line, column] = [Math.floor(k / columns), k % columns];
        const n = k ? String(k + 1) : "";
        const top = 1 - (line * pitch + 24) / height;
        const x = [column * (wide + gap), column * (wide + gap) + wide];
        layout[`xaxis${n}`] = this.axis(`Difference from ${rival} (%)`, { domain: x, anchor: `y${n}`, range: [low - pad, high + pad], ticksuffix: "", nticks: 7 });
        layout[`yaxis${n}`] = this.rowAxis(names, {
          domain: [Math.max(0, top - tall), top], anchor: `x${n}`, tickvals: order.map(at), range: [order.length - 0.1, -0.6], showticklabels: column === 0, gridcolor: c.line,
        });
        layout.shapes.push({ type: "line", xref: `x${n}`, yref: `y${n}`, x0: 0, x1: 0, y0: -0.6, y1: order.length - 0.1, line: { width: 1.5, color: c.ink }, layer: "between" });
        layout.annotations.push({ xref: "paper", yref: "paper", x: x[0], y: top, xanchor: "left", yanchor: "bottom", yshift: 4, showarrow: false, text: `<b>against ${rival}</b>`, font: { size: 13, color: c.ink } });
        for (const [, test, mark] of kinds) {
          const rows = of(rival).filter(test);
          data.push({
            type: "scatter", mode: "markers", xaxis: `x${n}`, yaxis: `y${n}`,
            x: rows.map((r) => r.delta_percent), y: rows.map((r) => at(r.scope)),
            error_x: { type: "data", symmetric: false, array: rows.map((r) => r.high_95 - r.delta_percent), arrayminus: rows.map((r) => r.delta_percent - r.low_95), color: c[mark.colour], thickness: 2, width: 0 },
            marker: this.marker(mark),
            customdata: rows.map((r) => `<b>${this.nameOf(r.scope)}</b>, against ${rival}: ${signed(r.delta_percent)} %<br>95 % interval ${signed(r.low_95)} to ${signed(r.high_95)} %<br>${r.metric}, ${r.prompts} prompts`),
            hovertemplate: "%{customdata}<extra></extra>",
          });
        }
      });
      return {
        data,
        layout,
        takeaway: this.takeaway("intervals", f.target.value, f.temperature.value, f.rival.value),
        legend: [
          [kinds[0][2], "whole interval above zero: DominoTree@16 ahead"],
          [kinds[1][2], "includes zero"],
          [kinds[2][2], "whole interval below zero: behind"],
        ],
        table: {
          columns: ["Prompts of", "Ratio", "Metric", "Prompts", "Difference, %", "Low, %", "High, %"],
          rows: shownRows.map((r) => [this.nameOf(r.scope), r.ratio, r.metric, r.prompts, signed(r.delta_percent), signed(r.low_95), signed(r.high_95)]),
        },
      };
    }

    drawLadder() {
      const f = this.filters;
      const name = f.ladder.value;
      const metric = METRICS[name];
      const rows = only(this.rows("ladder"), { setting: f.setting.value });
      const drawn = rows.filter((r) => r.method in LADDER);
      const datasets = Object.keys(this.data.names).filter((d) => drawn.some((r) => r.dataset === d));
      const series = Object.entries(LADDER).map(([method, mark]) => ({
        name: mark.title,
        mark,
        points: only(drawn, { method }).map((r) => ({
          x: r[name],
          y: datasets.indexOf(r.dataset),
          text: `<b>${mark.title}</b> on ${this.nameOf(r.dataset)}: τ ${number(r.tau)}, ${number(r.tokens_per_second, 0)} tokens/s<br>draft ${number(r.draft_ms)} + build ${number(r.build_ms)} + verify ${number(r.verify_ms)} + commit ${number(r.commit_ms)} ms, ${r.records} prompts`,
        })),
      }));
      const value = (dataset, method) => drawn.find((r) => r.dataset === dataset && r.method === method)[name];
      const links = datasets.map((dataset, y) => {
        const [from, to] = [value(dataset, "marg@16"), value(dataset, "dominotree@16")];
        const delta = 100 * (to / from - 1);
        return { y, from, to, delta: name === "build_ms" ? -delta : delta, text: `${signed(delta)} %` };
      });
      const values = drawn.map((r) => r[name]);
      const figure = this.dots({ names: datasets.map((d) => this.nameOf(d)), series, links, axis: metric.axis, range: [0, Math.max(...values) * 1.05], column: "vs marg.", narrow: this.charts.ladder.narrow });
      return {
        ...figure,
        takeaway: this.takeaway("ladder", f.setting.value, name),
        legend: Object.values(LADDER).map((mark) => [mark, mark.title]),
        table: {
          columns: ["Dataset", "Scores", "τ", "Tokens/s", "Draft, ms", "Build, ms", "Verify, ms", "Commit, ms", "Prompts"],
          rows: rows.map((r) => [this.nameOf(r.dataset), LADDER[r.method]?.title || "AR (plain decoding)", number(r.tau), number(r.tokens_per_second, 1), ...Object.keys(STAGES).map((s) => (r.method === "ar" ? null : number(r[s]))), r.records]),
        },
      };
    }

    drawOwn() {
      const rows = this.rows("own").length ? this.settleOwn() : [];
      if (!rows.length) return { empty: "No runs of our own are here yet: they come from assets/traces and assets/eval/tau.csv.", table: { columns: [], rows: [] } };
      const first = rows[0];
      const key = (r) => (r.view === null ? `${r.method} on its own drafter` : r.method);
      const title = (name) => {
        const [method, ...rest] = name.split(" ");
        return [this.data.methods[method] || method, ...rest].join(" ");
      };
      const machines = distinct(rows.filter((r) => r.machine), "machine").join("; ");
      const dates = distinct(rows.filter((r) => r.date), "date").sort();
      const when = dates.length > 1 ? `${dates[0]} to ${dates.at(-1)}` : dates[0];
      const size = first.pair === "default" ? "SmolLM2-135M" : first.target;
      const drafter = rows.find((r) => r.view !== null).drafter;
      const how = first.runs === "evaluation sets" ? "accepted along the target's own texts (no clock involved), 95 % bootstrap intervals over prompts" : "";
      this.charts.own.source.textContent = `Our run: ${[size, drafter, machines, when, how].filter(Boolean).join(", ")}. Another model, drafter and text than the published figures: compare the order, not the height.`;
      const sets = distinct(rows, "set");
      const of = (set, method) => rows.find((r) => r.set === set && key(r) === method);
      const twin = rows.some((r) => key(r) === "ddtree") && sets.every((s) => of(s, "ddtree")?.tau === of(s, "marginal")?.tau);
      const known = distinct(rows.map((r) => ({ key: key(r) })), "key").filter((m) => !(twin && m === "ddtree"));
      const order = Object.keys(OWN);
      const place = (name) => (name in OWN ? order.indexOf(name) + 1 : 0.5);
      const methods = known.sort((a, b) => place(a) - place(b));
      const marks = Object.fromEntries(methods.map((m) => [m, OWN[m] || OWN_PLAIN[m.split(" ")[0]] || OWN.ddtree]));
      const spread = rows.some((r) => r.tau_low !== null); // intervals would cover each other on one line
      const shift = (method) => (spread ? (methods.length - 1 - 2 * methods.indexOf(method)) * (0.4 / methods.length) : 0);
      const series = methods.map((method) => ({
        name: title(method),
        mark: marks[method],
        points: rows.filter((r) => key(r) === method).map((r) => ({
          x: r.tau,
          y: sets.indexOf(r.set) + shift(method),
          low: r.tau_low,
          high: r.tau_high,
          text: `<b>${title(method)}</b>, ${r.set}: τ ${number(r.tau)}${r.tau_low === null ? "" : ` [${number(r.tau_low)}, ${number(r.tau_high)}]`}<br>our run, ${size}, ${r.prompts === 1 ? "1 prompt" : `${r.prompts} prompts`}${r.tokens_per_second === null ? "" : `, ${number(r.tokens_per_second, 1)} tokens/s`}`,
        })),
      }));
      const links = sets
        .filter((s) => of(s, "marginal") && of(s, "dominotree"))
        .map((s) => {
          const [from, to] = [of(s, "marginal").tau, of(s, "dominotree").tau];
          const delta = 100 * (to / from - 1);
          return { y: sets.indexOf(s), from, to, delta, hidden: spread, text: `${signed(delta)} %` };
        });
      const figure = this.dots({ names: sets, series, links, axis: METRICS.tau.axis, range: [0.7, Math.max(...rows.map((r) => r.tau_high ?? r.tau)) * 1.06], column: links.length ? "vs marg." : "", height: spread ? 13 * methods.length + 8 : Math.max(34, Math.min(90, 272 / sets.length)), narrow: this.charts.own.narrow });
      const o = this.own;
      return {
        ...figure,
        takeaway: this.takeaway("own", ...this.ownNames.map((n) => o[n].value)),
        legend: [...methods].reverse().map((m) => [marks[m], title(m) + (twin && m === "marginal" ? " = DDTree on these logits" : "")]),
        table: {
          columns: ["Texts", "Method", "Nodes", "Temperature", "Prompts", "τ", "Low", "High", "Tokens/s", "Drafter", "Machine", "Date"],
          rows: rows.map((r) => [r.set, title(key(r)), r.budget, r.temperature, r.prompts, number(r.tau), r.tau_low === null ? null : number(r.tau_low), r.tau_high === null ? null : number(r.tau_high), r.tokens_per_second === null ? null : number(r.tokens_per_second, 1), r.drafter, r.machine, r.date]),
        },
      };
    }

    drawWidth() {
      const chart = this.charts.width;
      const name = this.filters.width.value;
      const metric = METRICS[name];
      const rows = this.rows("width");
      const steps = distinct(rows, "top_m").sort((a, b) => (a === "full" ? 1 : b === "full" ? -1 : a - b));
      const c = this.colours;
      const legend = [];
      const data = Object.entries(WIDTHS).map(([dataset, mark]) => {
        const here = steps.map((m) => rows.find((r) => r.dataset === dataset && r.top_m === m)).filter(Boolean);
        const full = here.find((r) => r.top_m === "full")[name];
        const delta = (r) => 100 * (r[name] / full - 1);
        legend.push([mark, this.nameOf(dataset)]);
        return {
          type: "scatter", mode: "lines+markers", x: here.map((r) => steps.indexOf(r.top_m)), y: here.map(delta),
          line: { color: c[mark.colour], width: 2, dash: mark.dash }, marker: this.marker(mark), cliponaxis: false,
          customdata: here.map((r) => `<b>${this.nameOf(dataset)}</b>, ${r.top_m === "full" ? "full vocabulary" : `top ${r.top_m}`}: ${number(r[name], metric.digits === 0 ? 1 : metric.digits)}${metric.word}<br>${signed(delta(r))} % from the full vocabulary, ${r.records} prompts`),
          hovertemplate: "%{customdata}<extra></extra>",
        };
      });
      return {
        data,
        layout: {
          height: chart.narrow ? 320 : 422,
          margin: { l: 58, r: 16, t: 12, b: 54 },
          xaxis: this.axis("Candidates kept at each level (M)", { tickvals: steps.map((_, k) => k), ticktext: steps.map(String), range: [-0.3, steps.length - 0.7], showgrid: false }),
          yaxis: this.axis(`${{ tau: "τ", tokens_per_second: "Tokens/s", build_ms: "Build time" }[name]}, % from full vocabulary`, { nticks: 6 }),
          shapes: [
            { type: "line", xref: "paper", x0: 0, x1: 1, y0: 0, y1: 0, line: { width: 1.5, color: c.ink }, layer: "between" },
            { type: "rect", yref: "paper", x0: steps.indexOf(64) - 0.28, x1: steps.indexOf(64) + 0.28, y0: 0, y1: 1, fillcolor: c.chip, line: { width: 0 }, layer: "below" },
          ],
          annotations: [{ x: steps.indexOf(64), yref: "paper", y: 1, yanchor: "top", showarrow: false, text: "default", font: { size: 13, color: c.faint } }],
        },
        takeaway: this.takeaway("width", name),
        legend,
        table: {
          columns: ["Dataset", "M", "τ", "Tokens/s", "Build, ms", "Prompts"],
          rows: rows.map((r) => [this.nameOf(r.dataset), r.top_m, number(r.tau), number(r.tokens_per_second, 1), number(r.build_ms), r.records]),
        },
      };
    }

    drawStages() {
      const f = this.filters;
      const c = this.colours;
      const chart = this.charts.stages;
      const method = f.stages.value;
      const heat = only(this.rows("stages"), { temperature: f.heat.value });
      const rows = only(heat, { method });
      const datasets = Object.keys(this.data.names).filter((d) => rows.some((r) => r.dataset === d));
      const builders = Object.keys(BUILDERS);
      const y = (r) => datasets.indexOf(r.dataset) + (builders.indexOf(r.setting) ? 0.21 : -0.21);
      const theme = this.resolved();
      const total = (r) => Object.keys(STAGES).reduce((sum, s) => sum + r[s], 0);
      const partial = (r) => r.verify_ms === 0;
      const labels = rows.map((r) => [y(r), builders.indexOf(r.setting) ? "Python" : `${this.nameOf(r.dataset)} · graph`]).sort((a, b) => a[0] - b[0]);
      const left = this.margin(labels.map((l) => l[1]));
      const most = Math.max(...rows.map(total));
      const scale = (chart.width - left - 78) / most;
      const data = Object.entries(STAGES).map(([stage, title], k) => {
        const here = rows.filter((r) => r[stage] > 0);
        return {
          type: "bar", orientation: "h", name: title, x: here.map((r) => r[stage]), y: here.map(y), width: 0.36,
          marker: { color: STAGE_COLOURS[theme][k], line: { width: 1, color: c.bg } },
          text: here.map((r) => (r[stage] * scale > 30 ? number(r[stage], 1) : "")),
          textposition: "inside", insidetextanchor: "middle", textangle: 0, constraintext: "none", textfont: { size: 12, color: STAGE_INKS[theme][k] },
          customdata: here.map((r) => `<b>${title} ${number(r[stage])} ms</b> of ${partial(r) ? "a round" : `${number(total(r))} ms`}<br>${this.nameOf(r.dataset)}, ${BUILDERS[r.setting]} builder, τ ${number(r.tau)}, ${number(r.tokens_per_second, 0)} tokens/s`),
          hovertemplate: "%{customdata}<extra></extra>",
        };
      });
      const square = (k) => h("span.swatch", { style: `background:${STAGE_COLOURS[theme][k]}` });
      return {
        data,
        layout: {
          height: datasets.length * 44 + 70,
          margin: { l: left, r: 78, t: 8, b: 54 },
          barmode: "stack",
          xaxis: this.axis("Time per round (ms)", { range: [0, most] }),
          yaxis: this.rowAxis([], { tickvals: labels.map((l) => l[0]), ticktext: labels.map((l) => l[1]), range: [datasets.length - 0.5, -0.5], showgrid: false }),
          annotations: rows.map((r) => ({ x: total(r), y: y(r), xanchor: "left", xshift: 6, showarrow: false, text: partial(r) ? "draft only" : `${number(total(r), 1)} ms`, font: { size: 13, color: c.soft } })),
        },
        takeaway: this.takeaway("stages", method, f.heat.value),
        legend: Object.values(STAGES).map((title, k) => [square(k), title]),
        table: {
          columns: ["Dataset", "Builder", "Method", "τ", "Tokens/s", "Draft, ms", "Build, ms", "Verify, ms", "Commit, ms", "Prompts"],
          rows: [...rows, ...only(heat, { method: "ar" })].map((r) => [this.nameOf(r.dataset), BUILDERS[r.setting], { ar: "AR (plain decoding)", chain: "Domino chain" }[r.method] || OURS, number(r.tau), number(r.tokens_per_second, 1), ...Object.keys(STAGES).map((s) => (r[s] > 0 ? number(r[s]) : null)), r.records]),
        },
      };
    }

    // ---- surroundings

    resized() {
      if (this.data && this.root.clientWidth && this.root.clientWidth !== this.width) this.renderAll();
    }

    resolved() {
      return this.themeName === "auto" ? (this.media.matches ? "dark" : "light") : this.themeName;
    }

    theme(name) {
      this.themeName = name;
      this.root.dataset.theme = this.resolved();
      this.renderAll();
    }

    /** The filters, and where the charts stand: for links and tests. */
    state() {
      const values = (choices) => Object.fromEntries(Object.entries(choices || {}).map(([name, choice]) => [name, choice.value]));
      return { filters: values(this.filters), own: values(this.own) };
    }

    setState({ filters = {}, own = {} } = {}) {
      for (const [name, value] of Object.entries(filters)) this.filters[name]?.set(value, true);
      for (const [name, value] of Object.entries(own)) {
        this.own[name]?.set(value, true);
        this.settleOwn();
      }
      this.renderAll();
    }

    destroy() {
      cancelAnimationFrame(this.frame);
      this.observer.disconnect();
      this.media.removeEventListener("change", this.onMedia);
      for (const chart of Object.values(this.charts || {})) Plotly.purge(chart.plot);
      this.root.remove();
    }
  }

  const mount = (element, options) => new Benchmarks(element, options);

  /** Into a page that has neither the style nor the figures yet: `styles` and `data` are their addresses. The theme
      follows the class "dark" of the page's body. */
  async function open(element, { styles, data }) {
    const theme = () => (document.body.classList.contains("dark") ? "dark" : "light");
    const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href: styles });
    const styled = new Promise((ready) => (link.onload = link.onerror = ready));
    document.head.append(link);
    const shown = mount(element, { theme: theme() });
    new MutationObserver(() => shown.theme(theme())).observe(document.body, { attributeFilter: ["class"] });
    try {
      const [answer] = await Promise.all([fetch(data), styled]);
      const found = await answer.json();
      if (!answer.ok) throw new Error(found.error);
      shown.load(found);
    } catch (error) {
      shown.setError(error instanceof TypeError ? "The server does not answer: check that it is still running." : error.message);
    }
    return shown;
  }

  window.DominoBenchmarks = { mount, open };
})();
