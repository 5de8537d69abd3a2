/* Where the nodes of a run are drawn: viz/layout.py in the browser, for a trace that comes without positions (an imported
   file on a static site). The same places to the last lane: a test compares the two. How crossings are avoided, and what
   cells are, is explained there.

   DominoPlayer.placing.place(trace) -> [{x, y, y1, root_y, spine, lanes}], one per round of a parsed trace JSON */
(function (DP) {
  "use strict";
  const { value, ANCHOR } = DP.parts;

  const ROOT = ANCHOR;
  const TEXT_AHEAD = 64; // tokens after an anchor that its spine may follow

  /** Lanes used by a subtree, by cell from `start` on, as bit sets (bit 0 = the lane of its own root). */
  class Shape {
    constructor(start, cells) {
      this.start = start;
      this.cells = cells;
    }

    /** Smallest shift from `least` on at which `other` meets nothing of this shape. */
    room(other, least) {
      const first = other.start - this.start;
      const pairs = [];
      other.cells.forEach((lanes, c) => this.cells[first + c] && pairs.push([this.cells[first + c], lanes]));
      let shift = BigInt(least);
      while (pairs.some(([mine, lanes]) => mine & (lanes << shift))) shift += 1n;
      return Number(shift);
    }

    /** Take in `other`, `shift` lanes outwards; its connector takes the cell before. */
    add(other, shift) {
      const first = other.start - this.start;
      const by = BigInt(shift);
      while (this.cells.length < first + other.cells.length) this.cells.push(0n);
      this.cells[first - 1] |= (2n << by) - 1n;
      other.cells.forEach((lanes, c) => (this.cells[first + c] |= lanes << by));
    }

    get height() {
      return this.cells.reduce((most, lanes) => (lanes > most ? lanes : most), 0n).toString(2).length - 1;
    }
  }

  /** The union of the round's trees: per node its score and its children, best score first, ties as recorded. */
  function treeOf(nodes) {
    const columns = [nodes.cum_conditional, nodes.cum_static, nodes.cum_marginal];
    const score = nodes.token.map((_, i) => {
      const column = columns.find((c) => c && value(c[i]) !== null);
      return column ? value(column[i]) : -Infinity;
    });
    const children = new Map([[ROOT, []]]);
    nodes.parent.forEach((parent, i) => {
      children.set(i, []);
      children.get(parent).push(i);
    });
    const recorded = new Map([...children].map(([node, list]) => [node, [...list]]));
    for (const list of children.values()) list.sort((a, b) => (score[a] === score[b] ? a - b : score[b] - score[a]));
    return { children, recorded };
  }

  /** Nodes, from the root's child on, whose tokens are those of `text`: the longest such path. */
  function spineOf(nodes, recorded, text) {
    const spine = [];
    let here = ROOT;
    for (const token of text) {
      here = recorded.get(here).find((child) => nodes.token[child] === token);
      if (here === undefined) break;
      spine.push(here);
    }
    return spine;
  }

  /** Lane of every node. `sides`: signs that branches of the spine may take, `reach`: its last depth. */
  function lanesOf({ depth, parent }, children, spine, reach, sides) {
    const onSpine = new Set(spine);
    const shift = new Map([[ROOT, 0]]); // of a node against its parent, outwards
    const shapes = new Map();
    for (let node = depth.length - 1; node >= 0; node--) {
      if (onSpine.has(node)) continue;
      const shape = new Shape(2 * depth[node], [1n]);
      let least = 0; // the best child goes straight on
      for (const child of children.get(node)) {
        const at = shape.room(shapes.get(child), least);
        shape.add(shapes.get(child), at);
        shift.set(child, at);
        least = at + 1;
      }
      shapes.set(node, shape);
    }
    const full = sides.map((sign) => ({ sign, shape: new Shape(0, new Array(2 * Math.max(reach, spine.length) + 1).fill(1n)) }));
    const sign = new Map();
    for (const node of [...spine].reverse().concat(ROOT)) {
      const least = full.map(() => 1);
      for (const child of children.get(node)) {
        if (onSpine.has(child)) {
          shift.set(child, 0);
          continue;
        }
        const branch = shapes.get(child);
        const fits = full.map(({ shape }, s) => shape.room(branch, least[s]));
        // The nearer place; else the side that is lower so far; else the first.
        let best = 0;
        for (let s = 1; s < full.length; s++)
          if (fits[s] < fits[best] || (fits[s] === fits[best] && full[s].shape.height < full[best].shape.height)) best = s;
        shift.set(child, fits[best]);
        sign.set(child, full[best].sign);
        full[best].shape.add(branch, fits[best]);
        least[best] = fits[best] + 1;
      }
    }
    const lanes = [];
    parent.forEach((of, node) => {
      if (!sign.has(node)) sign.set(node, sign.get(of) || 0);
      lanes.push((of === ROOT ? 0 : lanes[of]) + sign.get(node) * shift.get(node) || 0); // never −0
    });
    return lanes;
  }

  function placeRound(round, text) {
    const { nodes } = round;
    const { children, recorded } = treeOf(nodes);
    const spine = spineOf(nodes, recorded, text);
    const reach = round.committed.length; // the bonus token is drawn on the spine too
    const y = lanesOf(nodes, children, spine, reach, [1, -1]);
    const lanes = y.reduce(([low, high], lane) => [Math.min(low, lane), Math.max(high, lane)], [0, 0]);
    return { x: [...nodes.depth], y, y1: lanesOf(nodes, children, spine, reach, [1]), root_y: 0, spine, lanes };
  }

  /** The layout of every round. A spine follows the text that the run emitted, so it may run past the round's own tokens. */
  function place(trace) {
    const stopped = trace.summary.stop_reason === "stop-token";
    const text = trace.rounds.flatMap(({ committed, kept }) => (stopped ? committed.slice(0, kept) : committed));
    let done = 0;
    return trace.rounds.map((round) => {
      const layout = placeRound(round, text.slice(done, done + TEXT_AHEAD));
      done += round.committed.length;
      return layout;
    });
  }

  DP.placing = { place };
})((window.DominoPlayer = window.DominoPlayer || {}));
