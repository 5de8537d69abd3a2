/* The player: owns a run (or two), the position in it and the controls. Load the other files first (see __init__.py).

   const p = DominoPlayer.mount(element, {theme: "auto"|"light"|"dark", onEvent(name, detail), downloads: true, hash: false});
   p.load(served) · p.append({round, layout, tokens}) · p.finish({summary, counterfactuals, header, run_id})
   p.clear(message) · p.setError(message) · p.goto(round) · p.scoring(name) · p.compare(a, b) · p.state() · p.setState(s)
   p.theme(name) · p.play(on) · p.destroy()
   `hash`: keep the address (true, or the name of the player's tab); `library`: where other runs come from (present.js).

   Rounds are counted from 1 outside, from 0 inside. Events: "round", "scoring", "select", "play", "compare", "download". */
(function (DP) {
  "use strict";
  if (!DP.parts || !DP.parts.Pane || !window.Plotly)
    throw new Error("player.js comes last: load vendor/plotly-basic.min.js and the other player files before it, in the order of viz.player.SCRIPTS.");
  const { h, term, tips, number, Run, stepsOf, Pane, NodePanel, WalkPanel, RoundTable, Comparison, pictureButtons, SCORERS, SCORER_TITLES, ANCHOR, BONUS, DASH, Inside, Presenter, StopsList, typing } = DP.parts;

  const SPEEDS = [0.5, 1, 2, 4, 8];
  const KEYS = [
    ["← →", "previous, next round"],
    ["Home End", "first, last round"],
    ["Space", "play or pause"],
    ["s", "next scorer's tree"],
    ["i", "inside the round: the build pop by pop, the verify walk"],
    ["c", "compare with the second run, or leave it"],
    ["p", "present: full screen, for a talk"],
    ["?", "this help"],
  ];
  const ICONS = {
    first: "M5 5v14M19 5l-10 7 10 7z",
    back: "M16 5l-10 7 10 7z",
    play: "M7 4.5v15l12-7.5z",
    pause: "M7 5v14M17 5v14",
    next: "M8 5l10 7-10 7z",
    last: "M19 5v14M5 5l10 7-10 7z",
  };

  function icon(name) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 24 24");
    svg.setAttribute("aria-hidden", "true");
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", ICONS[name]);
    svg.append(path);
    return svg;
  }

  class Player {
    constructor(element, { theme = "auto", onEvent = () => {}, downloads = true, hash = false, library = {} } = {}) {
      this.onEvent = onEvent;
      this.hash = hash;
      this.panes = [];
      this.pair = null; // [run, run] once compare() was called
      this.comparing = false;
      this.by = "round";
      this.at = 0; // round (or, by text position, index into this.stops)
      this.chosen = null; // scorer; null: each run's own
      this.live = false;
      this.following = false;
      this.speed = 1;
      this.timer = null;
      this.frame = null;
      this.active = null; // pane whose node the panel shows
      this.build(element, downloads);
      this.presenter = new Presenter(this, { library });
      this.stopsList = new StopsList(this.presenter);
      this.helpButton.before(this.stopsList.opener, this.presenter.opener);
      this.inside = new Inside(this, icon);
      this.root.append(this.stopsList.root);
      this.theme(theme);
      this.media = matchMedia("(prefers-color-scheme: dark)");
      this.onMedia = () => this.theme(this.themeName);
      this.media.addEventListener("change", this.onMedia);
      this.onKey = (event) => this.key(event);
      document.addEventListener("keydown", this.onKey, true);
      this.observer = new ResizeObserver(() => this.resized());
      this.observer.observe(this.root);
      for (const pane of this.panes) this.observer.observe(pane.treeHost); // its height may change where the page's does not
      this.clear("Open a recorded run, or run a prompt of your own.");
    }

    // ---- building -----------------------------------------------------------------------------------------

    build(element, downloads) {
      const button = (name, label, action) => h("button.icon", { type: "button", "aria-label": label, "data-tip": label, onclick: action }, icon(name));
      this.playButton = button("play", "Play (space)", () => this.play(!this.isPlaying));
      this.buttons = [
        button("first", "First round (Home)", () => this.move("first")),
        button("back", "Previous round (←)", () => this.move(-1)),
        this.playButton,
        button("next", "Next round (→)", () => this.move(1)),
        button("last", "Last round (End)", () => this.move("last")),
      ];
      this.slider = h("input.slider", { type: "range", min: 1, max: 1, step: 1, value: 1, "aria-label": "Round", oninput: () => this.seek(Number(this.slider.value) - 1) });
      this.sliderText = h("output.slider-text");
      this.speedSelect = h(
        "select.speed",
        { "aria-label": "Rounds per second", onchange: () => this.setSpeed(Number(this.speedSelect.value)) },
        ...SPEEDS.map((s) => h("option", { value: s, selected: s === 1 }, `${s}×`)),
      );
      this.scoringButtons = {};
      const segment = (name, title, tip) => {
        const count = h("span.count");
        const b = h("button.segment", { type: "button", "aria-pressed": "false", "data-term": tip, onclick: () => this.scoring(name) }, h("span", null, title), count);
        this.scoringButtons[name || "own"] = { b, count };
        return b;
      };
      this.scoringGroup = h(
        "div.segments",
        { role: "group", "aria-label": "Tree of which scorer" },
        segment(null, "Each run's own", null),
        ...SCORERS.map((s) => segment(s, SCORER_TITLES[s], s)),
      );
      
      this.comparison = new Comparison(this);
      this.scoringRow = h("div.scoring-row", null, this.comparison.modes, this.scoringGroup);
      const help = (this.helpButton = h("button.icon.help-button", { type: "button", "aria-label": "Keys and help (?)", "data-tip": "Keys (?)", onclick: () => this.help() }, "?"));
      // On a phone the toolbar stands at the foot of the window; what is used less waits behind this button.
      const more = () => this.moreButton.setAttribute("aria-expanded", String(this.toolbar.classList.toggle("dp-more-open")));
      this.moreButton = h("button.icon.more-button", { type: "button", "aria-label": "More controls", "aria-expanded": "false", onclick: more }, "⋯");
      this.downloads = h(
        "div.downloads",
        { hidden: !downloads },
        h("span", null, "Save "),
        ...[["rounds-csv", "Rounds CSV"], ["nodes-csv", "Nodes CSV"], ["json", "JSON"]].map(([kind, title]) =>
          h("button.link", { type: "button", "data-kind": kind, onclick: () => this.download(kind) }, title),
        ),
      );
      this.error = h("p.error", { role: "alert", hidden: true });
      this.heads = h("div.heads");
      this.toolbar = h(
        "div.toolbar",
        { role: "toolbar", "aria-label": "Rounds" },
        h("div.transport", null, ...this.buttons),
        h("div.seek", null, this.slider, this.sliderText),
        this.comparison.race.seekBox,
        this.speedSelect,
        this.comparison.race.paceSelect,
        help,
        this.moreButton,
      );
      this.body = h("div.panes");
      this.nodeHost = h("section.card.node", { "aria-label": "Token" });
      this.walkHost = h("section.card.walk-card", { "aria-label": "Verify walk" });
      this.tableHost = h("div.card.round-table");
      this.side = h("aside.side", null, this.comparison.summary, this.comparison.jumps, this.nodeHost, this.walkHost);
      this.dialog = h(
        "dialog.help",
        { "aria-label": "Keys" },
        h("h3", null, "Keys"),
        h("dl", null, ...KEYS.flatMap(([keys, what]) => [h("dt", null, ...keys.split(" ").map((k) => h("kbd", null, k))), h("dd", null, what)])),
        h("p", null, "They work wherever the focus is, except in text fields."),
        h("button", { type: "button", onclick: () => this.dialog.close() }, "Close"),
      );
      const frame = h("div.frame", null, this.error, this.heads, this.toolbar, this.scoringRow, this.body, this.comparison.race.root, this.side, h("div.foot", null, this.tableHost, pictureButtons(this), this.downloads));
      this.root = h("div", { class: "dp" }, frame, this.dialog);
      element.replaceChildren(this.root);
      this.hideTip = tips(this.root);
      this.nodePanel = new NodePanel(this.nodeHost);
      this.walk = new WalkPanel(this.walkHost, { onSelect: (node) => this.select(this.pane, node) });
      this.table = new RoundTable(this.tableHost, { onSelect: (node) => this.select(this.pane, node) });
      this.setPanes(1);
    }

    setPanes(count) {
      while (this.panes.length > count) {
        const pane = this.panes.pop();
        pane.tree.destroy();
        pane.head.remove();
        pane.holds.remove();
        pane.main.remove();
      }
      while (this.panes.length < count) {
        const pane = new Pane({
          onHover: (p, node) => this.hovered(p, node),
          onSelect: (p, node) => this.select(p, node),
          onRound: (p, k) => this.seekPane(p, k),
        });
        this.panes.push(pane);
        this.heads.append(pane.head);
        this.body.append(pane.main);
      }
      for (const pane of this.panes) {
        if (count === 1) this.heads.append(pane.head); // one run: over the controls; two: each over its own tree
        else pane.main.prepend(pane.head);
        (count === 1 ? this.scoringRow : pane.head).append(pane.holds);
      }
      this.panes.forEach((pane) => (pane.tree.box = null));
      this.active = this.panes[0];
      this.root.classList.toggle("dp-comparing", count === 2);
      this.scoringButtons.own.b.hidden = count < 2;
    }

    get isPlaying() {
      return this.comparison.racing ? this.comparison.race.running : Boolean(this.timer);
    }
    get pane() {
      return this.active || this.panes[0];
    }
    get run() {
      return this.panes[0].run;
    }

    // ---- runs ---------------------------------------------------------------------------------------------

    /** Show a finished or a starting run. Throws Error (one clear sentence) and changes nothing if it is not a trace. */
    load(served) {
      const run = served instanceof Run ? served : new Run(served);
      this.leaveCompare();
      this.setError("");
      this.pair = null;
      this.live = run.summary.rounds === undefined;
      this.following = this.live;
      this.chosen = null;
      this.first = run;
      this.panes[0].setRun(run, this.live);
      this.at = this.following ? Math.max(0, run.size - 1) : 0;
      this.ready(true);
      this.render();
      return this;
    }

    append(delta) {
      if (!this.first) throw new Error("append() needs a run: call load() first.");
      this.first.append(delta);
      if (this.following && !this.comparing) this.at = this.first.size - 1;
      if (!this.comparing) this.render();
      return this;
    }

    finish(end) {
      this.first.finish(end);
      this.live = false;
      this.following = false;
      this.panes[0].showTitle();
      this.panes[0].text.settle(this.first);
      this.render();
      return this;
    }

    clear(message) {
      this.play(false);
      this.inside.close();
      this.leaveCompare();
      this.first = null;
      this.pair = null;
      this.live = this.following = false;
      this.at = 0;
      this.setError("");
      this.panes[0].clear(message || "");
      this.nodePanel.show(null, 0, "", null);
      this.walkHost.replaceChildren();
      this.tableHost.hidden = true;
      this.ready(false);
      return this;
    }

    setError(message) {
      this.error.hidden = !message;
      this.error.textContent = message || "";
      if (message && this.live && this.first) {
        this.live = this.following = false;
        this.first.partial = true;
        this.panes[0].showTitle();
        this.render();
      }
      return this;
    }

    /** Two runs side by side, in step. */
    compare(a, b) {
      const runs = [a, b].map((t) => (t instanceof Run ? t : new Run(t)));
      this.play(false);
      if (!this.run || this.run.id !== runs[0].id) this.at = 0;
      this.pair = runs;
      this.first = this.first || runs[0];
      this.live = this.following = false;
      this.enterCompare();
      return this;
    }

    enterCompare() {
      this.comparing = true;
      this.by = "round";
      this.setPanes(2);
      this.panes.forEach((pane, i) => pane.setRun(this.pair[i]));
      this.chosen = null;
      this.positions();
      this.at = Math.min(this.at, this.last());
      this.ready(true);
      this.comparison.enter(this.pair);
      this.render();
      this.emit("compare", { on: true, runs: this.pair.map((r) => r.id) });
    }

    leaveCompare() {
      if (!this.comparing) return;
      this.comparing = false;
      this.by = "round";
      this.comparison.leave();
      this.setPanes(1);
      this.emit("compare", { on: false });
    }

    toggleCompare() {
      if (this.comparing) {
        const k = this.panes[0].k;
        const run = this.pair[0];
        this.leaveCompare();
        this.first = run;
        this.panes[0].setRun(run);
        this.at = Math.min(k, Math.max(0, run.size - 1));
        this.render();
      } else if (this.pair) this.enterCompare();
      else this.emit("compare", { on: true, runs: null });
    }

    // ---- position -----------------------------------------------------------------------------------------

    /** Text positions at which a round of either run starts. */
    positions() {
      this.stops = this.comparing ? stepsOf(this.panes.map((p) => p.run)) : [];
    }

    last() {
      if (!this.run) return 0;
      if (this.comparing && this.by === "position") return Math.max(0, this.stops.length - 1);
      return Math.max(0, ...this.panes.map((p) => p.run.size - 1));
    }

    move(step) {
      if (this.comparison.racing) return this.comparison.race.move(step);
      this.play(false);
      this.seek(step === "first" ? 0 : step === "last" ? this.last() : this.at + step);
    }

    /** Go to a round (1 …). */
    goto(round) {
      this.seek(Math.round(Number(round)) - 1);
      return this;
    }

    seek(at) {
      if (!this.run) return;
      const to = Math.max(0, Math.min(this.last(), at || 0));
      this.following = this.live && to === this.last();
      if (to === this.at) return;
      this.at = to;
      this.panes.forEach((pane) => (pane.node = null));
      this.render();
    }

    seekPane(pane, k) {
      this.play(false);
      this.active = pane;
      if (this.comparing && this.by === "position") {
        const at = this.stops.indexOf(pane.run.starts[k]);
        this.seek(at);
      } else this.seek(k);
    }

    stepBy(name) {
      if (!this.comparing || name === this.by) return;
      const pane = this.panes[0];
      const start = pane.run.starts[pane.k];
      this.by = name;
      this.at = name === "round" ? pane.k : Math.max(0, this.stops.indexOf(start));
      this.render();
    }

    play(on) {
      if (this.comparison.racing) {
        this.comparison.race.play(on);
        return this;
      }
      clearTimeout(this.timer);
      this.timer = null;
      if (on && this.run && this.last() > 0) {
        if (this.at >= this.last() && !this.live) this.seek(0);
        const tick = () => {
          if (this.at >= this.last() && !this.live) return this.play(false);
          this.seek(this.at + 1);
          this.timer = setTimeout(tick, 1000 / this.speed);
        };
        this.timer = setTimeout(tick, 1000 / this.speed);
      }
      const playing = Boolean(this.timer);
      if (playing !== this.playing) {
        this.playing = playing;
        this.showPlaying(playing);
        this.panes.forEach((p) => p.headline.setAttribute("aria-live", playing ? "off" : "polite"));
        this.emit("play", { on: playing });
      }
      return this;
    }

    showPlaying(playing) {
      if (this.playButton.dataset.on === String(playing)) return;
      this.playButton.dataset.on = String(playing);
      this.playButton.replaceChildren(icon(playing ? "pause" : "play"));
      this.playButton.setAttribute("aria-label", playing ? "Pause (space)" : "Play (space)");
    }

    setSpeed(speed) {
      this.speed = speed;
      this.speedSelect.value = String(speed);
      if (this.timer) this.play(true);
    }

    // ---- scoring and nodes --------------------------------------------------------------------------------

    /** Whose tree to draw: "conditional", "static", "marginal", or null for the run's own. */
    scoring(name) {
      if (name !== null && !SCORERS.includes(name)) throw new Error(`Unknown scorer: ${name}.`);
      if (name === this.chosen) return this;
      this.chosen = name;
      this.render();
      this.emit("scoring", { scoring: name });
      return this;
    }

    nextScoring() {
      if (!this.run || !this.run.size) return;
      const choices = [...(this.comparing ? [null] : []), ...SCORERS.filter((s) => this.panes.some((p) => p.run.scorers(p.k).includes(s)))];
      if (choices.length < 2) return;
      const now = this.comparing ? this.chosen : this.panes[0].scorer(this.chosen);
      this.scoring(choices[(choices.indexOf(now) + 1) % choices.length]);
    }

    hovered(pane, node) {
      if (!pane.run || !pane.run.size) return;
      this.showNode(node === null ? this.pane : pane, node);
    }

    select(pane, node) {
      if (this.inside.isOpen) return this.inside.jump(node);
      this.active = pane;
      pane.node = node === pane.node ? null : node;
      pane.tree.select(pane.node);
      this.panes.forEach((p) => p !== pane && p.tree.select((p.node = null)));
      this.showNode(pane, null);
      this.showWalk();
      this.writeHash();
      this.emit("select", { run_id: pane.run.id, round: pane.k + 1, node: pane.node });
    }

    showNode(pane, hovered) {
      const node = hovered === null ? pane.node : hovered;
      this.nodePanel.show(pane.run, pane.k, pane.scorer(this.chosen), node);
    }

    showWalk() {
      const { run, k } = this.pane;
      const scorer = this.pane.scorer(this.chosen);
      const key = `${run.serial}/${k}/${this.comparing}/${scorer}`;
      if (this.walkKey !== key) this.walk.show(run, k, this.comparing ? run.title : "", scorer);
      this.walkKey = key;
      this.table.show(run, k, scorer);
    }

    // ---- drawing ------------------------------------------------------------------------------------------

    /** Draw in the next frame; several changes before it cost one drawing. */
    render() {
      if (this.frame) return;
      this.frame = requestAnimationFrame(() => this.flush());
    }

    /** Draw now what render() has put off. */
    flush() {
      cancelAnimationFrame(this.frame);
      this.frame = null;
      if (!this.run) return;
      this.at = Math.min(this.at, this.last());
      this.presenter.prepare();
      this.panes.forEach((pane) => {
        if (this.comparing && this.by === "position") {
          const position = this.stops[this.at];
          pane.k = 0;
          while (pane.k + 1 < pane.run.size && pane.run.starts[pane.k + 1] <= position) pane.k++;
        } else pane.k = Math.max(0, Math.min(this.at, pane.run.size - 1));
      });
      this.comparison.prepare();
      if (!this.comparison.racing) for (const pane of this.panes) pane.draw(this.chosen, this.live && pane.run === this.first);
      this.comparison.update();
      this.showControls();
      if (this.pane.run.size) {
        this.showNode(this.pane, null);
        this.showWalk();
        this.tableHost.hidden = false;
      } else {
        this.nodePanel.show(null, 0, "", null);
        this.walkHost.replaceChildren();
        this.walkKey = null;
        this.tableHost.hidden = true;
      }
      this.hideTip();
      this.presenter.update();
      this.inside.update();
      this.stopsList.moved();
      this.writeHash();
      const { run, k } = this.panes[0];
      if (run.size && (this.told !== run.serial || this.toldRound !== this.at)) {
        this.told = run.serial;
        this.toldRound = this.at;
        this.emit("round", { round: k + 1, of: run.size, run_id: run.id });
      }
    }

    ready(on) {
      [...this.buttons, this.slider, this.speedSelect].forEach((control) => (control.disabled = !on));
      this.root.classList.toggle("dp-is-empty", !on);
      this.walkKey = null;
      this.downloads.querySelectorAll("button").forEach((b) => (b.disabled = !on));
      if (!on) this.showControls();
    }

    showControls() {
      const last = this.last();
      const alone = last === 0;
      this.slider.max = String(last + 1);
      this.slider.value = String(this.at + 1);
      this.slider.disabled = alone;
      const position = this.comparing && this.by === "position";
      const shown = !this.run ? "" : position ? `token ${(this.stops[this.at] ?? 0) + 1}` : `${Math.min(this.at, last) + 1} / ${last + 1}`;
      this.sliderText.textContent = shown;
      this.slider.setAttribute("aria-valuetext", position ? shown : `Round ${this.at + 1} of ${last + 1}`);
      this.slider.style.setProperty("--dp-fill", `${alone ? 0 : (100 * this.at) / last}%`);
      const [first, back, , next, end] = this.buttons;
      const { racing, race } = this.comparison;
      first.disabled = back.disabled = !this.run || (racing ? race.t <= 0 : this.at === 0);
      next.disabled = end.disabled = !this.run || (racing ? race.t >= race.most : this.at >= last);
      this.playButton.disabled = !this.run || (alone && !racing);
      this.showPlaying(this.isPlaying);
      const usable = this.run ? this.panes.filter((p) => p.run.size) : [];
      const known = new Set(usable.flatMap((p) => p.run.scorers(p.k)));
      for (const s of SCORERS) {
        const { b, count } = this.scoringButtons[s];
        b.disabled = !known.has(s);
        const pressed = this.comparing ? this.chosen === s : known.has(s) && this.panes[0].scorer(this.chosen) === s;
        b.setAttribute("aria-pressed", String(pressed));
        const found = !this.comparing && known.has(s) ? this.run.counterfactual(this.panes[0].k, s) : null;
        const own = !this.comparing && this.run && this.run.ownScorer === s;
        if (this.comparing) count.textContent = "";
        else if (!known.has(s)) count.textContent = "not recorded";
        else count.replaceChildren(`holds ${found ? found.accepted : "…"}`, h("span.more", null, " of the coming tokens"), own ? " · verified" : "");
      }
      this.scoringButtons.own.b.setAttribute("aria-pressed", String(this.chosen === null));
      for (const b of this.comparison.modes.children) b.setAttribute("aria-pressed", String(b.dataset.by === (racing ? "race" : this.by)));
      this.scoringGroup.hidden = known.size === 0;
      this.scoringRow.hidden = known.size === 0 && (this.comparing || !this.panes[0].holds.textContent);
    }

    resized() {
      const width = this.root.clientWidth;
      const key = `${width}x${this.panes[0].treeHost.clientHeight}`;
      if (key === this.sizeKey) return;
      this.sizeKey = key;
      if (width) {
        const top = this.root.getBoundingClientRect().top + scrollY;
        this.root.style.setProperty("--dp-top", `${Math.max(0, Math.min(300, Math.round(top)))}px`);
      }
      this.panes.forEach((pane) => pane.measure());
      this.comparison.race.measure();
      if (!width) return; // hidden: drawn when it is shown
      this.render();
    }

    theme(name) {
      this.themeName = ["light", "dark"].includes(name) ? name : "auto";
      const dark = this.themeName === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : this.themeName === "dark";
      this.root.dataset.theme = dark ? "dark" : "light";
      this.panes.forEach((pane) => pane.tree.readColours());
      if (this.run) this.render();
      return this;
    }

    // ---- keys, help, state --------------------------------------------------------------------------------

    key(event) {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      if (!this.root.getClientRects().length || !this.root.isConnected) return;
      const target = event.target instanceof Element ? event.target : document.body;
      if (typing(target) || (target.matches("input[type=range],input[type=radio]") && !this.root.contains(target))) return;
      if (this.dialog.open && event.key !== "?") return;
      if (this.inside.key(event)) return;
      const act = {
        ArrowLeft: () => this.move(-1),
        ArrowRight: () => this.move(1),
        Home: () => this.move("first"),
        End: () => this.move("last"),
        " ": () => this.play(!this.isPlaying),
        s: () => this.nextScoring(),
        c: () => this.toggleCompare(),
        p: () => this.presenter.enter(),
        "?": () => this.help(),
      }[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (!act || (event.key === " " && event.repeat)) return;
      event.preventDefault();
      event.stopPropagation();
      act();
    }

    help() {
      if (this.dialog.open) this.dialog.close();
      else this.dialog.showModal();
    }

    download(kind) {
      const run = this.pane.run;
      if (run) this.emit("download", { kind, run_id: run.id });
    }

    emit(name, detail) {
      this.onEvent(name, detail);
    }

    /** Where the player stands, as plain data: {run, with, round, by, at, scoring, node, inside, speed}. `at`: round (0 …),
        by text position the step (0 …), in a race the ms on the recorded clock. */
    state() {
      const { run, k, node } = this.panes[0];
      return {
        run: run ? run.id : null,
        with: this.comparing ? this.pair[1].id : null,
        round: run && run.size ? k + 1 : null,
        by: this.comparing ? (this.comparison.racing ? "race" : this.by) : null,
        at: this.comparing ? (this.comparison.racing ? Math.ceil(this.comparison.race.t - 1e-6) : this.at) : null,
        scoring: this.inside.isOpen ? this.inside.chosen : this.chosen,
        node: node === undefined ? null : node,
        inside: this.inside.isOpen ? this.inside.at : null,
        speed: this.speed,
        playing: Boolean(this.timer),
      };
    }

    /** Go to a state of the run(s) now loaded; fields that are missing stay as they are. */
    setState({ round, scoring, node, speed, by, at, inside } = {}) {
      if (speed) this.setSpeed(speed);
      if (scoring !== undefined) this.scoring(scoring);
      if (by === "race") this.comparison.setRacing(true);
      else if (by && this.comparing) this.comparison.choose(by);
      const somewhere = this.comparing && at !== undefined && at !== null;
      if (somewhere && this.comparison.racing) this.comparison.race.seek(at);
      else if (somewhere && by !== "race") this.seek(at);
      else if (round) this.goto(round);
      if (node !== undefined && this.run && this.run.size) {
        const valid = node === ANCHOR || node === BONUS || (node >= 0 && node < this.run.rounds[this.at].nodes.token.length);
        this.panes[0].node = valid ? node : null;
      }
      if (inside !== undefined && inside !== null) this.inside.open(inside);
      else if (round) this.inside.close();
      this.render();
      return this;
    }

    /** The address follows, at most four times a second: browsers refuse more. */
    writeHash() {
      if (!this.hash || this.hashTimer) return;
      const due = Math.max(20, (this.hashWritten ?? 0) + 250 - performance.now());
      this.hashTimer = setTimeout(() => {
        this.hashTimer = null;
        this.hashWritten = performance.now();
        this.writeHashNow();
      }, due);
    }

    writeHashNow() {
      if (!this.run || !this.root.getClientRects().length) return;
      if (!this.run.id) return DP.address.show({ tab: this.hash === true ? null : this.hash }); // a run that still goes has no name yet
      DP.address.show({ ...this.presenter.view(), inside: this.state().inside, tab: this.hash === true ? null : this.hash });
    }

    destroy() {
      this.presenter.destroy();
      this.stopsList.destroy();
      this.play(false);
      cancelAnimationFrame(this.frame);
      clearTimeout(this.hashTimer);
      this.observer.disconnect();
      this.media.removeEventListener("change", this.onMedia);
      document.removeEventListener("keydown", this.onKey, true);
      this.panes.forEach((pane) => pane.tree.destroy());
      this.root.remove();
    }
  }

  /** What an address hash asks for, in the form that setState() takes; {} if nothing. */
  DP.readHash = function (hash = location.hash) {
    const view = DP.link.decode(hash);
    if (!view.with) return view;
    view.by ??= "round";
    if (view.by === "round" && view.round) view.at = view.round - 1;
    return view;
  };

  DP.mount = (element, options) => new Player(element, options);
})((window.DominoPlayer = window.DominoPlayer || {}));
