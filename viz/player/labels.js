/* A Plotly trace type for the tokens of a tree: text beside its point, drawn with little work.

   Plotly's own text mode styles every label twice a drawing, splits it into lines and looks for markup: 0.2 ms a label,
   half of a step at 256 nodes. A trace {type: "tokens", x, y, text, textfont: {family, color[], size[], weight[]}} takes
   the same data; an element is used again wherever the same text comes back, so that the browser need not shape it anew. */
(function (DP) {
  "use strict";
  const NAME = "tokens";
  const SVG = "http://www.w3.org/2000/svg";
  const PLAIN = { "&amp;": "&", "&lt;": "<", "&gt;": ">" };

  /** The text that Plotly's small HTML stands for. */
  const unescaped = (text) => (text.includes("&") ? text.replace(/&(?:amp|lt|gt);/g, (sign) => PLAIN[sign]) : text);

  const data = { valType: "data_array", editType: "calc" };
  const font = { valType: "any", arrayOk: true, editType: "calc" };
  const trace = {
    moduleType: "trace",
    name: NAME,
    categories: ["cartesian", "svg", "noHover", "noOpacity"],
    meta: {},
    attributes: { x: data, y: data, text: data, textfont: { family: font, color: font, size: font, weight: font, editType: "calc" } },

    supplyDefaults(given, out) {
      for (const name of ["x", "y", "text", "textfont"]) out[name] = given[name];
      out._length = given.x.length;
      if (!out._length) out.visible = false;
    },

    calc(gd, out) {
      return [{ x: out.x, y: out.y }];
    },

    /** `calcs`: one entry a trace; `layer`: a d3 selection of the SVG group to draw into. */
    plot(gd, { xaxis, yaxis }, calcs, layer) {
      const group = layer.node();
      const free = (group.tokens = group.tokens || new Map()); // text, size and weight -> elements
      const used = new Map();
      for (const [{ trace }] of calcs) {
        const { x, y, text, textfont } = trace;
        group.setAttribute("font-family", textfont.family);
        for (let i = 0; i < text.length; i++) {
          const [size, weight] = [textfont.size[i], textfont.weight[i]];
          const key = `${size}/${weight}/${text[i]}`;
          let element = free.get(key)?.pop();
          if (!element) {
            element = document.createElementNS(SVG, "text");
            element.textContent = unescaped(text[i]);
            element.setAttribute("font-size", size);
            element.setAttribute("font-weight", weight);
            group.append(element);
          }
          if (element.getAttribute("fill") !== textfont.color[i]) element.setAttribute("fill", textfont.color[i]);
          element.setAttribute("transform", `translate(${xaxis.c2p(x[i]).toFixed(2)},${(yaxis.c2p(y[i]) + size / 4).toFixed(2)})`);
          if (used.has(key)) used.get(key).push(element);
          else used.set(key, [element]);
        }
      }
      for (const list of free.values()) for (const element of list) element.remove();
      group.tokens = used;
      group.classList.add("textpoint");
    },

    style() {},
  };

  /** Plotly.react, with the trace type above made known to Plotly: it hangs on the module that draws Plotly's own axes. */
  DP.parts.react = function react(element, { data, layout }, config) {
    if (!trace.basePlotModule) {
      Plotly.react(element, data.filter(({ type }) => type !== NAME), layout, config);
      trace.basePlotModule = element._fullData[0]._module.basePlotModule;
      Plotly.register(trace);
    }
    return Plotly.react(element, data, layout, element._context ? undefined : config); // a known configuration is compared at length
  };
})((window.DominoPlayer = window.DominoPlayer || {}));
