/* What the tests of the player read off the real page. */
const probe = {
  /** Boxes of labels, marks, straight pieces of the lines and chips: all in px of the window. */
  measure(tree) {
    const t = tree || p.panes[0].tree;
    // A connector as boxes: straight ones as they are, a rounded corner as eight steps.
    const pieces = (d) => {
      const boxes = [];
      let [x, y] = [0, 0];
      const to = (a, b) => {
        boxes.push([Math.min(x, a), Math.min(y, b), Math.max(x, a), Math.max(y, b)]);
        [x, y] = [a, b];
      };
      for (const [, command, rest] of d.matchAll(/([A-Za-z])([^A-Za-z]*)/g)) {
        const n = (rest.match(/-?[\d.]+/g) || []).map(Number);
        if (command === "M") [x, y] = n;
        else if (command === "H") to(n[0], y);
        else if (command === "V") to(x, n[0]);
        else if (command === "L") to(n[0], n[1]);
        else if (command === "Q") {
          const [x0, y0] = [x, y];
          for (let k = 1; k <= 8; k++) {
            const s = k / 8;
            const mix = (a, b, c) => (1 - s) ** 2 * a + 2 * s * (1 - s) * b + s * s * c;
            to(mix(x0, n[0], n[2]), mix(y0, n[1], n[3]));
          }
        } else throw new Error(`unknown path command ${command}`);
      }
      return boxes;
    };
    const plot = t.plot;
    const box = (e) => {
      const b = e.getBoundingClientRect();
      return [b.left, b.top, b.right, b.bottom];
    };
    const labels = [...plot.querySelectorAll(".textpoint text")].map((e) => [
      ...box(e),
      e.textContent,
      parseFloat(getComputedStyle(e).fontSize),
    ]);
    const marks = [...plot.querySelectorAll(".points .point")].map(box);
    const lines = [];
    const chips = [];
    for (const e of plot.querySelectorAll(".shapelayer path")) {
      const { name } = plot.layout.shapes[Number(e.dataset.index)];
      const matrix = e.getScreenCTM();
      const width = parseFloat(getComputedStyle(e).strokeWidth) || 1;
      for (const piece of e.getAttribute("d").split(/(?=M)/)) {
        if (name.startsWith("chip") || name.endsWith("marks")) {
          const part = document.createElementNS("http://www.w3.org/2000/svg", "path");
          part.setAttribute("d", piece);
          e.parentNode.append(part);
          const b = part.getBBox();
          part.remove();
          if (!b.width) continue;
          const found = [b.x + matrix.e, b.y + matrix.f, b.x + b.width + matrix.e, b.y + b.height + matrix.f];
          (name.startsWith("chip") ? chips : marks).push(found);
          continue;
        }
        for (const b of pieces(piece)) lines.push([name, width, b[0] + matrix.e, b[1] + matrix.f, b[2] + matrix.e, b[3] + matrix.f]);
      }
    }
    return { labels, marks, lines, chips, stage: box(t.stage) };
  },

  /** Texts of the player, its figure included, whose contrast with what is behind them is below 4.5:1. */
  contrast() {
    return this.contrastOf(p.root, p);
  },

  /** The same of any part of a page; `player`: whose figure is looked at, too. */
  contrastOf(root, player) {
    const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgb = (colour) => {
      context.clearRect(0, 0, 1, 1);
      context.fillStyle = colour;
      context.fillRect(0, 0, 1, 1);
      return [...context.getImageData(0, 0, 1, 1).data];
    };
    const light = (colour) => {
      const [r, g, b] = colour.slice(0, 3).map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ratio = (one, two) => {
      const [x, y] = [light(one), light(two)].sort((a, b) => b - a);
      return (x + 0.05) / (y + 0.05);
    };
    const behind = (element) => {
      for (let e = element; e; e = e.parentElement) {
        const colour = rgb(getComputedStyle(e).backgroundColor);
        if (colour[3] > 250) return colour;
      }
      return [255, 255, 255, 255];
    };
    const low = [];
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const e = walker.currentNode.parentElement;
      const text = walker.currentNode.textContent.trim();
      if (!text || !e.getClientRects().length || e.closest("svg,:disabled,option,script,style")) continue;
      const found = ratio(rgb(getComputedStyle(e).color), behind(e));
      if (found < 4.5) low.push([e.className, text.slice(0, 20), found.toFixed(2)]);
    }
    if (!player) return low;
    const { tree } = player.panes[0];
    const chips = tree.current.g.chips;
    const under = { held: tree.colours.accent, anchor: tree.colours.ink };
    const { customdata, textfont } = tree.plot.data.find((t) => t.mode === "text");
    customdata.forEach((kind, i) => {
      const ground = (chips && under[kind]) || getComputedStyle(player.root).backgroundColor;
      const found = ratio(rgb(textfont.color[i]), rgb(ground));
      if (found < 4.5) low.push([kind, found.toFixed(2)]);
    });
    return low;
  },

  /** The facts of the node panel as "name\tvalue". */
  facts() {
    const names = [...document.querySelectorAll(".dp-node .dp-facts dt")];
    return names.map((dt) => `${dt.textContent}\t${dt.nextElementSibling.textContent}`);
  },
};
