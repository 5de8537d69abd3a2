/* The speaker's window: current and next stop, note, elapsed time, clock. It follows the main window.

   It is an empty window of the same origin that the main one writes into, so it needs no server and works from a
   file too. The two talk by messages: the notes window asks again after the main window was loaded anew, keeps its
   own time, and hands every key back, so that a clicker works whichever of the two has the focus.

   DominoPlayer.notes: open() -> false if the browser blocked it · send() · set by the presenter on the screen: data() ->
   {place, now, next, theme} and onKey(event). */
(function (DP) {
  "use strict";
  const NAME = "dominotree-notes";
  const MARK = "dominotree-notes"; // of every message between the two windows
  const TARGET = location.protocol === "file:" ? "*" : location.origin; // the notes window has this page's origin

  const STYLE = `
    :root { --bg: #fff; --ink: #15181e; --soft: #4f5866; --line: #c9d0da; --accent: #1b5fd0; --on-accent: #fff; color-scheme: light; }
    :root.dark { --bg: #0e1116; --ink: #eceff4; --soft: #b3bbc8; --line: #3a4351; --accent: #82b1ff; --on-accent: #08111f; color-scheme: dark; }
    * { box-sizing: border-box; margin: 0; }
    body { min-height: 100vh; padding: 20px 24px; background: var(--bg); color: var(--ink);
      font: 400 17px/1.5 -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Noto Sans", sans-serif;
      display: grid; grid-template-rows: auto 1fr auto; gap: 18px; }
    header { display: flex; flex-wrap: wrap; align-items: center; justify-content: space-between; gap: 10px 24px; }
    .time { display: flex; align-items: center; gap: 10px; }
    output { font-size: 34px; font-weight: 600; font-variant-numeric: tabular-nums; min-width: 5ch; }
    #clock { color: var(--soft); font-weight: 400; text-align: right; }
    button { font: inherit; color: inherit; padding: 6px 14px; border: 1px solid var(--line); border-radius: 8px; background: none; cursor: pointer; }
    button:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
    main { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 1fr); gap: 28px; align-content: start; }
    h2 { font-size: 15px; font-weight: 400; color: var(--soft); }
    h3 { font-size: 22px; font-weight: 650; line-height: 1.3; overflow-wrap: anywhere; }
    #facts { color: var(--soft); }
    .note { white-space: pre-wrap; overflow-wrap: anywhere; margin-top: 14px; }
    #note { font-size: 28px; line-height: 1.4; }
    #next h3 { font-size: 19px; }
    footer { color: var(--soft); font-size: 15px; min-height: 1.5em; }
    @media (max-width: 640px) { main { grid-template-columns: 1fr; } }`;

  const BODY = `
    <header>
      <div class="time" role="group" aria-label="Elapsed time"><output id="elapsed" aria-live="off">0:00</output>
        <button id="go">Start</button><button id="reset">Reset</button></div>
      <output id="clock" aria-label="Clock" aria-live="off"></output>
    </header>
    <main>
      <section aria-label="Now"><h2 id="place">Waiting for the main window …</h2><h3 id="title"></h3><p id="facts"></p><p class="note" id="note"></p></section>
      <section aria-label="Next" id="next"><h2>Next</h2><h3 id="next-title"></h3><p class="note" id="next-note"></p></section>
    </main>
    <footer id="foot" role="status">Keys and clickers work here as in the main window.</footer>`;

  /** Runs inside the notes window; takes nothing from around it. */
  function inside(mark) {
    const at = (id) => document.getElementById(id);
    const write = (id, text) => {
      if (at(id).textContent !== text) at(id).textContent = text;
    };
    let spent = 0; // ms, without the stretch that is going on
    let since = null; // start of that stretch
    let heard = 0;
    const elapsed = () => spent + (since === null ? 0 : Date.now() - since);
    const words = (ms) => {
      const s = Math.floor(ms / 1000);
      const two = (n) => String(n).padStart(2, "0");
      return s < 3600 ? `${Math.floor(s / 60)}:${two(s % 60)}` : `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
    };
    const tell = (message) => {
      if (window.opener && !window.opener.closed) window.opener.postMessage({ mark, ...message }, "*"); // holds no secret
    };
    const tick = () => {
      write("elapsed", words(elapsed()));
      write("clock", new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }));
      write("go", since === null ? (spent ? "Go on" : "Start") : "Pause");
      const lost = Date.now() - heard > 3500;
      if (heard) write("foot", lost ? "The main window does not answer: it was closed, or is being loaded anew." : "Keys and clickers work here as in the main window.");
    };
    const turn = () => {
      if (since === null) since = Date.now();
      else {
        spent = elapsed();
        since = null;
      }
      tick();
    };
    at("go").addEventListener("click", turn);
    at("reset").addEventListener("click", () => {
      spent = 0;
      if (since !== null) since = Date.now();
      tick();
    });
    for (const button of document.querySelectorAll("button"))
      button.addEventListener("click", ({ detail }) => detail && button.blur()); // after a click, Space is the talk's again
    addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Tab" || event.key === "Enter") return;
      if (event.key === " " && event.target instanceof HTMLButtonElement) return; // presses the button
      event.preventDefault();
      tell({ type: "key", key: event.key, shiftKey: event.shiftKey, repeat: event.repeat });
    });
    addEventListener("message", ({ data, source }) => {
      if (source !== window.opener || !data || data.mark !== mark) return;
      heard = Date.now();
      if (data.type === "timer") turn();
      if (data.type !== "show") return;
      document.documentElement.classList.toggle("dark", data.theme === "dark");
      write("place", data.place);
      write("title", data.now.title);
      write("facts", data.now.facts);
      write("note", data.now.note);
      at("next").hidden = !data.next;
      write("next-title", data.next ? data.next.title : "");
      write("next-note", data.next ? data.next.note : "");
      tick();
    });
    setInterval(tick, 250);
    setInterval(() => tell({ type: "hello" }), 1000);
    tick();
    tell({ type: "hello" });
  }

  const notes = {
    window: null,
    data: () => null,
    onKey: () => {},

    get isOpen() {
      return Boolean(notes.window && !notes.window.closed);
    },

    /** Open the notes, or bring them to the front. */
    open() {
      const asked = window.open("", NAME, "popup,width=960,height=620");
      if (!asked) return false;
      notes.window = asked;
      if (!written(asked)) {
        const page = `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Speaker notes</title><style>${STYLE}</style></head><body>${BODY}<script>(${inside})(${JSON.stringify(MARK)})</scr` + "ipt></body></html>";
        asked.document.open();
        asked.document.write(page);
        asked.document.close();
      }
      asked.focus();
      notes.send();
      return true;
    },

    /** Start or pause the timer; false if the notes are not open. */
    timer() {
      if (notes.isOpen) notes.window.postMessage({ mark: MARK, type: "timer" }, TARGET);
      return notes.isOpen;
    },

    /** Tell the notes window, if it is open, what is on the screen. */
    send() {
      const data = notes.isOpen && notes.data();
      if (data) notes.window.postMessage({ mark: MARK, type: "show", ...data }, TARGET);
    },
  };

  /** Are the notes in this window already? A file that was loaded anew may not look into the window it opened before. */
  function written(asked) {
    try {
      return Boolean(asked.document.getElementById("elapsed"));
    } catch {
      return true;
    }
  }

  /** Is it the notes window that this page opened, perhaps before it was loaded anew? */
  function ours(source) {
    if (source === notes.window) return true;
    try {
      return source.opener === window && source.name === NAME;
    } catch {
      return location.protocol === "file:"; // every file has an origin of its own: the mark has to do
    }
  }

  addEventListener("message", ({ data, source }) => {
    if (!data || data.mark !== MARK || !source || !ours(source)) return;
    notes.window = source;
    if (data.type === "hello") notes.send();
    else if (data.type === "key" && typeof data.key === "string") notes.onKey(data);
  });

  DP.notes = notes;
})((window.DominoPlayer = window.DominoPlayer || {}));
