/* Large trees: unlikely subtrees are folded to one mark with a count, so that what stays can be read.

   What is folded depends on the round and the room alone, never on the scorer that is shown: switching scorers moves
   nothing. Kept are the text that came out and the likeliest nodes of all scorers' trees; of each kept node's other
   children the nearest one lends its place to the mark. What is left is packed anew, each branch on its old side. */
(function (DP) {
  "use strict";
  const { value, ANCHOR } = DP.parts;

  const LARGE = 256; // nodes of a round beyond which folding is offered beside the tree
  const KEEP = [200, 160, 128, 112, 96, 84, 72, 64, 56, 48, 40, 34, 28, 24, 20, 16, 12, 8, 5, 3, 0];
  const OPENS = 32; // nodes that opening a mark brings out at most; the rest is folded again behind them

  /** Best cumulative log-probability of each node under any scorer. */
  function likelihood(nodes) {
    const columns = ["cum_conditional", "cum_static", "cum_marginal"].map((name) => nodes[name] || []);
    return nodes.token.map((_, i) => Math.max(...columns.map((c) => value(c[i]) ?? -Infinity)));
  }

  /** Descendants of `from` (nodes), best first, at most `most` of them. */
  function bestBelow(from, children, score, most) {
    const open = [...from];
    const found = [];
    while (open.length && found.length < most) {
      let at = 0;
      for (let j = 1; j < open.length; j++) if (score[open[j]] > score[open[at]]) at = j;
      const [node] = open.splice(at, 1);
      found.push(node);
      open.push(...children[node]);
    }
    return found;
  }

  /**
   * Round k folded no further than until `fits({layout, hidden, stands, behind, used})` (used: lanes); null if nothing
   * need be folded. `opened`: nodes (ANCHOR among them) whose folded children the visitor has asked for.
   * hidden[i] = 1: not drawn; stands[i]: how many nodes the mark in place of node i stands for (0: no mark);
   * behind[i]: the mark that hides node i, else −1.
   */
  function fold(run, k, opened, fits, side = "y") {
    const { nodes } = run.rounds[k];
    const full = run.layout[k];
    const n = nodes.token.length;
    const score = likelihood(nodes);
    const ranked = [...score.keys()].sort((a, b) => score[b] - score[a] || a - b);
    const children = Array.from({ length: n }, () => []);
    const first = [];
    for (let i = 0; i < n; i++) (nodes.parent[i] === ANCHOR ? first : children[nodes.parent[i]]).push(i);
    const most = KEEP.find((count) => fits(keepOnly(count, []))) ?? KEEP[KEEP.length - 1];
    const found = keepOnly(most, opened); // what is opened folds nothing elsewhere: the figure grows instead
    return found.folded ? found : null;

    function keepOnly(most, opened) {
      const kept = new Uint8Array(n);
      const keep = (i) => {
        for (let at = i; at !== ANCHOR && !kept[at]; at = nodes.parent[at]) kept[at] = 1;
      };
      full.spine.forEach(keep);
      run.rounds[k].path.forEach(keep);
      ranked.slice(0, most).forEach(keep);
      for (const parent of [...opened].sort((a, b) => a - b)) {
        if (parent !== ANCHOR && !kept[parent]) continue;
        bestBelow((parent === ANCHOR ? first : children[parent]).filter((c) => !kept[c]), children, score, OPENS).forEach(keep);
      }
      const below = new Int32Array(n).fill(1); // nodes of the subtree, itself included
      for (let i = n - 1; i >= 0; i--) if (nodes.parent[i] !== ANCHOR) below[nodes.parent[i]] += below[i];
      const stands = new Int32Array(n);
      const behind = new Int32Array(n).fill(-1);
      const hidden = new Uint8Array(n);
      let folded = 0;
      for (let parent = -1; parent < n; parent++) {
        if (parent >= 0 && !kept[parent]) continue;
        const gone = (parent < 0 ? first : children[parent]).filter((c) => !kept[c]);
        const count = gone.reduce((sum, c) => sum + below[c], 0);
        if (count === 1) kept[gone[0]] = 1; // a mark would take the same room
        if (count < 2) continue;
        const lane = parent < 0 ? 0 : full[side][parent];
        const mark = gone.reduce((a, b) => (Math.abs(full[side][b] - lane) < Math.abs(full[side][a] - lane) ? b : a));
        stands[mark] = count;
        folded += count;
        for (const c of gone) behind[c] = mark;
      }
      for (let i = 0; i < n; i++) {
        if (kept[i]) continue;
        if (behind[i] < 0) behind[i] = behind[nodes.parent[i]];
        hidden[i] = stands[i] ? 0 : 1;
      }
      return { ...closed(hidden, behind), hidden, stands, behind, folded };
    }

    /** Lanes of what is left; hidden nodes share the place of their mark. */
    function closed(hidden, behind) {
      const layout = { ...full };
      for (const name of ["y", "y1"]) {
        const lanes = packed(run, k, hidden, name);
        layout[name] = lanes.map((lane, i) => (hidden[i] ? lanes[behind[i]] : lane));
      }
      layout.lanes = [Math.min(0, ...layout.y), Math.max(0, ...layout.y)];
      layout.x = full.x.map((depth, i) => (hidden[i] ? full.x[behind[i]] : depth));
      const used = side === "y" ? layout.lanes[1] - layout.lanes[0] + 1 : 1 + Math.max(0, ...layout.y1);
      return { layout, used };
    }
  }

  /**
   * Lane of every node that is not hidden, packed as in viz/layout.py (cells: 2·depth a node, 2·depth + 1 the connector
   * to its children; no cell is used twice). Order and side of the branches are those of the whole tree.
   */
  function packed(run, k, hidden, name) {
    const { parent, depth } = run.rounds[k].nodes;
    const { spine, [name]: whole } = run.layout[k];
    const n = parent.length;
    const onSpine = new Set(spine);
    const lane = (i) => (i === ANCHOR ? 0 : whole[i]);
    const children = new Map();
    for (let i = 0; i < n; i++) {
      if (hidden[i] || onSpine.has(i)) continue;
      if (!children.has(parent[i])) children.set(parent[i], []);
      children.get(parent[i]).push(i);
    }
    for (const [of, list] of children) list.sort((a, b) => Math.abs(whole[a] - lane(of)) - Math.abs(whole[b] - lane(of)) || a - b);
    const shift = new Int32Array(n);
    const shapes = new Map();
    const room = (shape, other, least) => {
      const from = other.start - shape.start;
      let at = least;
      while (other.cells.some((lanes, c) => (shape.cells[from + c] || 0n) & (lanes << BigInt(at)))) at += 1;
      return at;
    };
    const add = (shape, other, at) => {
      const from = other.start - shape.start;
      while (shape.cells.length < from + other.cells.length) shape.cells.push(0n);
      shape.cells[from - 1] |= (2n << BigInt(at)) - 1n; // the connector
      other.cells.forEach((lanes, c) => (shape.cells[from + c] |= lanes << BigInt(at)));
    };
    for (let i = n - 1; i >= 0; i--) {
      if (hidden[i] || onSpine.has(i)) continue;
      const shape = { start: 2 * depth[i], cells: [1n] };
      let least = 0; // the nearest child goes straight on
      for (const child of children.get(i) || []) {
        const branch = shapes.get(child);
        shift[child] = room(shape, branch, least);
        add(shape, branch, shift[child]);
        least = shift[child] + 1;
      }
      shapes.set(i, shape);
    }
    const reach = Math.max(run.rounds[k].committed.length, spine.length);
    const sides = new Map([1, -1].map((sign) => [sign, { start: 0, cells: new Array(2 * reach + 1).fill(1n) }]));
    const sign = new Int8Array(n);
    for (const node of [...spine].reverse().concat(ANCHOR)) {
      const least = new Map([[1, 1], [-1, 1]]);
      for (const child of children.get(node) || []) {
        const on = whole[child] < 0 ? -1 : 1;
        const side = sides.get(on);
        const branch = shapes.get(child);
        [shift[child], sign[child]] = [room(side, branch, least.get(on)), on];
        add(side, branch, shift[child]);
        least.set(on, shift[child] + 1);
      }
    }
    const lanes = new Array(n).fill(0);
    for (let i = 0; i < n; i++) {
      if (hidden[i] || onSpine.has(i)) continue;
      if (parent[i] !== ANCHOR && !onSpine.has(parent[i])) sign[i] = sign[parent[i]];
      lanes[i] = (parent[i] === ANCHOR ? 0 : lanes[parent[i]]) + sign[i] * shift[i];
    }
    return lanes;
  }

  Object.assign(DP.parts, { fold, LARGE });
})((window.DominoPlayer = window.DominoPlayer || {}));
