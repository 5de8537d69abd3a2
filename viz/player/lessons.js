/* The lessons: a claim, a recorded round in the player, something to try, a question with its answer.

   const l = DominoLessons.mount(element, {data, run: async (id) => served, theme: "auto"|"light"|"dark", hash: true});
   DominoLessons.open(element, {styles: url, data: url, run: async (id) => served, …}) fetches what is missing and follows the page's theme.
   l.theme(name) · l.goto(id or number) · l.state() -> {at, id, done, player} · l.destroy()

   `data` is what viz.lessons.build returns, `run` gives a served trace; `library` (present.js) and `onEvent` are the player's. Needs the player's files. The address says
   #lesson=ID, and in a talk also the view that is shown; which lessons were answered is kept in this browser. Once the runs are there no server is needed. */
window.DominoLessons = (() => {
  "use strict";
  const STORE = "dt-lessons";
  const PREFIX = "#lesson=";
  let serial = 0;

  /** An element: el("p.dl-name", {title: "…"}, child, …). Strings become text nodes, never HTML. */
  function el(spec, attributes, ...children) {
    const [tag, ...classes] = spec.split(".");
    const element = DominoPlayer.parts.h(tag, attributes, ...children);
    if (classes.length) element.className = classes.join(" ");
    return element;
  }

  /** Text, tokens and glossary terms of a computed sentence. */
  const rich = (spans) =>
    spans.map(([kind, text, key]) =>
      kind === "token" ? el("code.dl-token", null, text) : kind === "term" ? DominoPlayer.parts.term(key, text) : text,
    );

  function stored() {
    try {
      return JSON.parse(localStorage.getItem(STORE)) || {};
    } catch {
      return {}; // private window, or not ours: begin anew
    }
  }

  class Lessons {
    constructor(element, { data, run, library = {}, onEvent = () => {}, theme = "auto", hash = true }) {
      this.lessons = data.lessons;
      this.order = data.runs;
      this.ask = run;
      this.hash = hash;
      this.themeName = theme;
      this.served = new Map(); // run id -> promise of its trace
      this.turn = 0;
      this.prefix = `dl-${++serial}`;
      const kept = stored();
      this.done = new Set(Array.isArray(kept.done) ? kept.done : []);
      this.root = el("div.dl");
      element.replaceChildren(this.root);
      if (!this.lessons.length) {
        this.root.append(el("p.dl-empty", null, "There are no lessons here: they need the recorded runs that come with the project."));
        this.player = null;
        return;
      }
      this.build();
      this.player = DominoPlayer.mount(this.stage, {
        theme,
        downloads: false,
        library: { run: (id) => this.trace(id), ...library, partner: (shown) => this.partner(shown.id) || library.partner?.(shown) || null },
        onEvent: (name, detail) => {
          if (name === "compare" && detail.on && !detail.runs) this.besideByKey();
          this.place(name);
          onEvent(name, detail);
        },
      });
      this.media = matchMedia("(prefers-color-scheme: dark)");
      this.onMedia = () => this.theme(this.themeName);
      this.media.addEventListener("change", this.onMedia);
      this.theme(theme);
      const view = DominoPlayer.readHash();
      this.onHash = () => this.asked() >= 0 && this.asked() !== this.at && this.show(this.asked()).then(() => this.talk());
      addEventListener("hashchange", this.onHash);
      this.show(Math.max(0, this.asked() >= 0 ? this.asked() : this.index(kept.at)), { quiet: this.asked() < 0 }).then(() => this.talk(view));
    }

    /** Present, if the address asks for it: where a talk stood, or else the lesson's round. */
    async talk(view = DominoPlayer.readHash()) {
      const { presenter } = this.player;
      if (this.asked() < 0 || !view.present || view.lesson !== this.lesson.id) return;
      if (view.run) await presenter.show(view).catch((error) => this.fail(error));
      presenter.enter();
    }

    /** In a talk the address says which view is shown; else it names the lesson alone. */
    place(event) {
      if (!this.hash || !["round", "scoring", "compare", "present"].includes(event)) return;
      const { presenter } = this.player;
      if (presenter.on || event === "present") DominoPlayer.address.show({ lesson: this.lesson.id, ...(presenter.on ? presenter.view() : {}) });
    }

    /** The run that this lesson puts beside the one it shows; null if there is none. */
    partner(id) {
      const { picture, actions } = this.lesson;
      return (id === picture.run && actions.find(({ beside }) => beside)?.beside) || null;
    }

    index(id) {
      return this.lessons.findIndex((lesson) => lesson.id === id);
    }

    /** The lesson that the address asks for, −1 if none. */
    asked() {
      return this.hash && location.hash.startsWith(PREFIX) ? this.index(decodeURIComponent(location.hash.slice(PREFIX.length).split("&")[0])) : -1;
    }

    build() {
      this.pills = this.lessons.map((lesson, k) => el("button.dl-pill", { type: "button", title: lesson.title, onclick: () => this.show(k, { focus: true }) }, String(k + 1)));
      this.count = el("span.dl-count");
      this.again = el("button.dl-link", { type: "button", onclick: () => this.restart() }, "Start over");
      this.back = el("button.dl-button", { type: "button", onclick: () => this.show(this.at - 1, { focus: true }) }, "← Previous");
      this.next = el("button.dl-button.dl-main", { type: "button", onclick: () => this.show(this.at + 1, { focus: true }) });
      this.nav = el(
        "nav.dl-nav",
        { "aria-label": "Lessons" },
        el("ol.dl-pills", null, ...this.pills.map((pill) => el("li", null, pill))),
        el("p.dl-progress", { "aria-live": "polite" }, this.count, this.again),
      );
      this.kicker = el("p.dl-kicker");
      this.title = el("h2.dl-title", { tabindex: "-1" });
      this.claim = el("p.dl-claim");
      this.head = el("div.dp.dl-head", null, this.kicker, this.title, this.claim);
      this.stage = el("div.dl-stage");
      this.trouble = el("p.dl-trouble", { role: "alert", hidden: true });
      this.picture = el("section.dl-picture", { "aria-label": "The recorded round" }, this.trouble, this.stage);
      this.body = el("div.dl-body");
      this.doing = el("section.dl-try");
      this.asking = el("section.dl-ask");
      this.rest = el("div.dp.dl-rest", null, this.body, this.doing, this.asking, el("div.dl-turn", null, this.back, this.next));
      this.root.append(this.nav, this.head, this.picture, this.rest);
      for (const part of [this.head, this.rest]) DominoPlayer.parts.tips(part);
    }

    // ---- one lesson

    show(at, { focus = false, quiet = false } = {}) {
      this.at = Math.max(0, Math.min(this.lessons.length - 1, at));
      const lesson = this.lesson;
      this.kicker.textContent = `Lesson ${this.at + 1} of ${this.lessons.length}`;
      this.title.textContent = lesson.title;
      this.claim.replaceChildren(...rich(lesson.claim));
      this.body.replaceChildren(
        ...lesson.body.map((text) => el("p", null, ...rich(text))),
        ...(lesson.table ? [grid(lesson.table)] : []),
        ...(lesson.bars ? [bars(lesson.bars)] : []),
        ...(lesson.source ? [el("p.dl-source", null, lesson.source)] : []),
      );
      this.showTry();
      this.showQuestion();
      this.back.disabled = this.at === 0;
      const following = this.lessons[this.at + 1];
      this.next.textContent = following ? `Next: ${following.title} →` : "That was the last lesson";
      this.next.disabled = !following;
      this.showProgress();
      if (!quiet && this.hash) DominoPlayer.address.show({ lesson: lesson.id });
      this.keep();
      if (focus) {
        this.title.focus({ preventScroll: true });
        if (this.nav.getBoundingClientRect().top < 0) this.nav.scrollIntoView();
      }
      return this.draw();
    }

    get lesson() {
      return this.lessons[this.at];
    }

    showTry() {
      const { actions } = this.lesson;
      this.cycle = -1;
      this.doing.replaceChildren(
        el("h3", null, "Try it"),
        el("p", null, ...rich(this.lesson.try)),
        el(
          "div.dl-actions",
          { role: "group", "aria-label": "Try it" },
          ...actions.map((action) => el("button.dl-button", { type: "button", onclick: () => this.act(action) }, ...rich(action.label))),
          el("button.dl-link", { type: "button", onclick: () => this.draw(true) }, "Back to the lesson’s round"),
        ),
      );
    }

    showQuestion() {
      const id = `${this.prefix}-answer`;
      const answer = el("div.dl-answer", { id, hidden: true }, ...this.lesson.answer.map((text) => el("p", null, ...rich(text))));
      const button = el("button.dl-button", { type: "button", "aria-expanded": "false", "aria-controls": id }, "Show the answer");
      button.addEventListener("click", () => {
        answer.hidden = !answer.hidden;
        button.setAttribute("aria-expanded", String(!answer.hidden));
        button.textContent = answer.hidden ? "Show the answer" : "Hide the answer";
        this.done.add(this.lesson.id);
        this.keep();
        this.showProgress();
      });
      this.asking.replaceChildren(el("h3", null, "Question"), el("p", null, ...rich(this.lesson.question)), button, answer);
    }

    // ---- the picture

    /** The trace of a run, asked for once; a failed request may be repeated. */
    trace(id) {
      if (!this.served.has(id)) {
        const wish = Promise.resolve(this.ask(id));
        wish.catch(() => this.served.delete(id));
        this.served.set(id, wish);
      }
      return this.served.get(id);
    }

    /** Show the lesson's round as it begins. `near`: bring it into view. */
    draw(near = false) {
      return this.go({ ...this.lesson.picture, near });
    }

    act(action) {
      const state = { ...action, run: this.lesson.picture.run, near: true };
      if (action.cycle) {
        this.cycle = (this.cycle + 1) % action.cycle.length;
        state.node = action.cycle[this.cycle];
      }
      return this.go(state);
    }

    besideByKey() {
      const action = this.lesson.actions.find(({ beside }) => beside);
      if (action) this.act(action);
    }

    async go({ run, beside, round, scoring, node, by, inside, near }) {
      const turn = ++this.turn;
      const player = this.player;
      this.picture.dataset.show = this.lesson.picture.show.join(" ");
      this.picture.setAttribute("aria-busy", "true");
      player.play(false);
      try {
        const traces = await Promise.all([run, ...(beside ? [beside] : [])].map((id) => this.trace(id)));
        if (turn !== this.turn) return;
        this.trouble.hidden = true;
        const now = player.state();
        if (beside) {
          if (now.run !== run || now.with) player.load(traces[0]);
          player.compare(traces[0], traces[1]);
          player.goto(round);
          player.flush();
          if (by) player.stepBy(by);
        } else {
          if (now.run !== run || now.with) player.load(traces[0]);
          player.setState({ round, scoring, node, inside });
        }
        if (near && this.stage.getBoundingClientRect().top < 0) this.picture.scrollIntoView({ block: "start" });
        this.fetchRest();
      } catch (error) {
        if (turn === this.turn) this.fail(error);
      } finally {
        if (turn === this.turn) this.picture.removeAttribute("aria-busy");
      }
    }

    fail(error) {
      const text = error instanceof TypeError ? "The server does not answer, so this round could not be loaded." : error.message;
      this.trouble.replaceChildren(`${text} `, el("button.dl-link", { type: "button", onclick: () => this.draw() }, "Try again"));
      this.trouble.hidden = false;
    }

    /** Fetch the other lessons' runs one by one, so that the server may go away. */
    async fetchRest() {
      if (this.fetching) return;
      this.fetching = true;
      try {
        for (const id of this.order) await this.trace(id);
      } catch {
        this.fetching = false; // asked for again with the next lesson, which says so if it fails
      }
    }

    // ---- progress, theme, state

    showProgress() {
      this.pills.forEach((pill, k) => {
        const { id, title } = this.lessons[k];
        const done = this.done.has(id);
        pill.classList.toggle("dl-done", done);
        if (k === this.at) pill.setAttribute("aria-current", "step");
        else pill.removeAttribute("aria-current");
        pill.setAttribute("aria-label", `Lesson ${k + 1}: ${title}${done ? " (answered)" : ""}`);
      });
      const answered = this.lessons.filter(({ id }) => this.done.has(id)).length;
      this.count.textContent = answered ? `${answered} of ${this.lessons.length} answered` : "";
      this.again.hidden = this.count.parentElement.hidden = !answered;
    }

    restart() {
      this.done.clear();
      this.show(0, { focus: true });
    }

    keep() {
      try {
        localStorage.setItem(STORE, JSON.stringify({ at: this.lesson.id, done: [...this.done] }));
      } catch {
        /* private window: progress lasts as long as the page */
      }
    }

    theme(name) {
      this.themeName = ["light", "dark"].includes(name) ? name : "auto";
      const dark = this.themeName === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : this.themeName === "dark";
      for (const part of [this.root, this.head, this.rest]) if (part) part.dataset.theme = dark ? "dark" : "light";
      this.player?.theme(this.themeName);
      return this;
    }

    goto(which) {
      const at = typeof which === "number" ? which - 1 : this.index(which);
      if (at >= 0 && at < this.lessons.length) this.show(at);
      return this;
    }

    /** Where the visitor stands, as plain data. */
    state() {
      return { at: this.at + 1, id: this.lesson?.id ?? null, done: [...this.done], player: this.player?.state() ?? null };
    }

    destroy() {
      if (this.player) {
        removeEventListener("hashchange", this.onHash);
        this.media.removeEventListener("change", this.onMedia);
        this.player.destroy();
      }
      this.root.remove();
    }
  }

  function grid({ caption, head, rows, marked, words }) {
    const kind = (j) => (words.includes(j) ? { class: "dl-words" } : {});
    return el(
      "table.dl-table",
      null,
      el("caption", null, caption),
      el("thead", null, el("tr", null, ...head.map((name, j) => el("th", { scope: "col", ...kind(j) }, name)))),
      el(
        "tbody",
        null,
        ...rows.map((row, k) =>
          el(marked.includes(k) ? "tr.dl-marked" : "tr", null, ...row.map((cell, j) => el(j ? "td" : "th", { ...(j ? {} : { scope: "row" }), ...kind(j) }, ...rich(cell)))),
        ),
      ),
    );
  }

  /** Stacked bars to one scale, with their numbers in a table. */
  function bars({ caption, names, rows }) {
    const most = Math.max(...rows.map(({ values }) => values.reduce((a, b) => a + b, 0)));
    const span = { colspan: String(names.length + 1) };
    return el(
      "table.dl-table.dl-bars",
      null,
      el("caption", null, caption),
      el("thead", null, el("tr", null, el("td"), ...names.map((name) => el("th", { scope: "col" }, el(`span.dl-swatch.dp-sw-${name}`, { "aria-hidden": "true" }), name)))),
      el(
        "tbody",
        null,
        ...rows.flatMap(({ label, values }) => [
          el("tr", null, el("th", { scope: "row" }, label), ...values.map((value) => el("td", null, value.toFixed(2)))),
          el(
            "tr.dl-bar-row",
            { "aria-hidden": "true" },
            el("td", span, el("div.dl-bar", null, ...values.map((value, k) => el(`i.dp-sw-${names[k]}`, { style: `width:${(100 * value) / most}%` })))),
          ),
        ]),
      ),
    );
  }

  async function fetched(url) {
    const answer = await fetch(url);
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    return found;
  }

  const style = (url) =>
    new Promise((done, fail) => {
      if ([...document.styleSheets].some(({ href }) => href === url)) return done();
      const link = el("link", { rel: "stylesheet", href: url, onload: () => done(), onerror: () => fail(new TypeError(url)) });
      document.head.append(link);
    });

  const mount = (element, options) => new Lessons(element, options);

  async function open(element, { styles, data, run, ...more }) {
    try {
      const [found] = await Promise.all([fetched(data), style(styles)]);
      const theme = () => (document.body.classList.contains("dark") ? "dark" : "light");
      const lessons = mount(element, { ...more, data: found, run, theme: theme() });
      new MutationObserver(() => lessons.theme(theme())).observe(document.body, { attributeFilter: ["class"] });
      return lessons;
    } catch (error) {
      const text = error instanceof TypeError ? "The server does not answer: check that it is still running." : error.message;
      element.replaceChildren(
        el("p", { role: "alert", style: "padding: 24px 20px" }, `${text} `, el("button", { type: "button", onclick: () => open(element, { styles, data, run, ...more }) }, "Try again")),
      );
      return null;
    }
  }

  return { mount, open, PREFIX };
})();
