/* Inside a round: the build pop by pop and the verify walk visit by visit, beside the tree that grows with them.

   It takes the place of strip, text and panels while it is open; the tree stays the player's own. `at` is a step of
   Build (build.js). Opened with the key i; ← → step, Space plays, Esc closes. */
(function (DP) {
  "use strict";
  const { h, term, value, number, percent, plural, sum, Build, slope, slopeTable, movers, nth, signed, ANCHOR, BONUS, BITS, SCORER_TITLES, DASH } = DP.parts;

  const ROW = 30; // px of a path on the heap
  const TRAIL = 22; // characters of a path before its last token
  const share = (logp) => percent(logp).replace(" ", "\u00a0");

  class Inside {
    /** `icon(name)`: a control's picture. */
    constructor(player, icon) {
      this.player = player;
      this.icon = icon;
      this.isOpen = false;
      this.at = 0;
      this.build = null;
      this.asTable = false;
      this.refine = (kinds, run, k, scorer, g) => this.draw(kinds, run, k, g);
      this.make();
    }

    make() {
      const { player } = this;
      const button = (name, label, act) => h("button.icon", { type: "button", "aria-label": label, "data-tip": label, onclick: act }, this.icon(name));
      this.opener = h("button.inside-open", { type: "button", "data-tip": "The build pop by pop, and the verify walk (i)", onclick: () => this.open() }, "Inside this round");
      this.title = h("h2.headline.inside-title", { "aria-live": "polite" });
      this.playButton = button("play", "Play (space)", () => this.play(!this.timer));
      this.buttons = [
        button("first", "To the anchor (Home)", () => this.move("first")),
        button("back", "Step back (←)", () => this.move(-1)),
        this.playButton,
        button("next", "Next step (→)", () => this.move(1)),
        button("last", "To the bonus token (End)", () => this.move("last")),
      ];
      this.slider = h("input.slider", { type: "range", min: 0, max: 1, step: 1, value: 0, "aria-label": "Step of the round", oninput: () => (this.play(false), this.go(Number(this.slider.value))) });
      this.count = h("output.inside-count");
      this.stages = h(
        "div.segments.inside-stages",
        { role: "group", "aria-label": "Part of the round" },
        ...["build", "verify"].map((stage) => h("button.segment", { type: "button", "data-stage": stage, "aria-pressed": "false", onclick: () => this.toStage(stage) }, stage === "build" ? "Build" : "Verify")),
      );
      this.closer = h("button.inside-close", { type: "button", "aria-label": "Back to the round (Esc)", onclick: () => this.close() }, "Close");
      this.bar = h(
        "div.inside-bar",
        { role: "toolbar", "aria-label": "Inside this round", hidden: true },
        this.title,
        this.closer,
        h("div.transport", null, ...this.buttons),
        this.stages,
        h("div.seek", null, this.slider, this.count),
      );
      this.list = h("section.inside-list", { "aria-label": "Heap" });
      this.main = h("section.inside-main");
      this.facts = h("section.inside-facts", { "aria-label": "This step" });
      this.panel = h("div.inside", { role: "region", "aria-label": "Inside this round", hidden: true }, this.list, this.main, this.facts);
      player.body.before(this.bar);
      player.body.after(this.panel);
      player.stopsList.opener.before(this.opener);
    }

    // ---- in and out

    open(step = 0) {
      const { player } = this;
      if (!player.run?.size || player.comparing || player.presenter.on) return;
      player.play(false);
      player.following = false;
      if (!this.isOpen) {
        this.isOpen = true;
        this.focused = document.activeElement;
        this.scrolled = scrollY;
        this.chosen = player.chosen;
        this.node = player.panes[0].node;
        player.chosen = null; // the build is that of the run's own tree
        player.root.classList.add("dp-is-inside");
        this.bar.hidden = this.panel.hidden = false;
        player.panes[0].tree.refine = this.refine;
        this.build = null;
      } else if (player.chosen !== null) [this.chosen, player.chosen] = [player.chosen, null];
      this.at = Math.max(0, Math.round(step) || 0);
      this.resize();
      const hidden = this.focused && player.root.contains(this.focused) && !this.focused.getClientRects().length;
      if (hidden) this.closer.focus({ preventScroll: true });
      const top = (element) => element.getBoundingClientRect().top;
      const first = top(player.body) < top(this.bar) ? player.body : this.bar; // narrow: the bar is at the foot
      if (top(first) < 0 || this.panel.getBoundingClientRect().bottom > innerHeight) first.scrollIntoView({ block: "start", behavior: "instant" });
      return this;
    }

    close() {
      const { player } = this;
      if (!this.isOpen) return;
      this.play(false);
      this.isOpen = false;
      this.build = null;
      player.root.classList.remove("dp-is-inside");
      const inside = this.bar.contains(document.activeElement) || this.panel.contains(document.activeElement);
      this.bar.hidden = this.panel.hidden = true;
      const pane = player.panes[0];
      if (pane.tree.refine === this.refine) pane.tree.refine = null;
      player.chosen = this.chosen;
      if (pane.node === null) pane.node = this.node;
      this.resize();
      scrollTo({ top: this.scrolled, behavior: "instant" });
      if (inside) (this.focused?.isConnected && this.focused.getClientRects().length ? this.focused : this.opener).focus({ preventScroll: true });
    }

    resize() {
      this.player.sizeKey = null;
      this.player.resized();
      if (this.player.run) this.player.flush();
    }

    // ---- steps

    go(step) {
      if (!this.isOpen) return this;
      this.at = step;
      this.player.flush();
      return this;
    }

    move(by) {
      this.play(false);
      const last = this.build.size - 1;
      this.go(by === "first" ? 0 : by === "last" ? last : Math.max(0, Math.min(last, this.at + by)));
    }

    toStage(stage) {
      this.play(false);
      this.go(stage === "build" ? 0 : this.build.builds);
    }

    /** Go to the step in which a node was popped (while verifying: visited). */
    jump(node) {
      const { build } = this;
      const visit = build.at(this.at).stage === "verify" ? build.visits.findIndex((v) => v.node === node) : -1;
      if (node === BONUS) this.move("last");
      else if (visit >= 0) this.go(build.builds + visit);
      else if (build.place.has(node)) this.go(build.place.get(node));
    }

    play(on) {
      clearTimeout(this.timer);
      this.timer = null;
      if (on && this.build && this.build.size > 1) {
        if (this.at >= this.build.size - 1) this.go(0);
        const tick = () => {
          if (!this.isOpen || !this.player.root.isConnected || this.at >= this.build.size - 1) return this.play(false);
          this.go(this.at + 1);
          this.timer = setTimeout(tick, 1000 / this.player.speed);
        };
        this.timer = setTimeout(tick, 1000 / this.player.speed);
      }
      const playing = Boolean(this.timer);
      this.playButton.replaceChildren(this.icon(playing ? "pause" : "play"));
      this.playButton.setAttribute("aria-label", playing ? "Pause (space)" : "Play (space)");
      this.title.setAttribute("aria-live", playing ? "off" : "polite");
    }

    /** A key of the player; true if it was taken. */
    key(event) {
      const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
      if (!this.isOpen) {
        if (key !== "i" || event.repeat || !this.player.run?.size || this.player.comparing) return false;
        event.preventDefault();
        event.stopPropagation();
        this.open();
        return true;
      }
      const upDown = key === "ArrowUp" || key === "ArrowDown";
      if (upDown && event.target instanceof Element && event.target.closest(".dp-table-wrap")) return true; // it scrolls there
      const focused = event.target instanceof Element && event.target.closest("button,summary");
      if (key === " " && (focused || event.repeat)) return true;
      const act = {
        ArrowLeft: () => this.move(-1),
        ArrowUp: () => this.move(-1),
        ArrowRight: () => this.move(1),
        ArrowDown: () => this.move(1),
        Home: () => this.move("first"),
        End: () => this.move("last"),
        PageUp: () => this.toRound(-1),
        PageDown: () => this.toRound(1),
        " ": () => this.play(!this.timer),
        i: () => this.close(),
        Escape: () => this.close(),
        s: () => {},
      }[key];
      if (["c", "p"].includes(key)) this.close();
      if (!act) return false;
      event.preventDefault();
      event.stopPropagation();
      act();
      return true;
    }

    toRound(by) {
      this.play(false);
      this.player.seek(this.player.at + by);
      this.player.flush();
    }

    // ---- drawing

    /** Called by the player after it drew. */
    update() {
      const { player } = this;
      this.opener.hidden = player.comparing;
      this.opener.disabled = !player.run?.size;
      if (!this.isOpen) return;
      const { run, k, tree } = player.panes[0];
      if (player.comparing || player.presenter.on || !run?.size || (this.build && this.build.run !== run)) return this.close();
      this.story();
      tree.select(this.shownNode());
      const key = `${run.serial}/${k}/${this.at}/${this.panel.clientWidth}/${this.asTable}`;
      if (key === this.shown) return;
      this.shown = key;
      this.show();
      clearTimeout(this.later);
      this.later = setTimeout(() => this.reveal(), 60);
    }

    /** The build of the round on the screen; another round begins at its anchor. */
    story() {
      const { run, k } = this.player.panes[0];
      if (!this.build || this.build.run !== run || this.build.round !== run.rounds[k]) {
        if (this.build) this.at = 0;
        this.build = new Build(run, k);
        this.shown = null;
      }
      this.at = Math.max(0, Math.min(this.at, this.build.size - 1));
    }

    /** Last word on what is drawn of the tree: the nodes popped so far; then what the walk has accepted so far. */
    draw(kinds, run, k, g) {
      if (this.build && this.build.run !== run) return; // another run: this closes, see update
      this.story();
      const { build } = this;
      const { stage, number: count } = build.at(this.at);
      const there = new Set(stage === "build" ? build.popped.slice(0, count) : build.popped);
      const last = stage === "verify" && count === build.visits.length;
      const done = new Set(stage === "verify" ? build.round.path.slice(0, count) : []);
      for (const i of there) if (kinds.kind[i] === "held" || kinds.kind[i] === "tree" || kinds.kind[i] === "only") kinds.kind[i] = done.has(i) ? "held" : "tree";
      if (!last) kinds.kind[g.n + 1] = "none";
      kinds.held = [...done];
      const before = kinds.drawn;
      kinds.drawn = (i) => before(i) && (i === g.n || (i === g.n + 1 ? last : there.has(i)));
    }

    shownNode() {
      const { stage, node, visit } = this.build.at(this.at);
      return stage === "build" ? node : visit.node;
    }

    /** Scroll the tree so that the node of this step can be seen. */
    reveal() {
      if (!this.isOpen) return;
      const { tree } = this.player.panes[0];
      const ring = tree.selectRing;
      if (ring.hidden) return;
      const box = tree.scroller;
      const [x, y] = [ring.offsetLeft, ring.offsetTop];
      if (x < box.scrollLeft || x + 80 > box.scrollLeft + box.clientWidth) box.scrollLeft = x - box.clientWidth / 2;
      if (y < box.scrollTop || y + 40 > box.scrollTop + box.clientHeight) box.scrollTop = y - box.clientHeight / 2;
    }

    show() {
      const { build, player } = this;
      const { stage, number: count } = build.at(this.at);
      const last = build.size - 1;
      const words = stage === "build" ? (count ? `pop ${count} of ${build.builds - 1}` : "anchor") : `visit ${count} of ${build.visits.length}`;
      this.slider.max = String(last);
      this.slider.value = String(this.at);
      this.slider.disabled = last === 0;
      this.slider.setAttribute("aria-valuetext", words);
      this.slider.style.setProperty("--dp-fill", `${last ? (100 * this.at) / last : 0}%`);
      this.count.textContent = words;
      const [first, back, , next, end] = this.buttons;
      first.disabled = back.disabled = this.at === 0;
      next.disabled = end.disabled = this.at >= last;
      this.playButton.disabled = last === 0;
      for (const segment of this.stages.children) {
        segment.setAttribute("aria-pressed", String(segment.dataset.stage === stage));
        segment.disabled = segment.dataset.stage === "build" ? !build.builds : !build.visits.length;
      }
      this.title.replaceChildren(h("b", null, `Inside round ${player.panes[0].k + 1}`), h("span.sep", null, " · "), ...this.headline());
      this.panel.dataset.stage = stage;
      if (stage === "build") this.showBuild();
      else this.showVerify();
    }

    token(id, more = "") {
      return h(`b.tok${more}`, null, this.build.run.label(id));
    }

    headline() {
      const { build } = this;
      const { stage, number: count, node, visit } = build.at(this.at);
      if (stage === "build" && !count) return ["the anchor ", this.token(build.round.anchor), " is expanded"];
      if (stage === "build") return [this.token(build.token(node)), " joins the tree"];
      if (build.accepted(count - 1) !== null) return ["the target chose ", this.token(visit.chosen), ": accepted"];
      return ["the walk stops, ", this.token(visit.chosen), " is the bonus"];
    }

    // ---- build

    showBuild() {
      const { build } = this;
      const { node } = build.at(this.at);
      const found = build.candidates(node);
      this.list.setAttribute("aria-label", "Heap");
      this.list.replaceChildren(...(build.heap(this.at) ? this.heapList() : this.orderList()));
      this.main.setAttribute("aria-label", "Candidates");
      this.main.replaceChildren(...(found ? this.chart(found, node) : this.children(node)));
      this.facts.replaceChildren(...this.buildFacts(node, found));
    }

    /** "… ␣the ␣total" of a path without its last token, short enough for a row. */
    trail(ids) {
      const labels = ids.map((id) => this.build.run.label(id));
      let kept = 0;
      for (let room = TRAIL; kept < labels.length && (room -= labels[labels.length - 1 - kept].length + 1) >= 0; ) kept++;
      return h("span.inside-trail", null, kept < labels.length ? h("span", null, "…") : null, ...labels.slice(labels.length - kept).map((text) => h("span", null, text)));
    }

    row(kind, above, token, score, note) {
      return h(`li.inside-path${kind}`, null, h("span.inside-words", null, this.trail(above), h("b", null, this.build.run.label(token))), h("span.inside-note", null, note), h("span.inside-p", null, percent(score)), h("span.inside-score", null, number(score)));
    }

    rows() {
      return Math.max(6, Math.floor((this.height() - 60) / ROW));
    }

    /** Height of the panel in px: what the window leaves beside the tree, or enough of its own where the page scrolls. */
    height() {
      return parseFloat(getComputedStyle(this.panel).minHeight) || 400;
    }

    listHead(title, ...more) {
      return h("p.inside-head", null, h("span", null, ...(Array.isArray(title) ? title : [title])), h("span.inside-columns", null, h("span", null, "p"), h("span", null, term("cumulative", "Σ log p"))), ...more);
    }

    heapList() {
      const { build } = this;
      const heap = build.heap(this.at);
      const most = this.rows();
      const next = build.next(this.at);
      const items = heap.slice(0, most).map((entry, j) => {
        const isNext = next !== null && j === 0;
        const fresh = entry.pushed === this.at;
        return this.row(`${isNext ? ".inside-next" : ""}${fresh ? ".inside-fresh" : ""}`, build.path(entry.parent), entry.token, entry.score, isNext ? "next" : fresh ? "new" : "");
      });
      return [
        this.listHead([term("heap", "Heap"), `: ${plural(heap.length, "path")}`]),
        items.length ? h("ol.inside-paths", null, ...items) : h("p.hint", null, "The heap is empty."),
        heap.length > most ? h("p.hint.inside-more", null, `and ${heap.length - most} less likely`) : null,
      ].filter(Boolean);
    }

    /** Where the heap is not known: the tree so far, last popped first. */
    orderList() {
      const { build } = this;
      const { run } = build;
      const most = this.rows() - 2;
      const so = build.popped.slice(0, this.at).reverse();
      const items = so.slice(0, most).map((node, j) => this.row(j ? "" : ".inside-next", build.path(node).slice(0, -1), build.token(node), build.score(node), String(so.length - j)));
      const others = run.rounds.map((round, k) => [round, k]).filter(([round, k]) => k !== build.k && (round.pops || []).length).slice(0, 12);
      return [
        this.listHead("Tree so far, last one first"),
        h("ol.inside-paths", null, ...items),
        so.length > most ? h("p.hint.inside-more", null, `and ${so.length - most} before`) : so.length ? null : h("p.hint", null, "Nothing is in the tree yet."),
        h(
          "p.hint",
          null,
          !run.isTree ? "A chain has no heap: every level takes the drafter's best token." : build.recorded ? "From here on the pops of this round were not recorded one by one." : "The candidates of this round were not recorded; these are its nodes in the order of the build.",
          ...(build.recorded || !others.length ? [] : [" They are there for ", others.length === 1 ? "round" : "rounds", ...others.flatMap(([, k], j) => [j ? ", " : " ", h("button.link", { type: "button", onclick: () => this.player.goto(k + 1) }, String(k + 1))]), "."]),
        ),
      ].filter(Boolean);
    }

    chart(found, node) {
      const { build } = this;
      const visit = build.visit(node);
      const chosen = visit ? visit.chosen : null;
      const choose = (table) => () => {
        this.asTable = table;
        this.player.flush();
        this.switch.querySelector("[aria-pressed=true]").focus();
      };
      this.switch = h(
        "div.segments.inside-switch",
        { role: "group", "aria-label": "Candidates as" },
        h("button.segment", { type: "button", "aria-pressed": String(!this.asTable), onclick: choose(false) }, "Chart"),
        h("button.segment", { type: "button", "aria-pressed": String(this.asTable), onclick: choose(true) }, "Table"),
      );
      const head = h("p.inside-head", null, h("span", null, `${found.count} candidates after `, this.token(build.token(node))), this.switch);
      if (this.asTable) return [head, h("div.table-wrap", { tabindex: "0", role: "region", "aria-label": "Table of the candidates" }, slopeTable(build.run, found, { chosen }))];
      const heads = found.corrected
        ? [h("span", null, "by ", term("logit", "L")), h("span", null, h("span", null, "by ", term("logit", "L"), " + ", term("delta", "ΔL")), h("span.slope-head-delta", null, "ΔL"), h("span.slope-head-move", null, "places"))]
        : [h("span.slope-head-alone", null, "by ", term("logit", "L"))];
      return [head, h("div.slope-heads", null, ...heads), slope(build.run, found, { chosen, height: this.height() - 98 }), this.legend(found, chosen)];
    }

    legend(found, chosen) {
      const row = found.rows.some((r) => r.token === chosen);
      return h("p.hint.inside-legend", null, "Above the line: pushed. ", h("b", null, "Bold"), ": joins the tree. ", ...(row ? [h("b.inside-yes", null, "Blue"), ": the target’s choice."] : []));
    }

    /** Where the candidates are not known: the children that are nodes of some tree. */
    children(node) {
      const { build } = this;
      const { nodes, run } = build;
      const below = [...nodes.token.keys()].filter((i) => nodes.parent[i] === node);
      const own = build.run.settings.scorer;
      const head = h("p.inside-head", null, h("span", null, "Children of ", this.token(build.token(node)), " that are in a tree of this round"));
      if (!below.length) return [head, h("p.hint", null, build.fillsBudget(node) ? "None: the budget is spent, so this node was not expanded." : "None.")];
      below.sort((a, b) => (value(nodes[own]?.[b]) ?? -Infinity) - (value(nodes[own]?.[a]) ?? -Infinity));
      const scored = own && own !== "marginal"; // else ΔL plays no part in this method
      const columns = [
        ["L", (i) => number(nodes.base_logit[i])],
        ...(scored ? [["ΔL", (i) => signed(value(nodes.delta[i]))]] : []),
        ["p by L", (i) => percent(nodes.marginal[i])],
        ...(scored ? [[`p ${SCORER_TITLES[own].toLowerCase()}`, (i) => percent((nodes[own] || [])[i])]] : []),
        ["Σ log p", (i) => number(build.cum[i])],
        ["In build order", (i) => (nodes.trees[i] & BITS.verified ? `pop ${build.place.get(i)}` : "another scorer's tree")],
      ];
      const row = (i) => h(nodes.accepted[i] ? "tr.yes" : "tr", null, h("th", { scope: "row" }, run.label(nodes.token[i])), ...columns.map(([, text]) => h("td", null, text(i))));
      return [
        head,
        h(
          "div.table-wrap",
          { tabindex: "0", role: "region", "aria-label": "Children" },
          h("table.nodes", null, h("thead", null, h("tr", null, ...["Token", ...columns.map(([name]) => name)].map((name) => h("th", { scope: "col" }, name)))), h("tbody", null, ...below.map(row))),
        ),
      ];
    }

    buildFacts(node, found) {
      const { build } = this;
      const heapBefore = this.at ? build.heap(this.at - 1) : null;
      const parts = [];
      if (node === ANCHOR) {
        parts.push(h("p.kicker", null, h("span", null, term("anchor", "Anchor"))), h("p.token", null, build.run.label(build.round.anchor)), h("p.verdict", null, "The root of the tree, expanded first: its best children start the heap."));
      } else {
        const path = build.path(node);
        const second = heapBefore?.[1];
        const sigma = `Σ\u00a0log\u00a0p\u00a0=\u00a0${number(build.score(node))}`;
        parts.push(
          h("p.kicker", null, h("span", null, `Pop ${this.at}, depth ${build.depth(node)}, path probability ${share(build.score(node))}`)),
          h("p.token", null, build.run.label(build.token(node))),
          path.length > 1 ? h("p.meta", null, "after ", h("span.inside-path-words", null, ...path.slice(0, -1).map((id) => h("span", null, build.run.label(id))))) : null,
          h("p.verdict", null, heapBefore ? `${sigma}, the best of ${plural(heapBefore.length, "path")} on the heap${second ? `; next ${number(second.score)}` : ""}.` : `${sigma}.`),
        );
      }
      if (found) parts.push(...this.correctionFacts(found, node));
      else if (build.fillsBudget(node)) parts.push(h("p.kicker", null, "Not expanded"), h("p", null, `The budget of ${plural(build.popped.length, "node")} is spent, so its children are never scored.`));
      else if (build.levels && build.depth(node) >= build.levels) parts.push(h("p.kicker", null, "Not expanded"), h("p", null, "The block ends here: the drafter drafts no deeper level."));
      if (found || node === ANCHOR) parts.push(...this.coverageFacts(node, found));
      const heap = build.heap(this.at);
      if (this.at === build.builds - 1 && heap?.length)
        parts.push(
          h("p.kicker", null, "The build ends"),
          h("p", null, `${plural(heap.length, "path")} ${heap.length === 1 ? "stays" : "stay"} on the heap, none likelier than ${share(heap[0].score)}. ${build.stopsEarly ? "No further node pays for its verify time. " : ""}Next: the verify walk.`),
        );
      return parts.filter(Boolean);
    }

    correctionFacts(found, node) {
      const { build } = this;
      const scorer = build.run.settings.scorer;
      const best = h("p", null, `${found.pushed} of ${found.count} are pushed, best first `, this.token(found.ranked[0].token), `, ${share(found.ranked[0].after)}.`);
      if (!found.corrected) {
        const why = scorer === "marginal" ? "This method ignores the correction: every node of a depth has the same children." : "No correction at the first depth: only the anchor is known.";
        return [h("p.kicker", null, "Its children"), best, h("p", null, why)];
      }
      const { up, down } = movers(found);
      const places = (row) => (row.rank >= found.exact ? `${nth(row.place)} to below ${nth(found.exact - 1)}` : row.rank === row.place ? `stays ${nth(row.place)}` : `${nth(row.place)} to ${nth(row.rank)}`);
      const line = (what, row) => h(`p.inside-mover${row.token === build.visit(node)?.chosen ? ".inside-right" : ""}`, null, `${what}: `, this.token(row.token), ` ${share(row.before)} → ${share(row.after)}, ${places(row)}, ΔL\u00a0${signed(row.delta)}`);
      const chosen = build.visit(node)?.chosen;
      const right = found.rows.find((row) => row.token === chosen);
      return [
        h("p.kicker", null, scorer === "static" ? "Correction of the greedy chain" : "Correction for this path"),
        best,
        up ? line("Gains most", up) : null,
        down ? line("Loses most", down) : null,
        right && right !== up && right !== down ? line("Target’s choice", right) : null,
      ];
    }

    coverageFacts(node, found) {
      const { base, corrected } = this.build.coverage(node);
      if (base === null) return [];
      const line = (name, part) => [h("dt", null, name), h("dd", null, h("span.bar", null, h("i", { style: `width:${100 * (1 - part)}%` }))), h("dd", null, 1 - part < 2e-4 ? "< 0.02 %" : percent(Math.log(1 - part)))]; // log-sums have 6 digits
      const out = [h("p.kicker", null, h("span", null, term("topm", found ? `Top ${found.count}` : "Top-M"), " cuts off, of the whole vocabulary")), h("dl.inside-cover", null, ...line("by L", base), ...(corrected === null ? [] : line("by L + ΔL", corrected)))];
      if (found?.left) out.push(h("p.meta", null, `${found.left} of the candidates were not recorded: together ${share(found.leftAfter)} by score.`));
      return out;
    }

    // ---- verify

    showVerify() {
      const { build } = this;
      const { number: count, visit } = build.at(this.at);
      this.list.setAttribute("aria-label", "Verify walk");
      this.list.replaceChildren(...this.walkList(count));
      this.main.setAttribute("aria-label", "The target's own tokens");
      this.main.replaceChildren(...this.targetBars(visit));
      this.facts.replaceChildren(...this.verifyFacts(count, visit).filter(Boolean));
    }

    walkList(count) {
      const { build } = this;
      const items = build.visits.map((visit, j) => {
        const ends = build.accepted(j) === null;
        const seen = j < count;
        return h(
          `li.inside-visit${j === count - 1 ? ".inside-now" : ""}${seen ? "" : ".inside-later"}`,
          j === count - 1 ? { "aria-current": "step" } : null,
          h("button.link", { type: "button", onclick: () => this.go(build.builds + j) }, build.run.label(build.token(visit.node))),
          h("span.inside-outcome", null, seen ? (ends ? "bonus " : "accepted ") : "", seen ? this.token(visit.chosen, ends ? ".inside-bonus" : ".inside-yes") : null),
        );
      });
      return [h("p.inside-head", null, h("span", null, term("verify", "Verify walk"), ": after each token, the target's choice")), h("ol.inside-visits", null, ...items)];
    }

    targetBars(visit) {
      const { build } = this;
      const { nodes, run } = build;
      const found = build.candidates(visit.node);
      const kids = new Map(build.children(visit.node).map((i) => [nodes.token[i], i]));
      const union = new Map([...nodes.token.keys()].filter((i) => nodes.parent[i] === visit.node).map((i) => [nodes.token[i], i]));
      const top = visit.top.some(([token]) => token === visit.chosen) ? visit.top : [...visit.top, [visit.chosen, null]];
      const drafter = (token) => {
        const row = found?.rows.find((r) => r.token === token);
        if (row) return percent(row.after);
        return union.has(token) ? percent((nodes[run.settings.scorer] || [])[union.get(token)]) : found && !found.left ? "not scored" : DASH;
      };
      const drafted = top.map(([token]) => drafter(token));
      const known = drafted.some((p) => p !== DASH);
      const rows = top.map(([token, logp], j) => {
        const p = value(logp);
        const tags = [token === visit.chosen ? "chosen" : "", kids.has(token) ? "drafted" : ""].filter(Boolean);
        return h(
          `tr${token === visit.chosen ? ".inside-chosen" : ""}`,
          null,
          h("th", { scope: "row" }, run.label(token)),
          h("td.inside-barcell", null, h("span.inside-bar-line", null, h("i", { style: `width:${p === null ? 0 : 100 * Math.exp(Math.min(0, p))}%` }))),
          h("td", null, percent(p)),
          known ? h("td.inside-drafter", null, drafted[j]) : null,
          h("td.inside-tags", null, ...tags.map((tag) => h(`span.inside-tag${tag === "chosen" ? ".inside-tag-chosen" : ""}`, null, tag))),
        );
      });
      const heat = run.settings.temperature > 0 ? " (before temperature)" : "";
      return [
        h("p.inside-head", null, h("span", null, "What the target wants after ", this.token(build.token(visit.node)), heat)),
        h("table.inside-target", null, h("caption.sr", null, "The target's own top tokens"), h("thead", null, h("tr", null, h("th", { scope: "col" }, "Token"), h("th", { scope: "col", colspan: "2" }, "target p"), known ? h("th", { scope: "col" }, "drafter p") : null, h("td"))), h("tbody", null, ...rows)),
      ];
    }

    verifyFacts(count, visit) {
      const { build } = this;
      const { round, run } = build;
      const next = build.accepted(count - 1);
      const entry = visit.top.find(([token]) => token === visit.chosen);
      const drawn = run.settings.temperature > 0 ? ` It was drawn at temperature ${run.settings.temperature}, with noise that depends on seed and position alone.` : "";
      const head = [
        h("p.kicker", null, h("span", null, next === null ? term("bonus", "Bonus token") : `Accepted draft ${count}`, entry ? `, target probability ${share(entry[1])}` : "")),
        h("p.token", null, run.label(visit.chosen)),
      ];
      if (next !== null)
        return [...head, h("p.verdict.yes", null, "A drafted child carries the target's choice: the walk goes on there.", drawn), h("p.inside-so", null, `So far ${plural(count, "draft")} accepted. All rows come from one target forward.`)];
      return [...head, h("p.verdict", null, ...this.whyStopped(visit), drawn), h("p.kicker", null, "This round"), h("p", null, sum(round), ". The bonus is the next anchor.")];
    }

    whyStopped(visit) {
      const { build } = this;
      const { why, row, found, count, score } = build.missed();
      const chosen = this.token(visit.chosen);
      const kids = build.children(visit.node).length;
      const stop = kids ? ["The walk stops: ", kids === 1 ? "the one drafted child is another token. " : `none of the ${kids} drafted children is `, ...(kids === 1 ? [] : [chosen, ". "])] : ["The walk ends at a leaf: nothing was drafted after it. "];
      const last = build.popped[build.popped.length - 1];
      switch (why) {
        case "nothing":
          return ["Nothing was drafted: the target's own next token."];
        case "stop-token":
          return ["The accepted path ends with a stop token; nothing is accepted after one."];
        case "budget":
          return ["The walk ends at a leaf: the budget was spent when this node was popped, so it has no children."];
        case "last-level":
          return ["Everything was accepted: the drafter drafts no deeper level."];
        case "cut-off":
          return [...stop, chosen, ` is not among the ${count} candidates: top-M cut it off, so it could not be drafted.`];
        case "not-pushed":
          return [...stop, chosen, ` was ${nth(row.place)} by L and ${row.rank < found.exact ? nth(row.rank) : `below ${nth(found.exact - 1)}`} by score; only the best ${found.pushed} are pushed.`];
        case "not-reached":
          return [...stop, chosen, ` was on the heap with Σ log p = ${number(score)}, but ${build.stopsEarly ? "a further node did not pay" : "the budget went to likelier paths"} (the last at ${number(build.score(last))}).`];
        default:
          return kids ? [...stop] : ["The walk ends at a leaf: nothing was drafted after it."];
      }
    }
  }

  Object.assign(DP.parts, { Inside });
})((window.DominoPlayer = window.DominoPlayer || {}));
