/* The shell around the player: shows recorded runs, follows live ones, saves and takes in files.

   Gradio's controls call DominoPage.*; the player (DominoPlayer) draws. A tab's `shown` says which run is on the
   screen, and every export is of that run. Live rounds come over one EventSource, which the browser itself resumes
   behind the last event it has seen. All addresses are relative to the page. */
(() => {
  "use strict";

  const config = JSON.parse(document.getElementById("dt-config").textContent);
  const address = (path) => new URL(path, document.baseURI).href;
  const groups = new Map(config.groups.map((group) => [group.key, group]));
  const OWN = "own"; // the group of this visitor's live and imported runs

  class Tab {
    constructor(name) {
      this.name = name;
      this.player = null;
      this.element = null;
      this.waiting = null; // what to show once the player is there
      this.status = null;
      this.message = ["", "info"];
      this.shown = []; // [{base, title}], one per pane: where the files of the run on the screen are
      this.live = null; // the run being followed
      this.turn = 0; // raised by everything that changes what is shown: late answers to older wishes are dropped
      this.own = []; // this visitor's runs: {id, title, panes}
      this.tell = () => {};
      this.pick = { group: config.comparedGroup, methods: [...config.compared] };
    }

    /** Run `draw(player)` now, or when the tab's player comes into being (a tab is built when it is first opened). */
    with(draw) {
      if (this.player) draw(this.player);
      else this.waiting = draw;
    }

    say(text, kind = "info", action = null) {
      this.message = [text, kind, action];
      if (!this.status) return;
      this.status.textContent = text;
      this.status.title = text;
      this.status.dataset.kind = kind;
      this.status.setAttribute("aria-live", kind === "busy" ? "off" : "polite"); // no reading out of every round
      if (action) {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "dt-inline";
        button.textContent = action.title;
        button.addEventListener("click", action.run);
        this.status.append(" ", button);
      }
    }
  }

  const tabs = { explore: new Tab("explore"), compare: new Tab("compare") };

  // ---- recorded runs: fetched once, kept as text so that every player gets its own copy

  const texts = new Map();
  function recordedText(id) {
    if (!texts.has(id)) {
      const wish = fetch(address(`recorded/${id}.json${config.static ? ".gz" : ""}?v=${config.version}`)).then((answer) => {
        if (!answer.ok) throw new Error(`This recorded run could not be loaded (${answer.status}).`);
        return config.static ? DominoPlayer.reading.unpacked(answer) : answer.text();
      });
      wish.catch(() => texts.delete(id));
      texts.set(id, wish);
    }
    return texts.get(id);
  }

  /** For a talk: every recorded run is here before it is asked for, so that the server may go. One after the other;
      one that does not come is asked for again, and told of, when it is wanted. */
  async function fetchAll() {
    for (const run of config.groups.flatMap((group) => group.runs)) await recordedText(run.id).catch(() => null);
  }

  async function showRecorded(tab, runs) {
    const turn = ++tab.turn;
    try {
      const traces = (await Promise.all(runs.map((run) => recordedText(run.id)))).map((text) => JSON.parse(text));
      if (turn !== tab.turn) return;
      show(tab, traces, runs.map((run) => ({ base: `recorded/${run.id}`, title: run.title })));
      tab.say(hint(traces), config.live ? "hint" : "info");
    } catch (error) {
      if (turn !== tab.turn) return;
      tab.say(lost(error), "error");
      tab.told = null; // the menus return to what is still on the screen
      DominoLinks.told(tab);
    }
  }

  function show(tab, traces, shown) {
    tab.shown = shown;
    stale(tab, false);
    if (tab.live) tab.live.elsewhere = true; // until its next start, the visitor looks at something else
    tab.with((player) => (traces.length > 1 ? player.compare(traces[0], traces[1]) : player.load(traces[0])));
    files(tab);
  }

  /** What a visitor can do with a recorded run; where there is no prompt field, what was asked. */
  function hint(traces) {
    if (!config.live) return `Prompt: ${traces[0].prompt.text}`;
    const [steps, run] = traces.length > 1 ? ["Two recorded runs in step", "Run both"] : ["A recorded run", "Run"];
    return `${steps}: move through the rounds with ← and →, or press ${run} to decode the prompt now.`;
  }

  function recordedNote(trace) {
    const header = trace.header || {};
    const day = (header.created || "").slice(0, 10);
    return `Recorded${day ? ` ${day}` : ""} on ${header.machine || "an unnamed machine"}.`;
  }

  const NO_ANSWER = !config.static
    ? "The server does not answer: check that it is still running."
    : location.protocol === "file:"
      ? "A browser lets no page on disk read the files beside it: put the folder on a web server, for example with python -m http.server."
      : "The web server does not answer; what has been opened still works.";
  const lost = (error) => (error instanceof TypeError ? NO_ANSWER : error.message);

  // ---- live runs

  /** `resumed`: the run was followed before the page was loaded anew. */
  function follow(tab, ticket, resumed = false) {
    drop(tab);
    DominoLinks.following(tab, ticket);
    const live = {
      token: ticket.token,
      titles: ticket.methods.map((method) => config.methods[method] || method),
      traces: [], // one per pane, growing
      rounds: 0,
      over: false,
      resumed, // it was followed before the page was loaded anew
      failed: "", // why, once it has
      refused: false, // … before it began to decode
      elsewhere: false, // the visitor looks at another run meanwhile
      offer: null,
    };
    tab.live = live;
    stale(tab, true); // what was shown stays, dimmed, until the first round is there
    running(tab, true);
    live.late = setTimeout(() => late(tab, live), 5000);
    live.source = new EventSource(address(`live/${live.token}/events`));
    live.source.onmessage = (message) => {
      if (tab.live === live) event(tab, live, JSON.parse(message.data));
    };
    live.source.onerror = () => {
      if (tab.live !== live || live.over) return;
      const closed = live.source.readyState === EventSource.CLOSED;
      if (closed && resumed && !live.traces.length) {
        live.over = true;
        clearTimeout(live.late);
        running(tab, false);
        stale(tab, false);
        tab.say("");
        DominoLinks.gone(tab);
      } else if (closed) setTimeout(() => tab.live === live && !live.over && ended(tab, live, "The connection to this run was lost."), 300); // never while the page is left
      else tab.say("Connection lost; trying again …", "busy");
    };
  }

  function event(tab, live, data) {
    const title = live.titles[data.pane];
    switch (data.type) {
      case "waiting":
        tab.say(
          data.engine === "loading"
            ? "The model is loading; your run starts as soon as it is ready."
            : data.place
              ? `Waiting: ${data.place === 1 ? "one run" : `${data.place} runs`} before yours, about ${data.seconds} s.`
              : "Your run is next.",
          "busy",
          live.offer,
        );
        break;
      case "start":
        live.traces[data.pane] = { layout: [], tokens: {}, own: true, ...data.trace };
        live.elsewhere = false;
        stale(tab, false);
        live.turn = ++tab.turn;
        tab.shown = [{ base: `live/${live.token}/${data.pane}`, title }];
        tab.with((player) => player.load(structuredClone(live.traces[data.pane])));
        files(tab);
        tab.say(`${title}: decoding …`, "busy");
        if (live.resumed) tab.tell(); // its prompt into the field
        break;
      case "round": {
        live.rounds += 1;
        clearTimeout(live.late);
        const trace = live.traces[data.pane];
        trace.rounds.push(data.round);
        trace.layout.push(data.layout);
        Object.assign(trace.tokens, data.tokens);
        if (live.turn === tab.turn) tab.player?.append({ round: data.round, layout: data.layout, tokens: data.tokens });
        if (!live.stopping && !(Date.now() < live.quiet)) tab.say(`${title}: decoding, round ${data.round.index} …`, "busy");
        break;
      }
      case "finish": {
        const trace = live.traces[data.pane];
        Object.assign(trace, { summary: data.summary, header: data.header, run_id: data.run_id });
        Object.assign(trace.tokens, data.tokens);
        trace.rounds.forEach((round, k) => (round.counterfactual = data.counterfactuals[k]));
        if (live.turn === tab.turn) tab.player?.finish(data);
        break;
      }
      case "error":
        live.failed = data.message;
        live.refused = data.refused === true;
        break;
      case "end":
        ended(tab, live, data.state === "failed" ? live.failed || "The run failed." : "", data.state);
        break;
    }
  }

  function ended(tab, live, error, state = "failed") {
    live.over = true;
    clearTimeout(live.late);
    live.source.close();
    DominoLinks.following(tab, null);
    running(tab, false);
    stale(tab, false);
    const done = live.traces.filter(whole);
    remember(tab, live, error ? "failed" : state === "cancelled" ? "stopped" : "");
    tab.tell();
    if (error) {
      tab.say(error, "error");
      if (!done.length && !live.refused && !live.elsewhere) {
        tab.shown = [];
        tab.with((player) => player.clear("This run failed before its first round.").setError(error));
        files(tab);
      } else if (done.length && live.turn === tab.turn) tab.with((player) => player.setError(error));
      return;
    }
    if (state === "cancelled") tab.say(done.length ? "Stopped; the rounds so far are kept." : "Stopped before the first round.");
    else tab.say(live.traces.map((trace, pane) => sum(live.titles[pane], trace)).join("  ·  "));
    if (done.length && !live.elsewhere) pickOwn(tab, tab.own[0].id, tab.message[0]);
  }

  function sum(title, trace) {
    const s = trace.summary;
    const tau = s.tau == null ? "–" : s.tau.toFixed(2);
    const speed = s.tokens_per_second ? `, ${s.tokens_per_second.toFixed(0)} tokens/s` : "";
    const count = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
    return `${title}: ${count(s.new_tokens, "token")} in ${count(s.rounds, "round")}, τ ${tau}${speed}`;
  }

  function late(tab, live) {
    if (tab.live !== live || live.over || live.rounds || !config.groups.length) return;
    const [text, kind] = tab.message;
    live.offer = {
      title: "Watch a recorded run meanwhile",
      run: () => (tab.name === "compare" ? pickPair(tab.name, {}) : pickRun(tab.name, config.groups[0].runs[0].id)),
    };
    tab.say(text, kind, live.offer);
  }

  /** Stop following: the run of this tab is no longer wanted. */
  function drop(tab) {
    const live = tab.live;
    if (!live || live.over) return;
    live.over = true;
    clearTimeout(live.late);
    live.source.close();
    DominoLinks.following(tab, null);
    remember(tab, live, "stopped");
    fetch(address(`live/${live.token}/stop`), { method: "POST" }).catch(() => {}); // it ends without us, too
  }

  function stop(name) {
    const tab = tabs[name];
    const live = tab.live;
    if (!live || live.over || live.stopping) return;
    live.stopping = true;
    tab.say("Stopping …", "busy");
    fetch(address(`live/${live.token}/stop`), { method: "POST" }).catch((error) => ended(tab, live, lost(error)));
  }

  // A tab that is closed needs to say nothing: the server gives up a run that nobody listens to. So a reload goes on with it.

  /** The answer to Run: a token to follow, or why it was refused; then what is shown stays. */
  function ticket(name, value) {
    if (!value) return;
    const tab = tabs[name];
    clearTimeout(tab.asked);
    const answer = JSON.parse(value);
    if (answer.error) {
      running(tab, Boolean(tab.live && !tab.live.over));
      tab.say(answer.error, "error");
      if (tab.live) tab.live.quiet = Date.now() + 6000; // the run that goes on does not talk over it
      return;
    }
    follow(tab, answer);
  }

  function starting(name, values) {
    const tab = tabs[name];
    opened(tab, "live", false);
    tab.say("Starting …", "busy");
    clearTimeout(tab.asked);
    tab.asked = setTimeout(() => unanswered(tab), 3000);
    return values;
  }

  /** Run was pressed and no ticket came: say so here (Gradio's own pop-ups are hidden). */
  async function unanswered(tab) {
    try {
      await fetch(address("status"), { cache: "no-store" });
      tab.asked = setTimeout(() => tab.say("The server did not take this run: press Run again.", "error"), 7000);
    } catch (error) {
      tab.say(lost(error), "error");
    }
  }

  // ---- this visitor's own runs

  /** Has something been decoded that can be shown? One new token is the prefill's, without a round. */
  const whole = (trace) => trace.rounds.length > 0 || trace.summary.new_tokens > 0;

  function remember(tab, live, note) {
    const panes = live.traces.filter(whole).length;
    if (!panes) return;
    const number = tab.own.length + 1;
    const title = `${number} · ${live.titles.slice(0, panes).join(" and ")}${note ? ` (${note})` : ""}`;
    tab.own.unshift({ id: `${OWN}:${live.token}`, title, token: live.token, panes, titles: live.titles });
  }

  /** Show one of the own runs as the server keeps it: laid out along the whole text, like a recorded run. */
  async function pickOwn(tab, id, note = "") {
    const own = tab.own.find((run) => run.id === id);
    if (!own) return;
    const turn = ++tab.turn;
    try {
      const traces = await DominoLinks.tracesOf(own);
      if (turn !== tab.turn) return;
      const at = tab.player?.state?.().round;
      const same = tab.shown.length === 1 && own.panes === 1 && tab.shown[0].base === `live/${own.token}/0`;
      show(tab, traces, traces.map((_, pane) => ({ base: `live/${own.token}/${pane}`, title: own.titles[pane] })));
      if (same && at != null) tab.player?.goto?.(at);
      tab.say(note || own.title);
    } catch (error) {
      if (turn === tab.turn) tab.say(lost(error), "error");
    }
  }

  // ---- menus

  const update = (changes) => ({ __type__: "update", ...changes });

  function ownGroup(tab) {
    return { key: OWN, title: "Your runs", runs: tab.own };
  }

  /** The menus of a tab follow the run on the screen: a recorded one, or one of the visitor's own (in Explore). */
  function menu(name) {
    const tab = tabs[name];
    const on = DominoLinks.onScreen(tab);
    // What a visitor typed stays; a recorded run's prompt follows the run.
    const typed = document.querySelector(`#${name}-prompt textarea`)?.value;
    const prompt = on && (!typed || config.groups.some((g) => g.prompt === typed)) ? update({ value: on.group.prompt }) : update({});
    if (name === "compare") return on ? [update({ value: on.group.key }), ...tab.pick.methods.map((value) => update({ value })), prompt] : [update({}), update({}), update({}), prompt];
    const choices = [...config.groups, ...(tab.own.length ? [ownGroup(tab)] : [])].map((g) => [g.title, g.key]);
    const list = (runs) => runs.map((r) => [r.title, r.id]);
    const own = tab.own.find((run) => tab.shown[0]?.base.startsWith(`live/${run.token}/`));
    if (tab.live && !tab.live.over && tab.live.traces.length && !tab.live.elsewhere) return [update({ choices }), update({}), update({ value: tab.live.traces[0].prompt.text })];
    if (own) return [update({ choices, value: OWN }), update({ choices: list(tab.own), value: own.id }), update({})];
    if (!on) return [update({ choices }), update({}), update({})];
    return [update({ choices, value: on.group.key }), update({ choices: list(on.group.runs), value: on.id }), prompt];
  }

  function pickGroup(name, key, current) {
    const tab = tabs[name];
    const group = key === OWN ? ownGroup(tab) : groups.get(key);
    const title = config.groups.flatMap((g) => g.runs).find((r) => r.id === current)?.title;
    const run = group.runs.find((r) => r.title === title) || group.runs[0];
    pickRun(name, run.id);
    const choices = group.runs.map((r) => [r.title, r.id]);
    return [update({ choices, value: run.id }), group.prompt == null ? update({}) : update({ value: group.prompt })];
  }

  function pickRun(name, id) {
    const tab = tabs[name];
    if (id.startsWith(`${OWN}:`)) return pickOwn(tab, id);
    const run = config.groups.flatMap((g) => g.runs).find((r) => r.id === id);
    const now = tab.player?.state();
    if (now?.run === id && !now.with) return null; // a menu that was opened and left as it was
    return run && showRecorded(tab, [run]);
  }

  function pickPair(name, change) {
    const tab = tabs[name];
    if (change.group) tab.pick.group = change.group;
    if (change.method) tab.pick.methods[change.side] = change.method;
    const group = groups.get(tab.pick.group) || config.groups[0];
    if (!group) return update({});
    tab.pick.group = group.key;
    const runs = tab.pick.methods.map((variant) => group.runs.find((run) => run.variant === variant));
    const missing = tab.pick.methods.find((_, side) => !runs[side]);
    if (missing) {
      const way = config.live ? " Press Run both to decode it now." : "";
      tab.say(`There is no recorded run of ${config.methods[missing]} on this prompt.${way}`, "error");
    } else showRecorded(tab, runs);
    return change.group ? update({ value: group.prompt }) : update({});
  }

  // ---- files

  async function download(name, what) {
    const tab = tabs[name];
    const here = () => DominoPlayer.saving.save(tab.player.panes.map((pane) => pane.run), what);
    if (config.static || what === "run.html") return here().catch((error) => tab.say(lost(error), "error"));
    for (const pane of tab.shown) {
      try {
        const answer = await fetch(address(`${pane.base}/${what}`));
        if (!answer.ok) throw new Error((await answer.json()).error);
        const link = document.createElement("a");
        link.href = URL.createObjectURL(await answer.blob());
        link.download = /filename="([^"]+)"/.exec(answer.headers.get("content-disposition"))?.[1] || what;
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 10000);
      } catch (error) {
        if (error instanceof TypeError) return here(); // the server is gone: the browser has the runs, too
        tab.say(lost(error), "error");
      }
    }
  }

  function chooseImport(name) {
    const input = document.createElement("input");
    input.type = "file";
    input.accept = ".json,.gz,application/json,application/gzip";
    input.addEventListener("change", () => input.files[0] && takeImport(name, input.files[0]));
    input.click();
  }

  /** A file's trace, ready to be shown: {token, trace}. Read by the server; where there is none, by this browser. */
  async function taken(file) {
    try {
      if (config.static) throw new TypeError("no server");
      const answer = await fetch(address("import"), { method: "POST", body: file });
      const data = await answer.json();
      if (!answer.ok) throw new Error(data.error);
      return data;
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      const trace = await DominoPlayer.reading.served(file, { bytes: config.importBytes, unpacked: config.importUnpacked });
      return { token: `here-${trace.run_id}-${imports++}`, trace, texts: [JSON.stringify(trace)] };
    }
  }
  let imports = 1;

  async function takeImport(name, file) {
    const tab = tabs[name];
    const most = config.importBytes;
    if (file.size > most) return tab.say(`${file.name} is larger than ${most >> 20} MB, which is all this page takes.`, "error");
    tab.say(`Reading ${file.name} …`, "busy");
    const turn = ++tab.turn;
    try {
      const data = await taken(file);
      const method = data.trace.header?.settings?.method;
      const title = `${tab.own.length + 1} · ${config.methods[method] || method || "run"} (${file.name})`;
      const own = { id: `${OWN}:${data.token}`, title, token: data.token, panes: 1, titles: [title], ids: [data.trace.run_id], imported: true, texts: data.texts };
      tab.own.unshift(own);
      DominoLinks.keep(own, [JSON.stringify(data.trace)]);
      if (turn !== tab.turn) return tab.tell();
      show(tab, [data.trace], [{ base: `live/${data.token}/0`, title }]);
      tab.tell();
      tab.say(`${file.name}: ${recordedNote(data.trace)}`);
      DominoLinks.imported(tab, data.trace);
    } catch (error) {
      if (turn === tab.turn) tab.say(lost(error), "error");
    }
  }

  // ---- controls

  const part = (tab, name) => document.getElementById(`${tab.name}-${name}`);

  function running(tab, on) {
    const button = part(tab, "stop");
    if (button) button.disabled = !on;
  }

  const stale = (tab, on) => tab.element?.classList.toggle("dt-stale", on);

  /** File buttons are for the run on the screen; without one there is nothing to save. */
  function files(tab) {
    for (const name of ["rounds-csv", "nodes-csv", "trace-json", "run-html"]) {
      const button = part(tab, name);
      if (button) button.disabled = !tab.shown.length;
    }
  }

  /** Set the controls' states; Gradio may put them on the page a few frames after the player. */
  function settle(tab, tries = 120) {
    if (tries && config.live && !part(tab, "stop")) {
      requestAnimationFrame(() => settle(tab, tries - 1));
      return;
    }
    running(tab, Boolean(tab.live && !tab.live.over));
    files(tab);
    part(tab, "more")?.setAttribute("aria-expanded", "false");
  }

  // Stop is heard here, in the frame of the click, and not through Gradio's event loop.
  document.addEventListener(
    "click",
    (event) => {
      const button = event.target instanceof Element && event.target.closest(".dt-stop");
      if (button) stop(button.id.split("-")[0]);
    },
    true,
  );

  // The prompt is one line high until it is written in (page.css); then it shows all of itself.
  document.addEventListener("focusin", (event) => {
    const field = event.target;
    if (field instanceof HTMLTextAreaElement && field.closest(".dt-bar")) {
      field.style.height = "auto";
      field.style.height = `${Math.min(field.scrollHeight + 2, 138)}px`;
    }
  });

  // On a narrow page some controls wait behind a button (page.css).
  function opened(tab, what, on) {
    const button = tab.phone?.querySelector(`[data-opens=${what}]`);
    if (!button) return;
    tab.phone.closest(".dt-tab").classList.toggle(`dt-open-${what}`, on);
    button.setAttribute("aria-expanded", String(on));
  }

  function mountPhone(name, element) {
    const tab = tabs[name];
    tab.phone = element;
    for (const button of element.querySelectorAll("button"))
      button.addEventListener("click", () => opened(tab, button.dataset.opens, button.getAttribute("aria-expanded") !== "true"));
  }

  let usual = config.budgets?.dominotree;
  /** The budget to show once this method was chosen: its usual one, unless the visitor has typed another. */
  function budgetFor(method, budget) {
    const before = usual;
    usual = config.budgets[method] ?? before;
    return update(Number(budget) === before ? { value: usual } : {});
  }

  function toggleSettings(name) {
    const tab = tabs[name];
    const open = part(tab, "settings").classList.toggle("dt-open");
    part(tab, "more").setAttribute("aria-expanded", open);
  }

  // ---- places given by Gradio

  function mount(name, element, tell) {
    const tab = tabs[name];
    tab.element = element;
    tab.tell = tell;
    const onEvent = (event, detail) => {
      if (event === "present" && detail.on) fetchAll();
      // `c` where there is no second run to show: the tab that has one
      if (event === "compare" && detail.on && !detail.runs) name === "compare" ? pickPair(name, {}) : openTab("Compare");
      else if (tab.player) DominoLinks.told(tab, event);
    };
    tab.player = DominoPlayer.mount(element, { theme: theme(), downloads: false, onEvent, hash: name, library: DominoLinks.library() });
    settle(tab);
    const linked = DominoLinks.mounted(tab);
    if (tab.waiting) tab.waiting(tab.player);
    else if (linked) return; // shown as the address says
    else if (!config.groups.length) tab.player.clear("No recorded runs are installed. Type a prompt and press Run.");
    else if (name === "compare") pickPair(name, {});
    else pickRun(name, config.groups[0].runs[0].id);
    tab.waiting = null;
  }

  function openTab(title) {
    const buttons = [...document.querySelectorAll('button[role="tab"]')];
    buttons.find((button) => button.textContent.trim() === title)?.click();
  }

  /** Lessons or Benchmarks: script, style and data are fetched when the tab is first opened. */
  async function openPart(name, place) {
    const folder = `player/${config.version}/`;
    try {
      await import(address(`${folder}${name}.js`));
    } catch {
      place.textContent = NO_ANSWER;
      return;
    }
    const files = { styles: address(`${folder}${name}.css`), data: address(`${name}.json`) };
    const run = async (id) => JSON.parse(await recordedText(id));
    const onEvent = (event, detail) => event === "present" && detail.on && fetchAll();
    const lessons = () => DominoLessons.open(place, { ...files, run, library: DominoLinks.library(), onEvent });
    DominoLinks.opened(name, name === "lessons" ? lessons() : DominoBenchmarks.open(place, files));
  }

  function mountStatus(name, element) {
    tabs[name].status = element;
    tabs[name].say(...tabs[name].message);
  }

  function mountHeader(element) {
    const badge = element.querySelector(".dt-badge");
    const button = element.querySelector(".dt-theme");
    button.addEventListener("click", () => setTheme(theme() === "dark" ? "light" : "dark"));
    if (!config.static) watchEngine(badge);
  }

  async function watchEngine(badge) {
    let wait = 1000;
    try {
      const state = await (await fetch(address("status"), { cache: "no-store" })).json();
      const words = { loading: "loading model …", ready: "ready", failed: "no model", off: "replay only" };
      badge.textContent = words[state.engine];
      badge.dataset.state = state.engine;
      badge.title = state.message;
      if (state.engine !== "loading") wait = 5000;
    } catch {
      badge.textContent = "offline";
      badge.dataset.state = "offline";
      badge.title = "The server does not answer; what is on the screen still works.";
      wait = 3000;
    }
    setTimeout(() => watchEngine(badge), wait);
  }

  // ---- light and dark

  const theme = () => (document.body.classList.contains("dark") ? "dark" : "light");

  function setTheme(name) {
    document.body.classList.toggle("dark", name === "dark");
    try {
      localStorage.setItem("dt-theme", name);
    } catch {
      /* private window: the choice lasts as long as the page */
    }
  }

  function storedTheme() {
    try {
      return localStorage.getItem("dt-theme");
    } catch {
      return null;
    }
  }

  /** Open a tab as soon as Gradio has made it: a link to a lesson leads there. */
  function openTab(title, tries = 600) {
    const button = [...document.querySelectorAll(".dt-tabs [role=tab]")].find((tab) => tab.textContent.trim() === title);
    if (button) button.click();
    else if (tries) requestAnimationFrame(() => openTab(title, tries - 1));
  }

  if (storedTheme()) setTheme(storedTheme());
  new MutationObserver(() => {
    for (const tab of Object.values(tabs)) tab.player?.theme(theme());
  }).observe(document.body, { attributeFilter: ["class"] });

  window.DominoPage = {
    mount, mountStatus, mountHeader, mountPhone, ticket, starting, stop, menu, pickGroup, pickRun, pickPair,
    download, chooseImport, takeImport, toggleSettings, openPart, budgetFor,
    inside: { tabs, config, address, recordedText, show, hint, pickRun, pickPair, chooseImport, openTab, lost, setTheme, follow }, // for links.js
    state: (name) => ({ shown: tabs[name].shown, message: tabs[name].message, live: tabs[name].live, player: tabs[name].player?.state() }),
  };
  if (config.groups.length) recordedText(config.groups[0].runs[0].id);
})();
