/* From lanes to pixels: where marks, labels, chips and connectors of one round go. Knows nothing of Plotly.

   A node's mark sits at the left end of its column, its label right of it, connectors to its children in the strip
   at the column's right end (the bus). Cells are never shared (viz/layout.py), so boxes cannot meet as long as a
   label stays inside its cell: labels are cut to their column's width and, where lanes are too close for 14 px,
   left out. With room, tokens are drawn as chips centred on their line; else as dots with the label above the line. */
(function (DP) {
  "use strict";
  const { value, fold, ANCHOR, BONUS, BITS } = DP.parts;

  const FONT = 14;
  const FAMILY = '-apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Noto Sans", sans-serif';
  /** Across: space from mark to label, from label to the chip's end, strip for connectors, size of the spine's text. */
  const ROOMY = { gap: 9, pad: 9, bus: 20, spineFont: 17 };
  const COMPACT = { gap: 7, pad: 5, bus: 12, spineFont: 15 };
  /** px that columns keep: [of the text that came out, of any other label]; the first pair that fits is taken. */
  const KEEPS = [[130, 38], [100, 38], [100, 30], [100, 24], [76, 30], [76, 24], [76, 16], [56, 24], [56, 16], [38, 24], [38, 16]];
  const KEPT = [76, 38]; // where none fits: the tree is wider than its box
  const MOST_LABELS = 96; // in a crowded tree
  const FOLDED = { lane: 25.6, spine: 56 }; // px of a folded tree's lanes and of its spine: all tokens fit as chips
  const SIZES = {
    chip: 22,
    spineChip: 30,
    chipLane: 25.5, // lanes at least this far apart: chips
    labelHeight: 18.7, // of a label and its distance to the lines above and below it
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

  /** `text` cut with "…" to at most `room` px; "" if not even that fits. */
  function fit(text, size, bold, room) {
    if (textWidth(text, size, bold) <= room) return text;
    if (text.length > 1 && text.startsWith("␣") && textWidth("␣m…", size, bold) > room) text = text.slice(1); // a letter says more
    const characters = Array.from(text);
    let low = 0;
    let high = characters.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (textWidth(characters.slice(0, middle).join("") + "…", size, bold) <= room) low = middle;
      else high = middle - 1;
    }
    return low ? characters.slice(0, low).join("") + "…" : textWidth("…", size, bold) <= room ? "…" : "";
  }

  /**
   * Label widths of the columns in `room` px: no column gets more than it wants, the text that came out (`spine`) is
   * cut last, and none falls below what KEEPS says: a tree too deep for that is wider than its box, which then scrolls.
   */
  function share(wants, spine, room) {
    const total = (widths) => widths.reduce((a, b) => a + b, 0);
    const keep = ([most, least]) => wants.map((w, d) => Math.max(Math.min(w, least), Math.min(spine[d], most)));
    const floor = KEEPS.map(keep).find((widths) => total(widths) <= room) ?? keep(KEPT);
    const at = (cap) => wants.map((w, d) => Math.max(floor[d], Math.min(w, cap)));
    let [low, high] = [0, Math.max(...wants)];
    if (total(at(high)) <= room) return wants;
    for (let k = 0; k < 20; k++) {
      const middle = (low + high) / 2;
      if (total(at(middle)) <= room) low = middle;
      else high = middle;
    }
    return at(low);
  }

  /** Tokens of a few dots of ink, which are easily overlooked: they are drawn bold. */
  const SLIGHT = /^[␣⏎⇥]?[\p{P}\p{S}␣⏎⇥]{0,2}$/u;

  const SHOWN = { hidden: [], stands: [] }; // nothing is folded

  /** All points of a round: nodes 0 … n−1, then the anchor (index n) and the bonus token (index n+1). */
  function points(run, k, folded) {
    const round = run.rounds[k];
    const { layout, hidden, stands } = folded || { layout: run.layout[k], ...SHOWN };
    const n = layout.x.length;
    const bonusDepth = round.path.length + 1;
    const spine = new Uint8Array(n + 2);
    layout.spine.forEach((node) => (spine[node] = 1));
    spine[n] = spine[n + 1] = 1;
    const same = layout.spine[bonusDepth - 1]; // a node of another tree that carries the bonus token
    const emitted = new Uint8Array(n + 2);
    round.path.forEach((node) => (emitted[node] = 1));
    emitted[n] = emitted[n + 1] = 1;
    const depth = [...layout.x, 0, bonusDepth];
    const text = round.nodes.token.map((t, i) => (stands[i] ? `+${stands[i]}` : run.label(t)));
    text.push(run.label(round.anchor), run.label(round.bonus));
    const parent = round.nodes.parent.map((p) => (p === ANCHOR ? n : p));
    parent.push(-1, round.path.length ? round.path[round.path.length - 1] : n);
    const verified = round.nodes.trees.map((bits) => bits & BITS.verified);
    const scores = round.nodes[`cum_${run.settings.scorer}`] || [];
    const score = depth.map((_, i) => value(scores[i]) ?? -Infinity);
    const slight = text.map((t) => SLIGHT.test(t));
    return { n, depth, spine, emitted, text, slight, parent, verified, score, hidden, stands, folded, layout, bonusNode: same === undefined ? -1 : same };
  }

  /**
   * Geometry of round k in a figure of width × height px; `narrow`: top-down, all branches on one side. `opened`:
   * fold unlikely subtrees but for those behind these nodes (a Set); null: show every node. `fitting`: fold only where
   * the tree is narrow and wider than its box, and no further than it needs.
   */
  function geometry(run, k, width, height, narrow, opened = null, fitting = false) {
    const least = SIZES.axis + 8 + FOLDED.spine;
    const lanes = 1 + Math.floor((height - least) / FOLDED.lane);
    const fits = narrow ? (found) => topDown(found.layout, points(run, k, found), width).width <= width : ({ used }) => used <= lanes;
    const may = opened && (!fitting || (narrow && !fits({ layout: run.layout[k], ...SHOWN })));
    const folded = may ? fold(run, k, opened, fits, narrow ? "y1" : "y") : null;
    const p = points(run, k, folded);
    if (narrow) return topDown(p.layout, p, width);
    const [lowest, highest] = p.layout.lanes;
    if (folded) height = Math.max(height, Math.ceil((highest - lowest) * FOLDED.lane) + least);
    return leftToRight(p.layout, p, width, height);
  }

  /** [size in px, bold] of the label of point i. */
  const type = (p, i, spineFont) => (p.spine[i] ? [spineFont, true] : [FONT, p.slight[i] || p.stands[i] > 0]);

  function finish(p, fields) {
    const { n } = p;
    const index = (node) => (node === ANCHOR ? n : node === BONUS ? n + 1 : node);
    return { ...p, ...fields, index };
  }

  /**
   * Crowded: the likeliest branches of the tree that was verified keep the room that labels need, the rest shares what
   * is left. `place`: lane -> y, filled from the top.
   */
  function spread(place, layout, p, lowest, highest, inside) {
    const best = new Map(); // lane -> best score of a verified node in it
    for (let i = 0; i < p.n; i++) if (p.verified[i] && !p.hidden[i]) best.set(layout.y[i], Math.max(best.get(layout.y[i]) ?? -Infinity, p.score[i]));
    const lanes = [];
    for (let l = highest; l >= lowest; l--) lanes.push(l);
    const thin = Math.min(5, (0.5 * inside) / lanes.length);
    const wants = new Map(lanes.map((l) => [l, thin]));
    wants.set(0, 26);
    if (wants.has(-1)) wants.set(-1, Math.max(10, thin)); // clear of the spine's marks
    let left = inside - 8 - [...wants.values()].reduce((a, b) => a + b, 0);
    const full = SIZES.labelHeight + 0.1;
    const ranked = [...best.keys()].filter((l) => l !== 0).sort((a, b) => best.get(b) - best.get(a) || b - a);
    for (const l of ranked) {
      const more = (l === -1 ? 29 : full) - wants.get(l);
      if (more > left) break;
      wants.set(l, wants.get(l) + more);
      left -= more;
    }
    for (const l of lanes.filter((l) => !best.has(l)).sort((a, b) => Math.abs(a) - Math.abs(b) || b - a)) {
      const more = full - wants.get(l); // what is left over: lanes of the other trees, the nearest first
      if (more > left) break;
      wants.set(l, full);
      left -= more;
    }
    let y = 4;
    const extra = left / lanes.length;
    for (const l of lanes) place.set(l, (y += wants.get(l) + extra));
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
        const size = g.spine[i] ? 24 : SIZES.labelHeight;
        if (g.y[i] - (k ? g.y[column[k - 1]] : 0) < size) shown[i] = 0;
      });
    }
    // More labels than a reader takes in only cost time: the likeliest stay.
    const rest = [];
    for (let i = 0; i < g.n; i++) if (shown[i] && drawn(i) && !g.emitted[i]) rest.push(i);
    rest.sort((a, b) => g.score[b] - g.score[a] || a - b);
    for (const i of rest.slice(MOST_LABELS)) shown[i] = 0;
    return shown;
  }

  function leftToRight(layout, p, width, height) {
    const total = p.n + 2;
    const columns = Math.max(...p.depth) + 1;
    const wants = new Array(columns).fill(0);
    const spine = new Array(columns).fill(0); // of the tokens that this round committed
    const want = (across) => {
      wants.fill(0);
      spine.fill(0);
      for (let i = 0; i < total; i++) {
        if (p.hidden[i]) continue;
        const w = textWidth(p.text[i], ...type(p, i, across.spineFont));
        if (w > wants[p.depth[i]]) wants[p.depth[i]] = w;
        if (p.emitted[i]) spine[p.depth[i]] = w;
      }
      const fixed = across.gap + across.pad + across.bus;
      const room = width - 2 * SIZES.edge - columns * fixed;
      return { across, fixed, room, needed: wants.reduce((a, b) => a + b, 0) };
    };
    let { across, fixed, room, needed } = want(ROOMY);
    if (needed > room) ({ across, fixed, room, needed } = want(COMPACT));
    const used = share(wants, spine, room);
    const spare = Math.min(60, Math.max(0, (room - used.reduce((a, b) => a + b, 0)) / columns));
    const left = [];
    let at = SIZES.edge;
    for (let d = 0; d < columns; d++) {
      left.push(at);
      at += used[d] + fixed + spare;
    }
    left.push(at);
    width = Math.max(width, Math.ceil(at));

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
    const crowded = !chips && lane < SIZES.labelHeight;
    if (crowded) spread(place, layout, p, lowest, highest, inside);
    const y = new Float64Array(total);
    const x = new Float64Array(total);
    const tight = new Uint8Array(total); // marks in a lane squeezed thin are drawn small
    for (let i = 0; i < total; i++) {
      const l = i < p.n ? layout.y[i] : 0;
      if (crowded && l) tight[i] = place.get(l) - (place.get(l + 1) ?? 0) < 9;
      y[i] = place.get(i < p.n ? layout.y[i] : 0);
      x[i] = left[p.depth[i]];
    }

    const label = new Array(total);
    const labelX = new Float64Array(total);
    const labelY = new Float64Array(total);
    const labelEnd = new Float64Array(total);
    const end = new Float64Array(total); // right end of chip or mark: where the line to the children begins
    for (let i = 0; i < total; i++) {
      const font = type(p, i, across.spineFont);
      label[i] = fit(p.text[i], ...font, used[p.depth[i]] + 0.5);
      labelX[i] = x[i] + across.gap;
      labelEnd[i] = labelX[i] + textWidth(label[i], ...font);
      labelY[i] = chips ? y[i] : y[i] - (p.spine[i] ? 11.6 : 8.8);
      end[i] = chips ? labelEnd[i] + across.pad : x[i];
    }
    const bus = left.map((l) => l - across.bus / 2);
    const r = Math.max(0, Math.min(across.bus / 2 - 2, 7, (crowded ? Math.min(lane, 9) : lane) / 2 - 1));
    /** Path of the connector into point i. */
    const edge = (i) => {
      const from = p.parent[i];
      const x0 = end[from].toFixed(1);
      const y0 = y[from];
      if (y0 === y[i]) return `M${x0} ${y0.toFixed(1)}H${x[i].toFixed(1)}`;
      const b = bus[p.depth[i]];
      if (r < 1.5) return `M${x0} ${y0.toFixed(1)}H${b.toFixed(1)}V${y[i].toFixed(1)}H${x[i].toFixed(1)}`;
      const s = y[i] > y0 ? r : -r;
      const [ya, yb] = [y0.toFixed(1), y[i].toFixed(1)];
      return (
        `M${x0} ${ya}H${(b - r).toFixed(1)}Q${b.toFixed(1)} ${ya} ${b.toFixed(1)} ${(y0 + s).toFixed(1)}` +
        `V${(y[i] - s).toFixed(1)}Q${b.toFixed(1)} ${yb} ${(b + r).toFixed(1)} ${yb}H${x[i].toFixed(1)}`
      );
    };
    const ticks = left.slice(0, -1).map((l, d) => ({ x: l, y: height - 9, text: d ? String(d) : left[1] - left[0] > 56 ? "depth" : "" }));
    return finish(p, { narrow: false, chips, crowded, lane, tight, x, y, label, labelX, labelY, labelEnd, end, spineFont: across.spineFont, edge, ticks, bus, width, height });
  }

  function topDown(layout, p, width) {
    const total = p.n + 2;
    const lanes = Math.max(0, ...layout.y1) + 1;
    const row = 46;
    const { gap, spineFont } = ROOMY;
    const wants = new Array(lanes).fill(0);
    const laneOf = (i) => (i < p.n ? layout.y1[i] : 0);
    for (let i = 0; i < total; i++) {
      if (p.hidden[i]) continue;
      const w = textWidth(p.text[i], ...type(p, i, spineFont));
      wants[laneOf(i)] = Math.max(wants[laneOf(i)], Math.min(w, laneOf(i) ? 96 : 150));
    }
    const left = [];
    let at = 18;
    for (let l = 0; l < lanes; l++) {
      left.push(at);
      at += wants[l] + gap + 22;
    }
    const rows = Math.max(...p.depth) + 1;
    const height = rows * row + 8;
    const x = new Float64Array(total);
    const y = new Float64Array(total);
    const label = new Array(total);
    const labelX = new Float64Array(total);
    const labelY = new Float64Array(total);
    const labelEnd = new Float64Array(total);
    const end = new Float64Array(total);
    for (let i = 0; i < total; i++) {
      x[i] = left[laneOf(i)];
      y[i] = 24 + row * p.depth[i];
      const font = type(p, i, spineFont);
      label[i] = fit(p.text[i], ...font, wants[laneOf(i)] + 0.5);
      labelX[i] = x[i] + gap + 3;
      labelEnd[i] = labelX[i] + textWidth(label[i], ...font);
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
    return finish(p, { narrow: true, chips: false, crowded: false, lane: row, tight: new Uint8Array(total), x, y, label, labelX, labelY, labelEnd, end, spineFont, edge, ticks: [], width: Math.max(width, at), height });
  }

  Object.assign(DP.parts, { geometry, legible, FONT, FAMILY, SIZES });
})((window.DominoPlayer = window.DominoPlayer || {}));
