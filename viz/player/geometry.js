/* From lanes to pixels: where marks, labels, chips and connectors of one round go. Knows nothing of Plotly.

   A node's mark sits at the left end of its column, its label right of it, connectors to its children in the strip
   at the column's right end (the bus). Cells are never shared (viz/layout.py), so boxes cannot meet as long as a
   label stays inside its cell: labels are cut to their column's width and, where lanes are too close for 14 px,
   left out. With room, tokens are drawn as chips centred on their line; else as dots with the label above the line. */
(function (DP) {
  "use strict";
  const { ANCHOR, BONUS, BITS } = DP.parts;

  const FONT = 14;
  const SPINE_FONT = 17;
  const FAMILY = '-apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Noto Sans", sans-serif';
  const SIZES = {
    gap: 9, // mark to label
    pad: 9, // label to chip end
    bus: 20, // strip for connectors
    chip: 24,
    spineChip: 30,
    chipLane: 29, // lanes at least this far apart: chips
    labelHeight: 17, // line above which a label fits
    edge: 18, // free border of the figure
    axis: 22, // depth numbers
  };

  const context = document.createElement("canvas").getContext("2d");
  const widths = new Map();
  /** Width in px of a label; `bold` for the spine. Cached. */
  function textWidth(text, size, bold) {
    const key = `${bold ? "b" : "r"}${size}${text}`;
    let width = widths.get(key);
    if (width === undefined) {
      context.font = `${bold ? 600 : 400} ${size}px ${FAMILY}`;
      width = context.measureText(text).width;
      if (widths.size > 20000) widths.clear();
      widths.set(key, width);
    }
    return width;
  }

  /** `text` cut with "…" to at most `room` px; "" if not even one character fits. */
  function fit(text, size, bold, room) {
    if (textWidth(text, size, bold) <= room) return text;
    const characters = Array.from(text);
    let low = 0;
    let high = characters.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (textWidth(characters.slice(0, middle).join("") + "…", size, bold) <= room) low = middle;
      else high = middle - 1;
    }
    return low ? characters.slice(0, low).join("") + "…" : "";
  }

  /** Largest cap c with Σ min(want, c) ≤ room. */
  function capFor(wants, room) {
    let low = 0;
    let high = Math.max(0, ...wants);
    if (wants.reduce((a, b) => a + b, 0) <= room) return high;
    for (let k = 0; k < 24; k++) {
      const middle = (low + high) / 2;
      if (wants.reduce((sum, w) => sum + Math.min(w, middle), 0) <= room) low = middle;
      else high = middle;
    }
    return low;
  }

  /** All points of a round: nodes 0 … n−1, then the anchor (index n) and the bonus token (index n+1). */
  function points(run, k) {
    const round = run.rounds[k];
    const layout = run.layout[k];
    const n = layout.x.length;
    const bonusDepth = round.path.length + 1;
    const spine = new Uint8Array(n + 2);
    layout.spine.forEach((node) => (spine[node] = 1));
    spine[n] = spine[n + 1] = 1;
    const same = layout.spine[bonusDepth - 1]; // a node of another tree that carries the bonus token
    const depth = [...layout.x, 0, bonusDepth];
    const text = round.nodes.token.map((t) => run.label(t));
    text.push(run.label(round.anchor), run.label(round.bonus));
    const parent = round.nodes.parent.map((p) => (p === ANCHOR ? n : p));
    parent.push(-1, round.path.length ? round.path[round.path.length - 1] : n);
    const verified = round.nodes.trees.map((bits) => bits & BITS.verified);
    return { n, depth, spine, text, parent, verified, bonusNode: same === undefined ? -1 : same };
  }

  /** Geometry of round k in a figure of width × height px; `narrow`: top-down, all branches on one side. */
  function geometry(run, k, width, height, narrow) {
    const p = points(run, k);
    return narrow ? topDown(run.layout[k], p, width) : leftToRight(run.layout[k], p, width, height);
  }

  function finish(p, fields) {
    const { n } = p;
    const index = (node) => (node === ANCHOR ? n : node === BONUS ? n + 1 : node);
    return { ...p, ...fields, index };
  }

  /** Crowded: lanes of the tree that was verified get the room that labels need, the others what is left. */
  function spread(place, layout, p, lowest, highest, inside) {
    const own = new Set(layout.y.filter((_, i) => p.verified[i]));
    const order = [];
    for (let l = highest; l >= lowest; l--) order.push(l);
    const full = SIZES.labelHeight + 1;
    const least = 5;
    const wants = order.map((l) => (l === 0 ? 25 : own.has(l) ? full : least));
    if (order.indexOf(0) + 1 < order.length) wants[order.indexOf(0) + 1] = Math.max(28, full); // the spine's marks are larger
    const sum = wants.reduce((a, b) => a + b, 0);
    const extra = (inside - 6 - sum) / Math.max(1, order.length);
    const scale = extra < 0 ? (inside - 6) / sum : 1;
    let y = 4;
    order.forEach((l, k) => {
      y += scale < 1 ? wants[k] * scale : wants[k] + extra;
      place.set(l, y);
    });
  }

  /** Which labels fit above their lines: `drawn(i)` tells which points stand in the way. Marks 1 for each that does. */
  function legible(g, drawn) {
    const shown = new Uint8Array(g.n + 2).fill(1);
    if (!g.crowded) return shown;
    const columns = new Map();
    for (let i = 0; i < g.n + 2; i++) {
      if (!drawn(i)) continue;
      if (!columns.has(g.depth[i])) columns.set(g.depth[i], []);
      columns.get(g.depth[i]).push(i);
    }
    for (const column of columns.values()) {
      column.sort((a, b) => g.y[a] - g.y[b]);
      column.forEach((i, k) => {
        const size = g.spine[i] ? 22 : SIZES.labelHeight;
        if (g.y[i] - (k ? g.y[column[k - 1]] : 0) < size) shown[i] = 0;
      });
    }
    return shown;
  }

  function leftToRight(layout, p, width, height) {
    const total = p.n + 2;
    const columns = Math.max(...p.depth) + 1;
    const wants = new Array(columns).fill(0);
    for (let i = 0; i < total; i++) {
      const w = textWidth(p.text[i], p.spine[i] ? SPINE_FONT : FONT, p.spine[i]);
      if (w > wants[p.depth[i]]) wants[p.depth[i]] = w;
    }
    const fixed = SIZES.gap + SIZES.pad + SIZES.bus;
    const room = width - 2 * SIZES.edge - columns * fixed;
    const cap = Math.max(12, capFor(wants, room));
    const used = wants.map((w) => Math.min(w, cap));
    const spare = Math.min(60, Math.max(0, (room - used.reduce((a, b) => a + b, 0)) / columns));
    const left = [];
    let at = SIZES.edge;
    for (let d = 0; d < columns; d++) {
      left.push(at);
      at += used[d] + fixed + spare;
    }
    left.push(at);

    const [lowest, highest] = layout.lanes;
    const up = highest;
    const down = -lowest;
    const inside = height - SIZES.axis - 8;
    // Room that the spine keeps on either side of its line, in chips and in dots.
    const fits = (gap, lanes, space) => (lanes ? (space - gap) / lanes : Infinity);
    const chipGap = (SIZES.spineChip + SIZES.chip) / 2 + 6 - SIZES.chipLane;
    const half = inside / 2;
    let lane = Math.min(fits(chipGap + SIZES.chip / 2, Math.max(up, down), half), 40);
    let centre = 4 + half;
    let chips = lane >= SIZES.chipLane;
    if (!chips) {
      lane = Math.min(fits(2 * chipGap + SIZES.chip, up + down, inside), 40);
      chips = lane >= SIZES.chipLane;
      if (chips) centre = 4 + SIZES.chip / 2 + chipGap + up * lane;
    }
    let upGap = chipGap;
    let downGap = chipGap;
    if (!chips) {
      lane = fits(18, Math.max(up, down), half);
      upGap = 25 - Math.min(lane, 25);
      downGap = 28 - Math.min(lane, 28);
      if (lane < 22) {
        // Little room: the spine leaves the middle, so that every pixel goes to a lane.
        lane = fits(18 + 6 + 12, up + down, inside);
        upGap = Math.max(0, 25 - lane);
        downGap = Math.max(0, 28 - lane);
        lane = fits(18 + 6 + upGap + downGap, up + down, inside);
        centre = 4 + 18 + upGap + up * lane;
      }
    }
    const place = new Map(); // lane -> y
    for (let l = lowest; l <= highest; l++) place.set(l, centre - (l > 0 ? upGap + l * lane : l < 0 ? l * lane - downGap : 0));
    const crowded = !chips && lane < SIZES.labelHeight + 1;
    if (crowded) spread(place, layout, p, lowest, highest, inside);
    const y = new Float64Array(total);
    const x = new Float64Array(total);
    for (let i = 0; i < total; i++) {
      y[i] = place.get(i < p.n ? layout.y[i] : 0);
      x[i] = left[p.depth[i]];
    }

    const label = new Array(total);
    const labelX = new Float64Array(total);
    const labelY = new Float64Array(total);
    const end = new Float64Array(total); // right end of chip or mark: where the line to the children begins
    for (let i = 0; i < total; i++) {
      const size = p.spine[i] ? SPINE_FONT : FONT;
      label[i] = fit(p.text[i], size, p.spine[i], used[p.depth[i]] + 0.5);
      labelX[i] = x[i] + SIZES.gap;
      labelY[i] = chips ? y[i] : y[i] - (p.spine[i] ? 12.5 : 9.5);
      end[i] = chips ? labelX[i] + textWidth(label[i], size, p.spine[i]) + SIZES.pad : x[i];
    }
    const bus = left.map((l) => l - SIZES.bus / 2);
    const r = Math.max(0, Math.min(7, lane / 2 - 1));
    /** Path of the connector into point i. */
    const edge = (i) => {
      const from = p.parent[i];
      const x0 = end[from].toFixed(1);
      const y0 = y[from];
      if (y0 === y[i]) return `M${x0} ${y0.toFixed(1)}H${x[i].toFixed(1)}`;
      const b = bus[p.depth[i]];
      const s = y[i] > y0 ? r : -r;
      const [ya, yb] = [y0.toFixed(1), y[i].toFixed(1)];
      return (
        `M${x0} ${ya}H${(b - r).toFixed(1)}Q${b.toFixed(1)} ${ya} ${b.toFixed(1)} ${(y0 + s).toFixed(1)}` +
        `V${(y[i] - s).toFixed(1)}Q${b.toFixed(1)} ${yb} ${(b + r).toFixed(1)} ${yb}H${x[i].toFixed(1)}`
      );
    };
    const ticks = left.slice(0, -1).map((l, d) => ({ x: l, y: height - 9, text: d ? String(d) : "" }));
    return finish(p, { narrow: false, chips, crowded, lane, x, y, label, labelX, labelY, end, edge, ticks, width, height });
  }

  function topDown(layout, p, width) {
    const total = p.n + 2;
    const lanes = Math.max(0, ...layout.y1) + 1;
    const row = 46;
    const wants = new Array(lanes).fill(0);
    const laneOf = (i) => (i < p.n ? layout.y1[i] : 0);
    for (let i = 0; i < total; i++) {
      const w = textWidth(p.text[i], p.spine[i] ? SPINE_FONT : FONT, p.spine[i]);
      wants[laneOf(i)] = Math.max(wants[laneOf(i)], Math.min(w, laneOf(i) ? 96 : 150));
    }
    const left = [];
    let at = 18;
    for (let l = 0; l < lanes; l++) {
      left.push(at);
      at += wants[l] + SIZES.gap + 22;
    }
    const rows = Math.max(...p.depth) + 1;
    const height = rows * row + 8;
    const x = new Float64Array(total);
    const y = new Float64Array(total);
    const label = new Array(total);
    const labelX = new Float64Array(total);
    const labelY = new Float64Array(total);
    const end = new Float64Array(total);
    for (let i = 0; i < total; i++) {
      x[i] = left[laneOf(i)];
      y[i] = 24 + row * p.depth[i];
      const size = p.spine[i] ? SPINE_FONT : FONT;
      label[i] = fit(p.text[i], size, p.spine[i], wants[laneOf(i)] + 0.5);
      labelX[i] = x[i] + SIZES.gap + 3;
      labelY[i] = y[i];
      end[i] = x[i];
    }
    const r = 7;
    const edge = (i) => {
      const from = p.parent[i];
      const [xa, ya, xb, yb] = [x[from].toFixed(1), y[from].toFixed(1), x[i].toFixed(1), y[i].toFixed(1)];
      if (x[from] === x[i]) return `M${xa} ${ya}V${yb}`;
      const b = y[i] - 20;
      return (
        `M${xa} ${ya}V${(b - r).toFixed(1)}Q${xa} ${b.toFixed(1)} ${(x[from] + r).toFixed(1)} ${b.toFixed(1)}` +
        `H${(x[i] - r).toFixed(1)}Q${xb} ${b.toFixed(1)} ${xb} ${(b + r).toFixed(1)}V${yb}`
      );
    };
    return finish(p, { narrow: true, chips: false, crowded: false, lane: row, x, y, label, labelX, labelY, end, edge, ticks: [], width: Math.max(width, at), height });
  }

  Object.assign(DP.parts, { geometry, legible, textWidth, FONT, SPINE_FONT, FAMILY, SIZES });
})((window.DominoPlayer = window.DominoPlayer || {}));
