/* This visitor's own runs, kept in the browser, so that a reload or a link finds them again without the server.

   One record a run: {token, ids, titles, title, imported, texts, session, saved, size}; `texts`: what the server served, one per
   pane, `ids`: their run ids. The menu of a tab gets those of its own session back; a link finds any of them by id.
   Where the browser keeps nothing (private window), runs last as long as the page; that is no error. */
window.DominoKept = (() => {
  "use strict";
  const MOST_BYTES = 48 << 20; // in all; a run of 100 rounds with 16 nodes takes about 0.5 MB
  const MOST_RUNS = 40;
  const MOST_AGE = 7 * 24 * 3600e3; // ms
  const SESSION = "dt-session";

  /** A name for this tab's session; reloads keep it, another visitor at this machine gets another one. */
  const session = (() => {
    try {
      if (!sessionStorage.getItem(SESSION)) sessionStorage.setItem(SESSION, crypto.getRandomValues(new Uint32Array(4)).join("-"));
      return sessionStorage.getItem(SESSION);
    } catch {
      return "";
    }
  })();

  const done = (request) =>
    new Promise((good, bad) => {
      request.onsuccess = () => good(request.result);
      request.onerror = () => bad(request.error);
    });

  let opened = null;
  function database() {
    opened ??= new Promise((good) => {
      let request;
      try {
        request = indexedDB.open("dominotree", 1);
      } catch {
        return good(null);
      }
      request.onupgradeneeded = () => {
        const store = request.result.createObjectStore("runs", { keyPath: "token" });
        store.createIndex("ids", "ids", { multiEntry: true });
      };
      request.onsuccess = () => good(request.result);
      request.onerror = request.onblocked = () => good(null);
    });
    return opened;
  }

  /** `work(store)` in one transaction; `otherwise` where the browser keeps nothing. */
  async function within(mode, work, otherwise) {
    const base = await database();
    if (!base) return otherwise;
    try {
      return await work(base.transaction("runs", mode).objectStore("runs"));
    } catch (error) {
      console.info("runs are not kept:", error?.message); // full, or taken away by the browser
      return otherwise;
    }
  }

  /** Keep a run; the oldest make room for it. */
  const put = (run) =>
    within("readwrite", async (store) => {
      const size = run.texts.reduce((sum, text) => sum + text.length, 0);
      if (size > MOST_BYTES) return false;
      const others = (await done(store.getAll())).filter((r) => r.token !== run.token).sort((a, b) => b.saved - a.saved);
      let room = MOST_BYTES - size;
      others.forEach((other, k) => {
        room -= other.size;
        if (room < 0 || k >= MOST_RUNS - 1 || Date.now() - other.saved > MOST_AGE) store.delete(other.token);
      });
      await done(store.put({ ...run, session, saved: Date.now(), size }));
      return true;
    }, false);

  const get = (token) => within("readonly", async (store) => (await done(store.get(token))) || null, null);

  /** The served text of the run with this id, null if it is not kept. */
  const find = (id) =>
    within("readonly", async (store) => {
      const run = await done(store.index("ids").get(id));
      return run ? { token: run.token, imported: run.imported, pane: run.ids.indexOf(id), title: run.titles[run.ids.indexOf(id)], text: run.texts[run.ids.indexOf(id)] } : null;
    }, null);

  /** The runs of this session, newest first. */
  const mine = () => within("readonly", async (store) => (await done(store.getAll())).filter((r) => r.session === session).sort((a, b) => b.saved - a.saved), []);

  return { put, get, find, mine, MOST_BYTES, MOST_RUNS };
})();
