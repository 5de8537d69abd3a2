/* A link as a QR code, made here: no picture is fetched. Needs vendor/qrcode.js. */
(function (DP) {
  "use strict";
  const QUIET = 4; // modules of white border that readers need
  const SVG = "http://www.w3.org/2000/svg";

  /** Modules of the code for `text`: rows of booleans (true: dark). Throws Error (one sentence) if it is too long. */
  function modules(text) {
    for (const level of ["M", "L"]) {
      const code = window.qrcode(0, level);
      code.addData(text, "Byte");
      try {
        code.make();
      } catch {
        continue; // too long at this level of error correction
      }
      const size = code.getModuleCount();
      return Array.from({ length: size }, (_, y) => Array.from({ length: size }, (_, x) => code.isDark(y, x)));
    }
    throw new Error("This link is too long for a QR code.");
  }

  /** The code as an SVG element, black on white whatever the theme, as readers expect. */
  function picture(text) {
    const rows = modules(text);
    const size = rows.length + 2 * QUIET;
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${size} ${size}`);
    svg.setAttribute("shape-rendering", "crispEdges");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", "QR code of the link below");
    const ground = document.createElementNS(SVG, "rect");
    for (const [name, value] of [["width", size], ["height", size], ["fill", "#fff"]]) ground.setAttribute(name, value);
    const path = document.createElementNS(SVG, "path");
    let d = "";
    rows.forEach((row, y) => {
      for (let x = 0; x < row.length; x++) {
        if (!row[x]) continue;
        const from = x;
        while (row[x + 1]) x++;
        d += `M${from + QUIET} ${y + QUIET}h${x - from + 1}v1H${from + QUIET}z`;
      }
    });
    path.setAttribute("d", d);
    path.setAttribute("fill", "#000");
    svg.append(ground, path);
    return svg;
  }

  DP.qr = { modules, picture };
})((window.DominoPlayer = window.DominoPlayer || {}));
