/* The page and its address: which tab, run, round, lesson or filter a link asks for; Back and Forward; what a reload
   finds again. The text of an address is made and read in player/link.js; page.js shows runs. */
window.DominoLinks = (() => {
  "use strict";
  const { tabs, config, address, recordedText, show, hint, pickRun, pickPair, chooseImport, openTab, lost, setTheme, follow } = DominoPage.inside;
  const bar = DominoPlayer.address;
  const TITLES = { explore: "Explore", compare: "Compare", lessons: "Lessons", benchmarks: "Benchmarks" };
  const LIVE = "dt-live";

  const recorded = new Map(config.groups.flatMap((group) => group.runs.map((run) => [run.id, { ...run, group }])));
  const parts = {}; // lessons and benchmarks, once they are open
  const wanted = new Map(); // tab name -> view that waits for an import
  let first = null; // what a tab that is being made is to show
  let release = () => {};
  let usualFilters = { filters: {}, own: {} }; // of the Benchmarks tab as it opens
  let resuming = null; // tab that goes on with a run over a reload
  let now = "explore";

  const tabOf = (view) => (view.lesson ? "lessons" : view.tab || (view.filters ? "benchmarks" : "explore"));

  function selected() {
    const title = document.querySelector(".dt-tabs [role=tab][aria-selected=true]")?.textContent.trim();
    return Object.keys(TITLES).find((name) => TITLES[name] === title) || "explore";
  }

  // ---- runs by the hash of their content

  /** The served trace of a recorded or own run; null if there is none of this name. */
  async function traceOf(id) {
    if (recorded.has(id)) return JSON.parse(await recordedText(id));
    const kept = await DominoKept.find(id);
    return kept ? { ...JSON.parse(kept.text), own: !kept.imported } : null;
  }

  /** Where the files of a run are, and its name. */
  function placeOf(id) {
    if (recorded.has(id)) return { base: `recorded/${id}`, title: recorded.get(id).title };
    for (const tab of Object.values(tabs))
      for (const own of tab.own) {
        const pane = (own.ids || []).indexOf(id);
        if (pane >= 0) return { base: `live/${own.token}/${pane}`, title: own.titles[pane] };
      }
    return null;
  }

  /** What the player needs to know of runs beyond its own (see player/present.js). */
  function library() {
    return {
      run: async (id) => {
        let trace;
        try {
          trace = await traceOf(id);
        } catch (error) {
          throw new Error(lost(error));
        }
        if (!trace) throw new Error(`The run ${id} is not here: import its file first.`);
        return trace;
      },
      title: (id) => (recorded.has(id) ? `${recorded.get(id).title} · ${recorded.get(id).group.title}` : placeOf(id)?.title || ""),
      partner: (run) => {
        const known = recorded.get(run.id);
        if (!known) return null;
        const methods = [...config.compared].filter((method) => method !== known.method);
        return methods.map((method) => known.group.runs.find((other) => other.method === method)?.id).find(Boolean) || known.group.runs.find((other) => other.id !== run.id)?.id || null;
      },
      link: (hash) => (config.publicUrl || location.href.replace(/#.*$/, "")) + hash,
      theme: setTheme,
      static: config.static,
    };
  }

  // ---- going where an address leads

  function go(view) {
    const name = tabOf(view);
    const tab = tabs[name];
    if (first || !(tab ? tab.player : name in parts)) return waitFor(view);
    now = name;
    if (selected() !== name) openTab(TITLES[name]);
    return bar.hold(
      (async () => {
        if (tab) await openRuns(tab, view);
        else if (name === "benchmarks" && parts.benchmarks) filter(view);
        await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      })(),
    );
  }

  /** The view's tab does not exist yet: open it and keep the view for it; the address stays as it is until then. */
  function waitFor(view) {
    release();
    first = view;
    now = tabOf(view);
    bar.hold(new Promise((done) => (release = done)));
    setTimeout(release, 15000); // whatever failed to come
    if (selected() !== tabOf(view)) openTab(TITLES[tabOf(view)]);
  }

  /** Show the runs of a view in a tab, or the tab's usual ones if it names none. */
  async function openRuns(tab, view) {
    const ids = [view.run, view.with].filter(Boolean);
    const turn = ++tab.turn;
    if (!view.run) {
      if (!tab.player.run) await usual(tab);
    } else {
      const now = tab.player.state();
      if (now.run !== view.run || (now.with || null) !== (view.with || null)) {
        let traces;
        try {
          traces = await Promise.all(ids.map(traceOf));
        } catch (error) {
          if (turn === tab.turn) tab.say(lost(error), "error");
          return;
        }
        if (turn !== tab.turn) return;
        const missing = ids.find((_, k) => !traces[k]);
        if (missing) return unknown(tab, missing, view);
        show(tab, traces, ids.map((id) => placeOf(id) || { base: "", title: "" }));
        tab.say(ids.every((id) => recorded.has(id)) ? hint(traces) : "From this browser: it keeps your latest runs.");
        told(tab);
      }
      tab.player.setState(DominoPlayer.readHash(DominoPlayer.link.encode({ scoring: null, node: null, ...view })));
      if (!view.scoring) tab.player.scoring(null);
    }
    tab.player.flush();
    if (view.present) tab.player.presenter.enter();
  }

  const usual = (tab) => (tab.name === "compare" ? pickPair(tab.name, {}) : pickRun(tab.name, config.groups[0].runs[0].id));

  /** A link to a run that is not here: say so, and offer to take its file in. */
  function unknown(tab, id, view) {
    wanted.set(tab.name, view);
    tab.shown = [];
    tab.player.clear(`This link is to the run ${id}, which is not on this page: import its file to see it.`);
    const button = document.createElement("button");
    button.type = "button";
    button.className = "dp-present-open dt-import";
    button.textContent = "Import";
    button.addEventListener("click", () => chooseImport(tab.name));
    tab.player.panes[0].tree.empty.append(button);
    tab.say("");
  }

  /** A file came in: if a link waits for it, go on to what the link asks for. */
  function imported(tab, trace) {
    const view = wanted.get(tab.name);
    wanted.delete(tab.name);
    if (view && (view.run === trace.run_id || view.with === trace.run_id)) go(view);
  }

  // ---- the tabs

  /** A tab's player is there: show what the address asks for, else the usual; true if this takes care of it. */
  function mounted(tab) {
    restore(tab);
    if (!first || tabOf(first) !== tab.name || resuming === tab.name) return resuming === tab.name;
    if (!first.run && !config.groups.length) return arrived();
    openRuns(tab, first).finally(arrived);
    return true;
  }

  /** What was waited for is on the screen. */
  function arrived() {
    first = resuming = null;
    release();
    return false;
  }

  /** Lessons or Benchmarks are open: `part` is a promise of what DominoLessons or DominoBenchmarks mounted. */
  async function opened(name, part) {
    parts[name] = await part;
    const charts = name === "benchmarks" ? parts[name] : null;
    if (charts) {
      usualFilters = charts.state();
      if (first && tabOf(first) === name) filter(first);
      for (const event of ["click", "change", "keyup"]) charts.root.addEventListener(event, () => setTimeout(() => selected() === name && write(name), 50));
    }
    if (first && tabOf(first) === name) arrived();
    if (selected() === name) write(name);
  }

  function filter(view) {
    const part = parts.benchmarks;
    const { filters, own } = part;
    const state = { filters: {}, own: {} };
    for (const [name, text] of Object.entries(view.filters || {})) {
      const [kind, choices] = name.startsWith("own-") ? ["own", own] : ["filters", filters];
      const key = name.replace(/^own-/, "");
      const choice = Object.hasOwn(choices || {}, key) ? choices[key] : null;
      const option = choice?.options.find(([value]) => String(value) === text);
      if (option) state[kind][key] = option[0];
    }
    for (const kind of ["filters", "own"]) state[kind] = { ...usualFilters[kind], ...state[kind] };
    part.setState(state);
  }

  /** Filters that are not as usual, for the address. */
  function filtersOf(state) {
    const found = {};
    for (const [prefix, kind] of [["", "filters"], ["own-", "own"]])
      for (const [name, value] of Object.entries(state[kind])) if (value !== usualFilters[kind][name] && /^[^:,]+$/.test(String(value))) found[prefix + name] = String(value);
    return found;
  }

  /** The address of a tab that has no player of its own. */
  function write(name) {
    if (!(name in parts)) return;
    const part = parts[name]; // null: it could not be opened
    if (name === "lessons") bar.show({ tab: name, lesson: part?.lesson?.id });
    else bar.show({ tab: name, filters: part ? filtersOf(part.state()) : null });
  }

  /** The player of a tab tells: menus and files follow what it shows, also after a talk went through other runs. */
  function told(tab, event) {
    if (event && !["round", "compare"].includes(event)) return;
    if (resuming === tab.name) arrived();
    const now = tab.player?.state();
    if (!now?.run || (tab.live && !tab.live.over && !tab.live.elsewhere)) return;
    const ids = [now.run, now.with].filter(Boolean);
    const key = ids.join();
    if (tab.told === key) return;
    const places = ids.map(placeOf);
    if (!places.every(Boolean)) return;
    tab.told = key;
    tab.shown = places;
    const runs = ids.map((id) => recorded.get(id));
    if (runs.every(Boolean) && runs.every((run) => run.group === runs[0].group) && tab.name === "compare" && runs.length > 1) tab.pick = { group: runs[0].group.key, methods: runs.map((run) => run.variant) };
    tab.tell();
  }

  /** The recorded run that a tab shows, with its group; null for anything else. */
  function onScreen(tab) {
    const id = tab.player?.state().run;
    return (tab.shown[0]?.base || "").startsWith("recorded/") ? recorded.get(id) || null : null;
  }

  function switched() {
    const name = selected();
    if (name === now) return;
    now = name;
    arrived(); // the visitor went elsewhere before the link's view was there
    write(name);
  }
  for (const event of ["click", "keyup"]) document.addEventListener(event, () => requestAnimationFrame(switched));

  addEventListener("popstate", () => go(bar.view));

  // ---- a reload

  /** Own runs of this session come back into the menu. */
  async function restore(tab) {
    if (tab.name !== "explore") return;
    const runs = await DominoKept.mine();
    const there = new Set(tab.own.map((own) => own.token));
    tab.own.push(...runs.filter((run) => !there.has(run.token)).map(({ token, title, titles, ids, imported }) => ({ id: `own:${token}`, token, title, titles, ids, imported, panes: ids.length })));
    tab.told = null;
    if (tab.own.length) told(tab), tab.tell();
  }

  /** The served traces of an own run: from the server while it has them, else from this browser. */
  async function tracesOf(own) {
    const kept = await DominoKept.get(own.token);
    let texts = kept?.texts || own.texts;
    if (!texts) {
      const answers = await Promise.all([...Array(own.panes).keys()].map((pane) => fetch(address(`live/${own.token}/${pane}.json`))));
      for (const answer of answers) if (!answer.ok) throw new Error((await answer.json()).error);
      texts = await Promise.all(answers.map((answer) => answer.text()));
    }
    const traces = texts.map((text) => ({ ...JSON.parse(text), own: !own.imported }));
    own.ids = traces.map((trace) => trace.run_id);
    if (!kept) keep(own, texts);
    return traces;
  }

  function keep(own, texts) {
    return DominoKept.put({ token: own.token, ids: own.ids, titles: own.titles, title: own.title, imported: Boolean(own.imported), texts });
  }

  /** Remember which run is being followed (null: none), so that a reload goes on with it. */
  function following(tab, ticket) {
    try {
      const all = JSON.parse(sessionStorage.getItem(LIVE) || "{}");
      if (ticket) all[tab.name] = { token: ticket.token, methods: ticket.methods };
      else delete all[tab.name];
      sessionStorage.setItem(LIVE, JSON.stringify(all));
    } catch {
      /* private window: a reload ends the run */
    }
  }

  /** A run that was followed before the reload is not on the server any more: as if it had not been. */
  function gone(tab) {
    following(tab, null);
    if (resuming === tab.name) resuming = null;
    if (tab.player) mounted(tab);
  }

  function stored() {
    try {
      return JSON.parse(sessionStorage.getItem(LIVE) || "{}") || {};
    } catch {
      return {};
    }
  }

  waitFor(bar.view);
  queueMicrotask(() => {
    for (const [name, ticket] of Object.entries(stored())) {
      if (!tabs[name] || typeof ticket?.token !== "string" || !Array.isArray(ticket.methods)) continue;
      if (tabOf(bar.view) === name) resuming = name;
      follow(tabs[name], ticket, true);
    }
  });

  return { parts, library, mounted, opened, told, imported, onScreen, tracesOf, keep, following, gone };
})();
