/* Present: the player as a talk. Full screen, tree, text and τ only, everything large; and a list of prepared stops.

   It shows the same run, round and scorer as the player it belongs to, in the player's own tree and text, so that a
   live run goes on in it and leaving it changes nothing. `library` says how to get other runs, for stops and compare:
   {run(id) -> Promise<served trace>, title(id) -> string or "", partner(run) -> id or null, link(hash) -> address,
   theme(name)}; all are optional. Nothing here asks the server for what it has once seen. */
(function (DP) {
  "use strict";
  const { h, number, percent, plural, value, sum, Run, stepsOf, SCORER_TITLES, ANCHOR, BITS } = DP.parts;

  const SCALE = 2; // px of the screen to one of the player's, at 1920 × 1080: the smallest label (14 px) becomes 28
  const IDLE = 2500; // ms after which the controls go out of sight
  const USUAL = 16; // nodes of a tree: not said
  const STOP_SECONDS = 6; // of a stop, when the stops are played at speed 1
  const KEYS = [
    ["→ PageDown", "next round, or next stop of the talk"],
    ["← PageUp", "previous round or stop"],
    ["Shift → ←", "by round, whatever is prepared"],
    ["r", "step by stop or by round"],
    ["↓ ↑", "the tree, node by node in the order of the build"],
    ["Home End", "first, last"],
    ["Space", "play or pause"],
    ["+ −", "faster, slower"],
    ["s", "next scorer's tree"],
    ["c", "compare two runs"],
    ["b", "blank screen"],
    ["q", "QR code of this view"],
    ["n", "speaker notes and timer"],
    ["t", "start or pause the timer"],
    ["d", "dark or light"],
    ["f", "full screen"],
    ["p Esc", "leave"],
    ["?", "this help"],
  ];

  const known = new Map(); // id -> Run: a run that was shown once is there at once
  const wishes = new Map(); // id -> promise of a Run

  /** Is the visitor writing here? */
  const typing = (target) =>
    target instanceof Element && Boolean(target.closest("textarea,[contenteditable],input:not([type=range],[type=checkbox],[type=radio],[type=button],[type=submit],[type=reset],[type=file],[type=color],[type=image])"));

  /** Nodes of a scorer's tree in the order in which the best-first builder took them. */
  function order(run, k, scorer) {
    const { nodes } = run.rounds[k];
    const inside = [...nodes.token.keys()].filter((i) => nodes.trees[i] & run.bit(scorer));
    if (scorer === run.ownScorer && inside.every((i) => nodes.order[i] !== null && nodes.order[i] !== undefined)) return inside.sort((a, b) => nodes.order[a] - nodes.order[b]);
    const scores = nodes[`cum_${scorer}`] || []; // of a tree that was not verified: best first, parents before children
    const score = (i) => value(scores[i]) ?? -Infinity;
    return inside.sort((a, b) => score(b) - score(a) || nodes.depth[a] - nodes.depth[b] || a - b);
  }

  /** "DominoTree, 64 nodes · math" */
  function nameOf(run) {
    const { budget, temperature } = run.settings;
    const unusual = [budget && run.isTree && budget !== USUAL ? `${budget} nodes` : "", temperature ? `temperature ${temperature}` : ""].filter((text) => text && !run.title.includes(text));
    return [[run.title, ...unusual].join(", "), run.prompt.kind].filter(Boolean).join(" · ");
  }

  class Presenter {
    constructor(player, { library = {} } = {}) {
      this.player = player;
      this.library = library;
      this.on = false;
      this.byStop = true; // where stops are prepared
      this.grown = null; // nodes of the tree that are drawn; null: all, and what became of them
      this.heads = [];
      this.turn = 0;
      this.onKey = (event) => this.key(event);
      this.onMove = () => this.wake();
      this.onSeen = () => document.visibilityState === "visible" && this.on && this.stayAwake();
      this.onResize = () => this.resize();
      this.onPop = () => this.on && !DP.address.view.present && this.leave();
      this.onStops = () => this.changed();
      DP.stops.addEventListener("change", this.onStops);
      this.build();
    }

    build() {
      const button = (label, key, text, act) => h("button.present-button", { type: "button", "aria-label": `${label} (${key})`, onclick: act }, text);
      this.message = h("p.present-message", { role: "status" });
      this.playing = button("Play or pause", "space", "▶", () => this.play());
      this.speed = h("span.present-speed", { "aria-live": "polite" });
      this.bar = h(
        "div.present-bar",
        { role: "toolbar", "aria-label": "Present" },
        button("Previous", "←", "←", () => this.step(-1)),
        this.playing,
        button("Next", "→", "→", () => this.step(1)),
        this.speed,
        button("Next scorer's tree", "s", "Scoring", () => this.player.nextScoring()),
        button("Compare two runs", "c", "Compare", () => this.compare()),
        button("QR code of this view", "q", "QR", () => this.toggle("qr")),
        button("Speaker notes and timer", "n", "Notes", () => this.notes()),
        button("Blank screen", "b", "Blank", () => this.toggle("blank")),
        button("Full screen", "f", "Full screen", () => this.fullScreen()),
        button("Keys", "?", "?", () => this.toggle("help")),
        button("Leave", "Esc", "✕", () => this.leave()),
      );
      this.blank = h("div.present-cover.present-blank", { hidden: true, "aria-label": "Blank screen", onclick: () => this.toggle("blank") });
      this.qr = h("div.present-cover", { hidden: true, role: "dialog", "aria-label": "QR code" });
      this.help = h(
        "div.present-cover",
        { hidden: true, role: "dialog", "aria-label": "Keys", onclick: () => this.toggle("help") },
        h(
          "div.present-card",
          null,
          h("dl", null, ...KEYS.flatMap(([keys, what]) => [h("dt", null, ...keys.split(" ").map((key) => h("kbd", null, key))), h("dd", null, what)])),
        ),
      );
      this.layer = h("div.present-layer", { hidden: true }, this.message, this.bar, this.help, this.qr, this.blank);
      this.player.root.append(this.layer);
      this.opener = h("button.present-open", { type: "button", "data-tip": "For a talk: tree, text and τ fill the window (p)", onclick: () => this.enter() }, "Present");
    }

    // ---- in and out

    enter() {
      const { player } = this;
      if (this.on || !player.run) return;
      this.on = true;
      player.play(false);
      const { comparison } = player;
      this.before = { view: this.view(), runs: player.comparing ? player.pair : null }; // to return to
      if (comparison.racing) {
        comparison.choose("round");
        this.say("A talk has no race: these are the rounds in which it stood.");
      }
      if (player.dialog.open) player.dialog.close();
      this.focused = document.activeElement;
      this.focused?.blur?.();
      this.layer.hidden = false;
      player.root.classList.add("dp-presenting");
      document.documentElement.classList.add("dp-present-page");
      this.hideRest(true);
      addEventListener("keydown", this.onKey, true);
      addEventListener("pointermove", this.onMove);
      addEventListener("pointerdown", this.onMove);
      addEventListener("resize", this.onResize);
      addEventListener("popstate", this.onPop);
      document.addEventListener("visibilitychange", this.onSeen);
      this.grown = null;
      this.resize();
      this.stayAwake();
      this.prefetch();
      DP.stops.at = this.here();
      DP.address.talk({ present: true });
      if (DP.stops.list.length) DP.stops.use();
      this.wake();
      player.emit("present", { on: true });
    }

    leave() {
      const { player } = this;
      if (!this.on) return;
      this.on = false;
      this.pause();
      for (const name of ["blank", "qr", "help"]) this[name].hidden = true;
      this.layer.hidden = true;
      player.root.classList.remove("dp-presenting", "dp-growing");
      document.documentElement.classList.remove("dp-present-page");
      this.hideRest(false);
      removeEventListener("keydown", this.onKey, true);
      removeEventListener("pointermove", this.onMove);
      removeEventListener("pointerdown", this.onMove);
      removeEventListener("resize", this.onResize);
      removeEventListener("popstate", this.onPop);
      document.removeEventListener("visibilitychange", this.onSeen);
      clearTimeout(this.idle);
      clearTimeout(this.later);
      clearTimeout(this.soon);
      clearTimeout(this.telling);
      this.lock?.then((lock) => lock?.release()).catch(() => {});
      this.lock = null;
      this.heads.forEach((head) => head.root.remove());
      this.heads = [];
      this.grown = null;
      for (const pane of player.panes) {
        pane.tree.scale = 1;
        pane.tree.refine = null;
        pane.tree.host.style.removeProperty("--dp-tree-rows");
      }
      if (document.fullscreenElement && this.full) document.exitFullscreen().catch(() => {});
      this.full = false;
      const { view, runs } = this.before;
      if (runs && !player.comparing) player.compare(...runs); // Compare without a pair would be no Compare
      if (view.by === "race" && player.comparing && player.pair.every((run, i) => run === runs[i])) player.setState({ by: "race", at: view.at });
      player.sizeKey = null;
      player.resized();
      DP.address.talk({ present: null });
      this.focused?.focus?.({ preventScroll: true });
      player.emit("present", { on: false });
    }

    destroy() {
      this.leave();
      DP.stops.removeEventListener("change", this.onStops);
      if (this.following) removeEventListener("popstate", this.following);
    }

    /** The rest of the page can neither be reached by Tab nor read out while the talk covers it. */
    hideRest(on) {
      if (!on) {
        this.inert.forEach((element) => (element.inert = false));
        this.inert = [];
        return;
      }
      this.inert = [];
      for (let element = this.player.root; element !== document.body && element.parentElement; element = element.parentElement)
        for (const other of element.parentElement.children)
          if (other !== element && !other.inert && !["SCRIPT", "STYLE", "LINK"].includes(other.tagName)) {
            other.inert = true;
            this.inert.push(other);
          }
    }

    /** Asks the system to keep the screen on; where that is unknown or refused, nothing happens. */
    stayAwake() {
      this.lock = navigator.wakeLock?.request("screen").catch(() => null) ?? null;
    }

    fullScreen() {
      if (document.fullscreenElement) document.exitFullscreen().catch(() => {});
      else if (document.documentElement.requestFullscreen) {
        this.full = true;
        document.documentElement.requestFullscreen().catch(() => this.say("This browser does not give full screen here."));
      } else this.say("This browser has no full screen; its own menu may have it.");
    }

    // ---- size and drawing

    resize() {
      if (!this.on) return;
      this.unit = Math.max(1, SCALE * Math.min(innerWidth / 1920, innerHeight / 1080));
      this.player.root.style.setProperty("--dp-unit", `${this.unit}px`);
      this.player.sizeKey = null;
      this.prepare();
      this.player.resized();
      this.player.flush();
    }

    /** Called by the player before it draws: panes come and go with compare. */
    prepare() {
      const { player } = this;
      for (const { run } of player.panes) if (run?.id && run.summary.rounds !== undefined) known.set(run.id, run); // to return to
      if (!this.on) return;
      const shown = [...player.panes.map((p) => p.run?.serial), player.by, player.at, player.chosen].join("/");
      if (shown !== this.shown) this.grown = null;
      this.shown = shown;
      player.root.classList.toggle("dp-growing", this.grown !== null);
      while (this.heads.length > player.panes.length) this.heads.pop().root.remove();
      player.panes.forEach((pane, i) => {
        const { tree } = pane;
        if (!this.heads[i] || this.heads[i].pane !== pane) {
          this.heads[i]?.root.remove();
          this.heads[i] = this.head(pane);
        }
        if (tree.scale === this.unit && tree.refine) return;
        tree.scale = this.unit;
        tree.refine = (kinds, run, k, scorer, g) => this.refine(kinds, run, k, scorer, g);
        pane.measure();
      });
    }

    head(pane) {
      const parts = { pane, round: h("b"), sum: h("span.present-sum"), tau: h("b"), what: h("p.present-what") };
      parts.root = h(
        "header.present-head",
        null,
        h("p.present-line", null, parts.round, parts.sum),
        h("p.present-tau", null, "τ ", parts.tau, h("span", null, " so far")),
        parts.what,
      );
      pane.main.prepend(parts.root);
      return parts;
    }

    /** Called by the player after it drew. */
    update() {
      if (this.on) {
        for (const parts of this.heads) this.showHead(parts);
        this.playing.textContent = this.isPlaying ? "❚❚" : "▶";
        this.speed.textContent = `${this.player.speed}×`;
        clearTimeout(this.soon);
        this.soon = setTimeout(() => this.player.panes.forEach((pane) => this.reveal(pane)), 40); // after the paint: it measures
      }
      clearTimeout(this.telling);
      if (DP.notes.isOpen) this.tell();
      else this.telling = setTimeout(() => this.tell(), 60); // after the paint: it asks whether this player is on the screen
    }

    /** The notes are of the player on the screen. */
    tell() {
      if (!this.player.root.getClientRects().length) return;
      DP.notes.data = () => this.noteData();
      DP.notes.onKey = (event) => {
        (this.on ? this : this.player).key({ ...event, target: document.body, preventDefault() {}, stopPropagation() {} });
        this.player.flush(); // no frame may come while the notes cover this window
      };
      DP.notes.send();
    }

    /** Scroll the text by whole lines, so that the round's words are on the second of three lines, or on the only one. */
    reveal({ text: { text: box, now } }) {
      if (!this.on || !now) return;
      const line = parseFloat(getComputedStyle(box).lineHeight);
      const before = box.clientHeight > 1.9 * line ? 1 : 0;
      box.scrollTop = Math.max(0, Math.round(now.offsetTop / line) - before) * line;
    }

    showHead({ pane, round, sum: words, tau, what }) {
      const { run, k } = pane;
      if (!run || !run.size) {
        round.textContent = pane.headline.textContent;
        words.textContent = tau.textContent = what.textContent = "";
        return;
      }
      round.textContent = `Round ${k + 1} of ${run.size}`;
      words.textContent = this.grown === null ? sum(run.rounds[k]) : this.grownWords(pane);
      tau.textContent = number(run.tau(k));
      const { at, list } = DP.stops;
      const stop = this.byStop && list.length && pane === this.player.panes[0] ? (at >= 0 ? `Stop ${at + 1} of ${list.length} · ` : `${plural(list.length, "stop")} prepared · `) : "";
      what.replaceChildren(stop, h("strong", null, nameOf(run)), this.treeWords(pane));
    }

    /** Whose tree is drawn, and what came or would have come of it. */
    treeWords({ run, k }) {
      const scorer = this.player.chosen && run.scorers(k).includes(this.player.chosen) ? this.player.chosen : run.ownScorer;
      if (scorer === "verified") return run.method === "ar" ? ": nothing is drafted" : ": one chain, verified";
      const name = `: ${SCORER_TITLES[scorer].toLowerCase()} tree`;
      if (scorer === run.ownScorer) return `${name}, the one that was verified`;
      const found = run.counterfactual(k, scorer);
      return found ? `${name} of the same round: holds ${found.accepted} of the coming tokens` : `${name} of the same round`;
    }

    grownWords(pane) {
      const { run, k } = pane;
      const scorer = pane.scorer(this.player.chosen);
      const nodes = order(run, k, scorer);
      const count = Math.min(this.grown, nodes.length);
      if (!count) return "Only the anchor: nothing is drafted yet";
      if (this.grown > nodes.length || count === nodes.length) return `${plural(count, "node")} drafted, not verified yet`;
      const node = nodes[count - 1];
      const logp = value((run.rounds[k].nodes[`cum_${scorer === "verified" ? run.settings.scorer : scorer}`] || [])[node]);
      return `Node ${count} of ${nodes.length}: ${run.label(run.rounds[k].nodes.token[node])}${logp === null ? "" : `, path ${percent(logp)}`}`;
    }

    /** While the tree grows, only the nodes so far are drawn, and none is accepted yet. */
    refine(kinds, run, k, scorer, g) {
      if (this.grown === null) return;
      const there = new Set([g.n]);
      kinds.counts = new Map();
      kinds.held = [];
      kinds.kind[g.n + 1] = "none";
      this.newest = ANCHOR;
      for (const i of order(run, k, scorer).slice(0, this.grown)) {
        const mark = g.folded ? g.folded.behind[i] : -1; // that stands for the node where the tree is folded
        if (mark >= 0) kinds.counts.set(mark, (kinds.counts.get(mark) || 0) + 1);
        if (mark >= 0) kinds.kind[mark] = "fold";
        else if (kinds.kind[i] !== "only") kinds.kind[i] = "tree";
        this.newest = mark >= 0 ? mark : i;
        there.add(this.newest);
      }
      kinds.drawn = (i) => there.has(i);
    }

    /** One node more or less; from the finished round on, the build begins anew. */
    grow(step) {
      const { player } = this;
      if (!player.run?.size) return;
      this.pause();
      const most = Math.max(...player.panes.map((p) => (p.run.size ? order(p.run, p.k, p.scorer(player.chosen)).length : 0)));
      if (!most) return;
      const at = (this.grown ?? most + 1) + step;
      this.grown = at === most + 1 ? null : at > most + 1 ? 0 : Math.max(0, at);
      player.flush();
      if (this.grown) for (const { tree } of player.panes) tree.place(tree.hoverRing, this.newest);
    }

    // ---- steps

    get stopping() {
      return this.byStop && DP.stops.list.length > 0;
    }

    /** Index of the stop that is on the screen, −1 if none is. */
    here() {
      const now = this.view();
      const same = (stop) =>
        ["run", "with", "by", "at", "scoring"].every((name) => (stop[name] ?? null) === (now[name] ?? null)) && (now.by || (stop.round ?? 1) === now.round);
      const at = DP.stops.at;
      return DP.stops.list[at] && same(DP.stops.list[at]) ? at : DP.stops.list.findIndex(same);
    }

    /** The player's state as a view (see link.js). */
    view() {
      const { run, with: beside, round, by, at, scoring, node } = this.player.state();
      const elsewhere = by === "position" || by === "race"; // than at a round
      return { run, with: beside, round: elsewhere ? null : beside ? at + 1 : round, by: elsewhere ? by : null, at: elsewhere ? at : null, scoring, node };
    }

    step(by) {
      this.pause();
      this.uncover();
      if (this.stopping) this.go(DP.stops.at + by);
      else this.player.move(by);
    }

    end(last) {
      this.pause();
      this.uncover();
      if (this.stopping) this.go(last ? DP.stops.list.length - 1 : 0);
      else this.player.move(last ? "last" : "first");
    }

    /** Show stop k of the list; beyond its ends nothing happens. */
    async go(k) {
      const stop = DP.stops.list[k];
      if (!stop) return;
      DP.stops.at = k;
      const turn = ++this.turn;
      try {
        await this.show(stop, () => turn === this.turn);
      } catch (error) {
        if (turn === this.turn) this.say(error.message);
      }
    }

    /** Show a view in the player; `wanted()`: still asked for once its runs are there? Error with one sentence. */
    async show(view, wanted = () => true) {
      const { player } = this;
      const ids = [view.run, view.with].filter(Boolean);
      const now = player.state();
      if (now.run !== view.run || (now.with || null) !== (view.with || null)) {
        const runs = ids.every((id) => this.have(id)) ? ids.map((id) => this.have(id)) : await Promise.all(ids.map((id) => this.run(id)));
        if (!wanted()) return;
        if (runs.length > 1) player.compare(...runs);
        else player.load(runs[0]);
      }
      const position = view.by === "position";
      player.setState({ scoring: view.scoring ?? null, by: view.with ? (position ? "position" : "round") : undefined, at: view.with ? (position ? view.at : (view.round ?? 1) - 1) : undefined, round: view.round ?? 1, node: view.node ?? null });
      player.flush();
    }

    /** In a file that holds its runs: they are on the screen, go on to what the address asks for. */
    arrive(view = DP.readHash()) {
      clearTimeout(this.player.hashTimer); // what waits to be written is of the view before
      this.player.hashTimer = null;
      const missing = [view.run, view.with].filter(Boolean).find((id) => !this.have(id));
      if (missing) this.player.setError(`This link is to the run ${missing}, which is not in this file.`);
      else this.player.setError("").setState({ scoring: null, node: null, ...view });
      if (view.present) this.enter();
      if (!this.following) addEventListener("popstate", (this.following = () => this.arrive()));
    }

    /** A run that is here already. */
    have(id) {
      const shown = [...this.player.panes.map((p) => p.run), ...(this.player.pair || []), this.player.first];
      return shown.find((run) => run && run.id === id && run.summary.rounds !== undefined) || known.get(id);
    }

    /** A run by the hash of its content. */
    run(id) {
      const here = this.have(id);
      if (here) return Promise.resolve(here);
      if (!this.library.run) return Promise.reject(new Error(`The run ${id} is not in this file.`));
      if (!wishes.has(id)) {
        const wish = this.library.run(id).then((served) => {
          const run = served instanceof Run ? served : new Run(served);
          known.set(id, run);
          return run;
        });
        wish.catch(() => wishes.delete(id));
        wishes.set(id, wish);
      }
      return wishes.get(id);
    }

    /** Get every run that the talk may need, so that the server may go away. */
    async prefetch() {
      const ids = new Set(DP.stops.list.flatMap((s) => [s.run, s.with]).filter(Boolean));
      const partner = this.player.run && this.library.partner?.(this.player.run);
      if (partner) ids.add(partner);
      for (const id of ids) await this.run(id).catch(() => {}); // said when the stop is reached
    }

    async compare() {
      const { player } = this;
      this.uncover();
      if (player.pair) return player.toggleCompare();
      const run = player.run;
      const id = run && this.library.partner?.(run);
      if (!id) return this.say("There is no second run of this prompt here to compare with.");
      const turn = ++this.turn;
      try {
        const other = await this.run(id);
        if (turn === this.turn) player.compare(run, other);
      } catch (error) {
        this.say(error.message);
      }
    }

    // ---- play

    get isPlaying() {
      return Boolean(this.player.timer || this.timer);
    }

    play() {
      this.uncover();
      if (this.isPlaying) this.pause();
      else if (this.stopping) {
        if (DP.stops.at >= DP.stops.list.length - 1) this.go(0);
        const tick = () => {
          if (DP.stops.at >= DP.stops.list.length - 1) return this.pause();
          this.go(DP.stops.at + 1);
          this.timer = setTimeout(tick, (1000 * STOP_SECONDS) / this.player.speed);
        };
        this.timer = setTimeout(tick, (1000 * STOP_SECONDS) / this.player.speed);
      } else this.player.play(true);
      this.update();
    }

    pause() {
      clearTimeout(this.timer);
      this.timer = null;
      this.player.play(false);
    }

    faster(by) {
      const speeds = [...this.player.speedSelect.options].map((option) => Number(option.value));
      const at = speeds.indexOf(this.player.speed) + by;
      if (!speeds[at]) return;
      this.player.setSpeed(speeds[at]);
      this.say(`${speeds[at]}×`);
      this.update();
    }

    // ---- what covers the screen

    toggle(name) {
      const open = this[name].hidden;
      for (const other of ["blank", "qr", "help"]) this[other].hidden = other !== name || !open;
      if (name === "qr" && open) this.showQr();
      DP.notes.send();
    }

    /** Takes away what covers the screen; true if something did. */
    uncover() {
      const covered = ["blank", "qr", "help"].filter((name) => !this[name].hidden);
      covered.forEach((name) => (this[name].hidden = true));
      if (covered.length) DP.notes.send();
      return covered.length > 0;
    }

    /** The link of this view: the audience sees what is on the screen, not the speaker's notes. A single
        run is in Explore and a pair in Compare, whichever tab the talk began in. */
    link() {
      const view = this.view();
      const hash = DP.link.encode({ ...view, tab: view.with && this.library.link ? "compare" : null });
      return this.library.link ? this.library.link(hash) : location.href.replace(/#.*$/, "") + hash;
    }

    showQr() {
      const link = this.link();
      let picture;
      try {
        picture = DP.qr.picture(link);
      } catch (error) {
        picture = h("p", null, error.message);
      }
      const host = new URL(link).hostname;
      const alone = !host || host === "localhost" || host === "[::1]" || host.startsWith("127.");
      this.qr.replaceChildren(
        h(
          "div.present-card.present-qr",
          null,
          picture,
          h("p.present-link", null, link),
          alone ? h("p", null, `This address works on this machine only: ${this.library.static ? "" : "start the page with --public-url, or "}open it by the name that others use.`) : null,
          h("button.present-button", { type: "button", onclick: () => this.toggle("qr") }, "Close"),
        ),
      );
    }

    say(text) {
      this.message.textContent = text;
      clearTimeout(this.later);
      this.later = setTimeout(() => (this.message.textContent = ""), 5000);
    }

    /** The controls come with the pointer and go again. */
    wake() {
      this.layer.classList.add("dp-present-awake");
      clearTimeout(this.idle);
      this.idle = setTimeout(() => {
        if (this.bar.matches(":hover, :focus-within")) this.wake();
        else this.layer.classList.remove("dp-present-awake");
      }, IDLE);
    }

    // ---- notes

    notes() {
      this.tell();
      if (!DP.notes.open()) return this.say("The browser blocked the notes window: allow pop-ups for this page.");
      this.update();
    }

    /** What the notes window shows. */
    noteData() {
      const { list } = DP.stops;
      const at = this.here();
      const last = this.on && this.stopping && at < 0 ? DP.stops.at : at; // the stop that the talk left
      const pane = this.player.panes[0];
      const theme = this.player.root.dataset.theme;
      const { run, k } = pane;
      const facts = run?.size ? `Round ${k + 1} of ${run.size}: ${sum(run.rounds[k])}, τ so far ${number(run.tau(k))}` : "";
      const stop = list[at];
      const follows = list[last + 1];
      const covered = this.on && !this.blank.hidden ? "The screen is blank (b). " : "";
      const name = (s) => ({ title: this.nameOf(s), note: s.note });
      return {
        theme,
        place: stop ? `Stop ${at + 1} of ${list.length}` : last >= 0 ? `After stop ${last + 1} of ${list.length}` : list.length ? `Between the stops (${list.length} prepared)` : "No stops are prepared",
        now: { title: stop ? this.nameOf(stop) : run ? nameOf(run) : "No run is open", facts: covered + facts, note: (list[last] || { note: "" }).note },
        next: follows ? name(follows) : null,
      };
    }

    /** A stop in words: "DominoTree · math, round 4, marginal". */
    nameOf(stop) {
      const title = (id) => {
        const run = this.have(id);
        return run ? nameOf(run) : this.library.title?.(id) || "";
      };
      const runs = [stop.run, stop.with].filter(Boolean).map((id) => title(id) || `run ${id.slice(0, 8)}`);
      const first = stop.title && !title(stop.run) ? stop.title : runs.join(" beside ");
      const place = stop.by === "position" ? this.tokenOf(stop) : `round ${stop.round ?? 1}`;
      return [first, place, stop.scoring ? SCORER_TITLES[stop.scoring].toLowerCase() : ""].filter(Boolean).join(", ");
    }

    /** "token 41": where in the text a stop by text position stands; its step while one of its runs is not here. */
    tokenOf({ run, with: beside, at }) {
      const runs = [run, beside].map((id) => this.have(id));
      if (!runs.every(Boolean)) return `text position ${at + 1}`;
      const steps = stepsOf(runs);
      return `token ${steps[Math.min(at, steps.length - 1)] + 1}`;
    }

    /** The view on the screen as a stop; null while there is none or it has no name yet (a live run). */
    stop() {
      const view = this.view();
      if (!view.run || !this.player.run.size) return null;
      if (view.by === "race") Object.assign(view, { by: null, at: null, round: this.player.comparison.race.rounds[0] + 1 }); // a talk has rounds
      const { node, ...rest } = view;
      return { ...rest, ...(node === null || node === undefined ? {} : { node }), title: [view.run, view.with].filter(Boolean).map((id) => nameOf(this.have(id))).join(" beside "), note: "" };
    }

    /** The list of stops changed. */
    changed() {
      if (!this.on) return;
      this.prefetch();
      this.update();
    }

    // ---- keys

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
      const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
      const focused = event.target instanceof Element && event.target.closest("button");
      if (["Tab", "Enter", "Shift"].includes(key) || (key === " " && focused)) return;
      const once = (act) => () => !event.repeat && act();
      const act = {
        ArrowRight: () => (event.shiftKey ? this.byRound(1) : this.step(1)),
        ArrowLeft: () => (event.shiftKey ? this.byRound(-1) : this.step(-1)),
        PageDown: () => this.step(1),
        PageUp: () => this.step(-1),
        ArrowDown: () => this.grow(1),
        ArrowUp: () => this.grow(-1),
        Home: () => this.end(false),
        End: () => this.end(true),
        " ": once(() => this.play()),
        "+": () => this.faster(1),
        "=": () => this.faster(1),
        "-": () => this.faster(-1),
        s: () => this.player.nextScoring(),
        c: once(() => this.compare()),
        r: once(() => this.switchSteps()),
        b: once(() => this.toggle("blank")),
        ".": once(() => this.toggle("blank")), // many clickers send it
        q: once(() => this.toggle("qr")),
        n: once(() => this.notes()),
        t: once(() => DP.notes.timer() || this.say("The timer is in the notes window: open it with n.")),
        d: once(() => this.theme()),
        f: once(() => this.fullScreen()),
        F5: () => {}, // a clicker's start key must not load the page anew
        p: once(() => this.leave()),
        Escape: once(() => this.uncover() || this.leave()),
        "?": once(() => this.toggle("help")),
      }[key];
      if (!act && key.length > 1) return; // the browser's own keys
      event.preventDefault();
      event.stopPropagation();
      if (act && !["b", ".", "q", "?", "n", "t", "d", "f", "F5", "Escape"].includes(key) && this.uncover()) return; // the first key only uncovers
      act?.();
    }

    byRound(by) {
      this.pause();
      this.uncover();
      this.player.move(by);
    }

    switchSteps() {
      if (!DP.stops.list.length) return this.say("No stops are prepared: steps are rounds.");
      this.byStop = !this.byStop;
      this.say(this.byStop ? "Steps are stops" : "Steps are rounds");
      this.update();
    }

    theme() {
      const name = this.player.root.dataset.theme === "dark" ? "light" : "dark";
      if (this.library.theme) this.library.theme(name);
      else this.player.theme(name);
    }
  }

  Object.assign(DP.parts, { Presenter, typing, buildOrder: order, nameOf });
})((window.DominoPlayer = window.DominoPlayer || {}));
