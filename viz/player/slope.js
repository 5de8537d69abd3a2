/* Slope chart of one pop: every candidate's place by base logit on the left, by corrected score on the right.

   The best places are rows that can be read, one below the other; all further ones share a narrow band underneath. Rows
   are lists in the page, lines an SVG between them. Token text reaches the page as text nodes only. */
(function (DP) {
  "use strict";
  const { h, number, percent, missing, DASH } = DP.parts;

  const SVG = "http://www.w3.org/2000/svg";
  const ROW = 26; // px of a place that can be read
  const BAND = 44; // px that all further places share
  const WORDS = ["", "first", "second", "third"];
  const nth = (rank) => (rank < 3 ? WORDS[rank + 1] : `${rank + 1}${rank % 100 >= 10 && rank % 100 <= 12 ? "th" : ["st", "nd", "rd"][rank % 10] || "th"}`);
  const signed = (x) => (missing(x) ? DASH : `${x > 0 ? "+" : ""}${number(x)}`);

  /** What became of a candidate, in one sentence. */
  function sentence(run, row, found) {
    const where = (rank) => (rank < found.exact ? nth(rank) : `below ${nth(found.exact - 1)}`);
    const change = row.delta === null ? `${nth(row.place)}, no correction` : `${nth(row.place)} by L, ${where(row.rank)} after ΔL ${signed(row.delta)}`;
    return `${run.label(row.token)}: ${change}; p ${percent(row.before)} → ${percent(row.after)}${row.pushed ? "; pushed" : ""}`;
  }

  const move = (row, found) => {
    if (row.rank >= found.exact || row.place === row.rank) return "";
    return row.rank < row.place ? `▲ ${row.place - row.rank}` : `▼ ${row.rank - row.place}`;
  };

  /**
   * `found`: Build.candidates(); `chosen`: the token that the target chose here, if it was asked; `height`: px to fill.
   * Returns an element.
   */
  function slope(run, found, { chosen = null, height = 400 } = {}) {
    const most = Math.max(4, Math.floor((height - BAND) / ROW));
    const shown = found.count <= most + 1 ? found.count : most;
    const band = found.count > shown;
    const deep = Math.max(1, found.count - shown);
    const y = (place) => (place < shown ? ROW * (place + 0.5) : ROW * shown + 10 + (BAND - 18) * ((place - shown + 0.5) / deep));
    const bottom = ROW * shown + (band ? BAND : 0);
    const after = (row) => (row.rank < found.exact ? row.rank : Math.max(row.rank, shown + deep * 0.5)); // short form: somewhere below
    const kind = (row) => [row.token === chosen ? "chosen" : row.pushed ? "pushed" : "rest", row.node !== null ? "node" : ""].filter(Boolean);
    const classes = (row) => kind(row).map((name) => `.slope-${name}`).join("");

    const left = found.rows.filter((row) => row.place < shown);
    const right = found.ranked.filter((row) => row.rank < shown);
    const tail = (rows, name, rest) => {
      const mass = rows.map((row) => row[name]).filter((p) => p !== null);
      const sum = mass.reduce((total, p) => total + Math.exp(p), 0) + (rest === null ? 0 : Math.exp(rest));
      return percent(Math.log(sum)).replace(" ", "\u00a0");
    };
    const cell = (name, text, more) => h(`span.slope-${name}`, more || null, text);
    const before = h(
      "ol.slope-list.slope-before",
      { "aria-hidden": "true" },
      ...left.map((row) => h(`li.slope-row${classes(row)}`, { "data-token": row.token, "data-tip": sentence(run, row, found) }, cell("token", run.label(row.token)), cell("p", percent(row.before)))),
      band ? h("li.slope-tail", null, `places ${shown + 1}–${found.count}: ${tail(found.rows.filter((r) => r.place >= shown), "before", found.leftBefore)}`) : null,
    );
    const line = found.pushed < shown && found.pushed > 0 ? found.pushed : null; // pushed above, not pushed below
    if (!found.corrected) return bars(run, found, { chosen, right, line, classes, tail: band ? `places ${shown + 1}–${found.count}: ${tail(found.ranked.filter((r) => r.rank >= shown), "after", found.leftAfter)}` : "" });
    const behind = h(
      "ol.slope-list.slope-after",
      { "aria-hidden": "true" },
      ...right.map((row) =>
        h(
          `li.slope-row${classes(row)}${row.rank === line ? ".slope-cut" : ""}`,
          { "data-token": row.token, "data-tip": sentence(run, row, found) },
          cell("p", percent(row.after)),
          cell("token", run.label(row.token)),
          cell("delta", row.delta === null ? "" : signed(row.delta)),
          cell("move", move(row, found)),
        ),
      ),
      band ? h("li.slope-tail", null, `places ${shown + 1}–${found.count}: ${tail(found.ranked.filter((r) => r.rank >= shown), "after", found.leftAfter)}`) : null,
    );

    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("class", "dp-slope-lines");
    svg.setAttribute("viewBox", `0 0 100 ${bottom}`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    svg.style.height = `${bottom}px`;
    const order = (row) => (row.token === chosen ? 2 : row.pushed ? 1 : 0);
    for (const row of [...found.rows].sort((a, b) => order(a) - order(b))) {
      const path = document.createElementNS(SVG, "path");
      const [a, b] = [y(row.place), y(after(row))];
      path.setAttribute("d", `M0 ${a.toFixed(1)}C38 ${a.toFixed(1)} 62 ${b.toFixed(1)} 100 ${b.toFixed(1)}`);
      path.setAttribute("class", kind(row).map((name) => `dp-slope-${name}`).join(" "));
      path.dataset.token = row.token;
      path.dataset.tip = sentence(run, row, found);
      svg.append(path);
    }
    const chart = h("div.slope", { role: "img", "aria-label": summary(run, found, chosen) }, before, h("div.slope-middle", null, svg), behind);
    chart.style.setProperty("--dp-slope-row", `${ROW}px`);
    let over = null;
    const mark = (token) => {
      if (token === over) return;
      over = token;
      chart.classList.toggle("dp-slope-over", token !== null);
      for (const element of chart.querySelectorAll("[data-token]")) element.classList.toggle("dp-slope-on", element.dataset.token === token);
    };
    chart.addEventListener("pointerover", (event) => mark(event.target.closest("[data-token]")?.dataset.token ?? null));
    chart.addEventListener("pointerleave", () => mark(null));
    return chart;
  }

  /** Without a correction there is one order: the best candidates as bars. */
  function bars(run, found, { chosen, right, line, classes, tail }) {
    const bar = (p) => h("span.slope-bar", null, h("i", { style: `width:${100 * Math.exp(Math.min(0, p))}%` }));
    const row = (r) => h(`li.slope-row${classes(r)}${r.rank === line ? ".slope-cut" : ""}`, { "data-tip": sentence(run, r, found) }, h("span.slope-token", null, run.label(r.token)), bar(r.after), h("span.slope-p", null, percent(r.after)), h("span.slope-note", null, r.token === chosen ? "target’s choice" : ""));
    const list = h("ol.slope-list.slope-alone", { "aria-hidden": "true" }, ...right.map(row), tail ? h("li.slope-tail", null, tail) : null);
    const chart = h("div.slope-single", { role: "img", "aria-label": summary(run, found, chosen) }, list);
    chart.style.setProperty("--dp-slope-row", `${ROW}px`);
    return chart;
  }

  /** The candidates that gain and lose most probability by the correction; null where none changes by 0.1 %. */
  function movers(found) {
    const gain = (row) => Math.exp(row.after) - Math.exp(row.before ?? -Infinity);
    const rows = found.corrected ? [...found.rows].sort((a, b) => gain(b) - gain(a)) : [];
    const [up, down] = [rows[0], rows[rows.length - 1]];
    return { up: up && gain(up) > 0.001 ? up : null, down: down && gain(down) < -0.001 ? down : null };
  }

  /** The chart in words. */
  function summary(run, found, chosen) {
    const [first] = found.ranked;
    const head = `${found.count} candidates. First ${found.corrected ? "after the correction" : "by score"}: ${sentence(run, first, found)}.`;
    const { up, down } = movers(found);
    const parts = [head];
    if (up && up !== first) parts.push(`Gains most: ${sentence(run, up, found)}.`);
    if (down) parts.push(`Loses most: ${sentence(run, down, found)}.`);
    const row = found.rows.find((r) => r.token === chosen);
    if (row) parts.push(`The target chose ${sentence(run, row, found)}.`);
    return parts.join(" ");
  }

  /** The same as a table: every candidate with its numbers, best first. */
  function slopeTable(run, found, { chosen = null } = {}) {
    const place = (rank) => (rank < found.exact ? String(rank + 1) : `> ${found.exact}`);
    return h(
      "table.nodes.slope-table",
      null,
      h("caption", null, `p is over ${found.over === "vocabulary" ? "the whole vocabulary" : `these ${found.count} candidates`}${found.left ? `; ${found.left} of them were not recorded` : ""}`),
      h("thead", null, h("tr", null, ...["Place", "by L", "Token", "L", "ΔL", "L + ΔL", "p before", "p after", "log p", ""].map((name) => h("th", { scope: "col" }, name)))),
      h(
        "tbody",
        null,
        ...found.ranked.map((row) =>
          h(
            row.token === chosen ? "tr.yes" : "tr",
            null,
            h("td", null, place(row.rank)),
            h("td", null, String(row.place + 1)),
            h("th", { scope: "row" }, run.label(row.token)),
            h("td", null, number(row.L)),
            h("td", null, signed(row.delta)),
            h("td", null, number(row.delta === null ? row.L : row.L + row.delta)),
            h("td", null, percent(row.before)),
            h("td", null, percent(row.after)),
            h("td", null, number(row.after)),
            h("td", null, [row.pushed ? "pushed" : "", row.token === chosen ? "target’s choice" : ""].filter(Boolean).join(", ")),
          ),
        ),
      ),
    );
  }

  Object.assign(DP.parts, { slope, slopeTable, movers, nth, signed });
})((window.DominoPlayer = window.DominoPlayer || {}));
