/* The address hash: everything that a link carries, as text and back. Never throws on what an address may say.

   A *view* is plain data: {tab, lesson, filters, run, with, round, by, at, scoring, node, inside, stops, present}; fields that
   are missing are null or left out. A *stop* is a view of one or two runs with a note: {run, with, round, by, at,
   scoring, node, note}. `by`: "round", "position" (`at`: the step, 0 …) or "race" (`at`: ms of the recorded clock). Runs are named by the hash of their content, so that a link means the same everywhere.

   DominoPlayer.link.encode(view) -> "#run=…" · decode(hash) -> view · cleanStop(anything) -> stop or null
   await link.pack(stops) -> text for `stops` · await link.unpack(text) -> stops (Error with one sentence if damaged)
   DominoPlayer.address.view · show(view) · talk({stops, present}) · hold(promise): the address of this page */
(function (DP) {
  "use strict";
  const TABS = ["explore", "compare", "lessons", "benchmarks"];
  const SCORERS = ["conditional", "static", "marginal"];
  const VIEW = ["tab", "lesson", "filters", "run", "with", "round", "by", "at", "scoring", "node", "inside"];
  const TALK = ["stops", "present"];
  const MOST_STOPS = 200;
  const MOST_NOTE = 2000; // characters
  const MOST_HASH = 60000; // characters of an address that are looked at
  const MOST_UNPACKED = 1 << 20; // bytes: a small link may unpack to anything

  const whole = (low, high) => (text) => (/^-?\d{1,9}$/.test(text) && Number(text) >= low && Number(text) <= high ? Number(text) : null);
  const matching = (pattern) => (text) => (pattern.test(text) ? text : null);
  const READ = {
    tab: (text) => (TABS.includes(text) ? text : null),
    lesson: matching(/^[a-z0-9-]{1,64}$/),
    filters: (text) => {
      const pairs = text.split(",").map((pair) => pair.split(":"));
      return pairs.every((pair) => pair.length === 2 && pair.every(Boolean)) && pairs.length < 40 ? Object.fromEntries(pairs) : null;
    },
    run: matching(/^[A-Za-z0-9_-]{1,64}$/),
    with: matching(/^[A-Za-z0-9_-]{1,64}$/),
    round: whole(1, 1e6),
    by: matching(/^(round|position|race)$/),
    at: whole(0, 1e7),
    scoring: (text) => (SCORERS.includes(text) ? text : null),
    node: whole(-2, 1e6),
    inside: whole(0, 1e5),
    stops: matching(/^[01][A-Za-z0-9_-]+$/),
    present: (text) => (text === "1" ? true : null),
  };
  const WRITE = { filters: (filters) => Object.entries(filters).map((pair) => pair.join(":")).join(","), present: () => "1" };
  const blank = (value) => value === null || value === undefined || value === false || value === "";

  /** The view that an address asks for: only fields that make sense. */
  function decode(hash) {
    const view = {};
    const text = String(hash || "").replace(/^#/, "");
    if (text.length > MOST_HASH) return view;
    const parts = new URLSearchParams(text);
    for (const name of [...VIEW, ...TALK]) {
      const found = parts.has(name) ? READ[name](parts.get(name)) : null;
      if (!blank(found)) view[name] = found;
    }
    if (view.lesson) view.tab = "lessons";
    return view;
  }

  /** "#…" for a view, "" for an empty one. Explore and a tab that a lesson implies are not named. */
  function encode(view) {
    const parts = new URLSearchParams();
    for (const name of [...VIEW, ...TALK]) {
      const value = view[name];
      if (blank(value) || (name === "tab" && (value === "explore" || view.lesson))) continue;
      const text = WRITE[name] ? WRITE[name](value) : String(value);
      if (text) parts.set(name, text);
    }
    const text = String(parts).replace(/%3A/g, ":").replace(/%2C/g, ",");
    return text ? `#${text}` : "";
  }

  // ---- stops

  /** A stop made of whatever was given (a file, a link, storage); null if it names no run. */
  function cleanStop(given) {
    if (typeof given !== "object" || given === null) return null;
    const stop = {};
    for (const name of ["run", "with", "round", "by", "at", "scoring", "node"]) {
      const value = blank(given[name]) ? null : READ[name](String(given[name]));
      if (value !== null) stop[name] = value;
    }
    if (!stop.run) return null;
    if (!stop.with || stop.by !== "position") for (const name of ["by", "at"]) delete stop[name];
    stop.note = typeof given.note === "string" ? given.note.slice(0, MOST_NOTE) : "";
    if (typeof given.title === "string" && given.title) stop.title = given.title.slice(0, 120);
    return stop;
  }

  /** A clean list of stops. Throws Error (one sentence) if it is no list or holds none that can be used. */
  function cleanStops(list) {
    if (!Array.isArray(list)) throw new Error("This is not a list of stops.");
    const stops = list.slice(0, MOST_STOPS).map(cleanStop).filter(Boolean);
    if (list.length && !stops.length) throw new Error("None of these stops names a run.");
    return stops;
  }

  const base64 = (bytes) => {
    let text = "";
    for (let k = 0; k < bytes.length; k += 4096) text += String.fromCharCode(...bytes.subarray(k, k + 4096));
    return btoa(text).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  };
  const bytesOf = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));

  /** All bytes of a stream; Error if there are more than `most`. */
  async function drain(stream, most) {
    const reader = stream.getReader();
    const chunks = [];
    let size = 0;
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      chunks.push(value);
      size += value.length;
      if (size > most) {
        await reader.cancel();
        throw new Error("too long");
      }
    }
    const all = new Uint8Array(size);
    let at = 0;
    for (const chunk of chunks) {
      all.set(chunk, at);
      at += chunk.length;
    }
    return all;
  }

  /** Bytes through a (de)compressor. Its writing side fails together with its reading side, which is the one awaited. */
  function through(transform, bytes, most) {
    const writer = transform.writable.getWriter();
    writer.write(bytes).catch(() => {});
    writer.close().catch(() => {});
    return drain(transform.readable, most);
  }

  /** Stops as text for an address: the names of the runs once, then a row a stop, deflated where that is shorter. */
  async function pack(stops) {
    if (!stops.length) return "";
    const runs = [...new Set(stops.flatMap((s) => [s.run, s.with]).filter(Boolean))];
    const rows = stops.map((s) => {
      const row = [runs.indexOf(s.run), s.round ?? 0, s.scoring ? SCORERS.indexOf(s.scoring) : -1, s.note || "", s.with ? runs.indexOf(s.with) : -1, s.node ?? null, s.by === "position" ? (s.at ?? 0) : null];
      while (row.length > 3 && [null, -1, ""].includes(row.at(-1))) row.pop();
      return row;
    });
    const plain = new TextEncoder().encode(JSON.stringify([runs, rows]));
    if (!window.CompressionStream) return `0${base64(plain)}`;
    const packed = await through(new CompressionStream("deflate-raw"), plain, Infinity);
    return packed.length < plain.length ? `1${base64(packed)}` : `0${base64(plain)}`;
  }

  async function unpack(text) {
    try {
      let bytes = bytesOf(text.slice(1));
      if (text[0] === "1") bytes = await through(new DecompressionStream("deflate-raw"), bytes, MOST_UNPACKED);
      const [runs, rows] = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
      return cleanStops(
        rows.map(([run, round, scoring, note, beside, node, at]) => ({
          run: runs[run], round: round || null, scoring: SCORERS[scoring], note, with: runs[beside], node, by: Number.isInteger(at) ? "position" : null, at,
        })),
      );
    } catch {
      throw new Error("The stops in this link cannot be read: it may have been cut when it was copied.");
    }
  }

  // ---- the address of this page

  const pick = (view, names) => Object.fromEntries(names.filter((name) => !blank(view[name])).map((name) => [name, view[name]]));
  let held = 0;

  const address = {
    /** What the address says now. */
    get view() {
      return decode(location.hash);
    },

    /** The address of `view` elsewhere than in the address bar; `base`: the page, without a hash. */
    href(view, base = location.href.replace(/#.*$/, "")) {
      return base + encode(view);
    },

    /** The visitor now looks at this view; what the talk put into the address stays. Another run, tab or lesson is a
        new entry of the history, so that Back returns to the one before; a talk leaves no such trail. */
    show(view) {
      if (held) return;
      const now = address.view;
      const next = { ...pick(view, VIEW), ...pick(now, TALK) };
      const place = (v) => JSON.stringify([v.lesson ? "lessons" : v.tab === "explore" ? null : v.tab, v.lesson, v.run, v.with].map((x) => x ?? null));
      const empty = !pick(now, VIEW).run && !now.lesson && !now.tab;
      write(next, place(now) !== place(next) && !empty && !now.present);
    },

    /** Put the talk's fields into the address, or (null) take them out. */
    talk(fields) {
      if (held) return;
      const next = { ...address.view, ...fields };
      write(next, Boolean(next.present) && !address.view.present);
    },

    /** While `work` goes on (the page follows an address), nobody writes it. */
    async hold(work) {
      held++;
      try {
        return await work;
      } finally {
        held--;
      }
    },
  };

  function write(view, push) {
    const text = encode(view);
    if (text === location.hash || text === encode(address.view)) return;
    const url = location.pathname + location.search + text; // not the hash alone: a page's <base> would take the rest away
    const state = { ...history.state, domino: true }; // tells Back and Forward from a link that was typed or clicked
    if (push) history.pushState(state, "", url);
    else history.replaceState(state, "", url);
  }

  DP.link = { encode, decode, cleanStop, cleanStops, pack, unpack, MOST_STOPS };
  DP.address = address;
})((window.DominoPlayer = window.DominoPlayer || {}));
