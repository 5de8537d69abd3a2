/* Text of tokens and numbers. Token text is data: it reaches the page as text nodes or through escapePlotly. */
(function (DP) {
  "use strict";
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const VISIBLE = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍" };
  // As in dominotree/trace/tokens.py: shows nothing although its category is a letter, mark or symbol, or a sign used here.
  const BLANK = /[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\u{e0100}-\u{e01ef}␣⏎⇥␍⟨⟩]/u;
  const UNSEEN = /[\p{C}\p{Z}]/u;
  const MARK = /[\p{Mn}\p{Me}]/u;
  const hex = (n, width) => n.toString(16).toUpperCase().padStart(width, "0");

  /** Bytes of a hex string. */
  function bytesOf(text) {
    const bytes = new Uint8Array(text.length / 2);
    for (let k = 0; k < bytes.length; k++) bytes[k] = parseInt(text.slice(2 * k, 2 * k + 2), 16);
    return bytes;
  }

  /** Length of the well-formed UTF-8 character at `at`, 0 if there is none. */
  function characterLength(bytes, at) {
    const first = bytes[at];
    const length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    if (!length || at + length > bytes.length) return 0;
    try {
      decoder.decode(bytes.subarray(at, at + length));
      return length;
    } catch {
      return 0;
    }
  }

  /** A token as a label, nothing invisible: the same rules as dominotree.trace.token_text. */
  function tokenText(bytes) {
    let shown = "";
    let stray = [];
    const flush = () => {
      if (stray.length) shown += `⟨${stray.join(" ")}⟩`;
      stray = [];
    };
    for (let at = 0; at < bytes.length; ) {
      const length = characterLength(bytes, at);
      if (!length) {
        stray.push(hex(bytes[at++], 2));
        continue;
      }
      flush();
      const char = decoder.decode(bytes.subarray(at, at + length));
      at += length;
      if (VISIBLE[char]) shown += VISIBLE[char];
      else if (UNSEEN.test(char) || BLANK.test(char) || (!shown && MARK.test(char)))
        shown += `⟨U+${hex(char.codePointAt(0), 4)}⟩`;
      else shown += char;
    }
    flush();
    return shown;
  }

  /** Plotly reads a small HTML in text: what must be escaped so that it shows the text itself. */
  function escapePlotly(text) {
    return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  }

  const DASH = "–";
  const missing = (x) => x === null || x === undefined;
  /** A stored number: -inf is the string "-inf", missing is null. */
  const value = (x) => (x === "-inf" ? -Infinity : missing(x) ? null : x);

  /** A number for people: "–" if missing, "−∞", a real minus sign. */
  function number(x, digits = 2) {
    x = value(x);
    if (x === null || Number.isNaN(x)) return DASH;
    if (x === -Infinity) return "−∞";
    return x.toFixed(digits).replace(/^-(?=.*[1-9])/, "−").replace(/^-/, "");
  }

  /** A probability given its natural log: "29 %", "0.3 %", "< 0.01 %". */
  function percent(logp) {
    logp = value(logp);
    if (logp === null) return DASH;
    const p = 100 * Math.exp(logp);
    if (p === 0) return "0 %";
    if (p < 0.01) return "< 0.01 %";
    return `${p >= 99.95 ? "100" : p >= 10 ? p.toFixed(0) : p >= 1 ? p.toFixed(1) : p.toFixed(2)} %`;
  }

  const plural = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

  /** An element: h("p.name", {title: "…"}, child, "text", …). Strings become text nodes, never HTML. */
  function h(spec, attributes, ...children) {
    const [tag, ...classes] = spec.split(".");
    const element = document.createElement(tag || "div");
    if (classes.length) element.className = classes.map((c) => `dp-${c}`).join(" ");
    for (const [name, given] of Object.entries(attributes || {})) {
      if (given === null || given === undefined || given === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), given);
      else if (name === "style") element.style.cssText = given;
      else element.setAttribute(name, given === true ? "" : given);
    }
    element.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
    return element;
  }

  Object.assign((DP.parts = DP.parts || {}), { bytesOf, characterLength, tokenText, escapePlotly, value, number, percent, plural, missing, h, DASH });
})((window.DominoPlayer = window.DominoPlayer || {}));
