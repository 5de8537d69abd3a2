/* One run on the screen: heading, tree, strip of rounds, output text. Compare shows two of them. */
(function (DP) {
  "use strict";
  const { h, term, number, plural, TreeView, TextPanel, Strip, SCORERS, SCORER_TITLES, DASH } = DP.parts;

  const STOPS = {
    "stop-token": "ended with a stop token",
    "max-new-tokens": "ended at the token limit",
    context: "ended at the context limit",
    cancelled: "stopped by the visitor, partial",
    error: "ended with an error, partial",
  };

  /** "11 drafts + 1 bonus = 12 tokens". */
  function sum(round) {
    const drafts = round.path.length;
    const total = round.committed.length;
    const text = `${plural(drafts, "draft")} + 1 bonus = ${plural(total, "token")}`;
    return round.kept < total ? `${text}, ${round.kept} kept: the text ends here` : text;
  }

  class Pane {
    constructor({ onHover, onSelect, onRound }) {
      this.onRound = onRound;
      this.title = h("p.title");
      this.headline = h("h2.headline", { "aria-live": "polite" });
      this.stats = h("dl.stats");
      this.holds = h("p.holds");
      this.offset = h("p.offset"); // where in the text the round stands; only while two runs are compared
      this.head = h("header.head", null, this.title, h("div.head-row", null, this.headline, this.offset, this.stats));
      this.treeHost = h("div.tree");
      this.stripHost = h("div.strip");
      this.textHost = h("div.text");
      this.main = h("section.pane", null, this.treeHost, this.stripHost, this.textHost);
      this.tree = new TreeView(this.treeHost, { onHover: (node) => onHover(this, node), onSelect: (node) => onSelect(this, node) });
      this.treeHost.after(this.tree.foldRow);
      this.strip = new Strip(this.stripHost, { onRound: (k) => onRound(this, k) });
      this.text = new TextPanel(this.textHost, {
        onWord: (round, piece) => {
          if (!this.run.size) return;
          onRound(this, Math.max(0, round - 1));
          if (piece && round) onSelect(this, piece.node);
        },
      });
      this.run = null;
      this.k = 0;
      this.node = null;
    }

    setRun(run, live) {
      this.run = run;
      // A finished run takes no more height than its largest round can use.
      this.main.style.setProperty("--dp-tree-most", live ? "9999px" : `${Math.max(202, 96 + 84 * run.mostLanes)}px`);
      this.k = 0;
      this.node = null;
      this.drawn = null;
      this.tree.foldRow.hidden = true;
      this.showTitle();
    }

    showTitle() {
      const { run } = this;
      const s = run.settings;
      const facts = []; // a phone shows the first of them: the machine, whose times stand below, before the models
      if (run.isTree && s.budget) facts.push(`budget ${s.budget}`);
      if (s.temperature) facts.push(`temperature ${s.temperature}`);
      facts.push(run.machine, run.header.created ? `${run.own ? "run live" : "recorded"} ${date(run.header.created)}` : "live");
      facts.push(run.pair.target || run.pair.name, run.method === "ar" ? null : run.header.drafter_label || run.pair.drafter);
      if (run.partial) facts.push("partial");
      this.text.ended(STOPS[run.summary.stop_reason] || "");
      this.title.dataset.tip = facts.filter(Boolean).join(" · ");
      this.title.replaceChildren(h("strong", null, run.title), ...facts.filter(Boolean).map((f) => ` · ${f}`));
    }

    /** Scorer whose tree is drawn: the chosen one where it is recorded, else the run's own. */
    scorer(chosen) {
      return chosen && this.run.scorers(this.k).includes(chosen) ? chosen : this.run.ownScorer;
    }

    /** The sizes changed: measure anew. False while the pane is hidden. */
    measure() {
      this.stripped = null;
      if (this.tree.measure()) return true;
      this.tree.box = null;
      return false;
    }

    /** Draw round `this.k`. `live`: the run is still going. */
    draw(chosen, live) {
      const { run, k } = this;
      if (!run.size) {
        this.headline.textContent = live ? "Waiting for the first round …" : "No rounds were recorded";
        this.stats.replaceChildren();
        this.holds.textContent = "";
        this.tree.clear(live ? "The first round appears here as soon as it is decoded." : "This run ended before its first round.");
        this.text.update(run);
        this.strip.update(run);
        this.stripped = null;
        return;
      }
      const round = run.rounds[k];
      const scorer = this.scorer(chosen);
      this.headline.replaceChildren(
        h("b", null, `Round ${k + 1} of ${run.size}`),
        h("span.sep", null, " · "),
        h("span", null, sum(round)),
        h("span.sep", null, " · "),
        h("span.nowrap", null, term("tau", "τ"), ` so far ${number(run.tau(k))}`),
      );
      this.showStats(live);
      this.showHolds(scorer);
      this.tree.stage.hidden = this.tree.zoomBar.hidden = false;
      this.tree.note(round.nodes.token.length ? "" : run.method === "ar" ? "Autoregressive decoding drafts nothing: one target forward, one token." : "Nothing was drafted in this round.");
      if (this.tree.box || this.measure()) {
        this.tree.draw(run, k, scorer, this.node);
        this.drawn = scorer;
      }
      this.tree.stage.setAttribute("aria-label", `${run.title}, round ${k + 1}: ${plural(round.verified_nodes, "node")} drafted after ${run.label(round.anchor)}, ${sum(round)}. The same as a table below.`);
      this.text.update(run);
      this.text.mark(k);
      if (this.stripped !== `${run.serial}/${run.size}`) {
        this.stripped = `${run.serial}/${run.size}`;
        this.strip.update(run);
      }
      this.strip.mark(k);
    }

    showStats(live) {
      const { run } = this;
      const key = `${run.serial}/${run.size}/${live}/${run.summary.rounds}`;
      if (this.statsKey === key) return;
      this.statsKey = key;
      const stat = (name, text) => h("div", null, h("dt", null, name), h("dd", null, text));
      const up = run.speedUp;
      this.stats.replaceChildren(
        stat([term("tau", "τ"), live ? " now" : " of the run"], number(run.tau(run.size - 1))),
        stat("tokens/s", number(run.speed, run.speed >= 1000 ? 0 : 1)), // a GPU's four digits must fit a phone
        stat(term("speedup", "over AR"), up === null ? DASH : `${number(up)}×`),
      );
    }

    showHolds(scorer) {
      const { run, k } = this;
      const known = run.scorers(k);
      if (!known.length) {
        this.holds.textContent = run.method === "ar" ? "" : run.isTree ? "" : "A chain: one drafted token a level, nothing to choose between.";
        return;
      }
      // All sentences in one cell, the others unseen, so that the tree below stays where it is.
      this.holds.replaceChildren(...known.map((s) => h(s === scorer ? "span.hold" : "span.hold.unseen", s === scorer ? null : { "aria-hidden": "true" }, ...this.sentence(s, known))));
    }

    /** What a scorer's tree would have got accepted, here and over the run. */
    sentence(scorer, known) {
      const { run, k } = this;
      const found = run.counterfactual(k, scorer);
      const name = SCORER_TITLES[scorer].toLowerCase();
      const parts = [];
      if (scorer === run.ownScorer) parts.push(`This run verified the ${name} tree${known.length > 1 ? "; the others grow from the same hidden states" : ""}. `);
      else
        parts.push(
          `At this anchor the ${name} tree `,
          term("holds", "holds"),
          found ? ` ${found.accepted} of the coming tokens${found.censored ? " (the text ends before its path does)" : ""}. ` : " … of the coming tokens: known when the run has ended. ",
        );
      const tally = run.tally();
      const [best, other] = pairOf(run, scorer, tally);
      if (other) {
        const more = tally[best].accepted - tally[other].accepted;
        const word = more === 0 ? "as many of the coming tokens as" : `${Math.abs(more)} ${more > 0 ? "more" : "fewer"} of the coming tokens than`;
        const cut = tally[best].cut + tally[other].cut;
        const limit = cut ? [" (", term("censored", `${plural(cut, "path")} cut by the end of the text`), ")"] : [];
        const [gain, at] = run.gain(best, other);
        const most = gain > 0 ? [`; for example ${gain} at `, at === k ? "this round" : h("button.link", { type: "button", onclick: () => this.onRound(this, at) }, `round ${at + 1}`)] : [];
        parts.push(h("span.tally", null, `At these ${plural(run.size, "anchor")} the ${SCORER_TITLES[best].toLowerCase()} tree holds ${word} the ${SCORER_TITLES[other].toLowerCase()} tree`, ...limit, ...most, "."));
      }
      return parts;
    }

    clear(note) {
      this.run = null;
      this.title.textContent = "";
      this.headline.textContent = "";
      this.stats.replaceChildren();
      this.statsKey = this.stripped = null;
      this.holds.textContent = "";
      this.tree.clear(note);
      this.text.run = null;
      this.text.text.replaceChildren();
      this.strip.run = null;
      Object.values(this.strip.paths).forEach((path) => path.setAttribute("d", ""));
      this.strip.cursor.setAttribute("width", 0);
      this.strip.line.setAttribute("d", "");
      this.strip.slits.setAttribute("d", "");
      this.strip.tip.textContent = "";
      this.tree.stage.setAttribute("aria-label", note || "No run is open");
    }
  }

  /** Which two trees the tally compares: the shown one and the run's own, or conditional and marginal. */
  function pairOf(run, scorer, tally) {
    const known = SCORERS.filter((s) => tally[s] !== undefined);
    if (scorer !== run.ownScorer && known.includes(scorer) && known.includes(run.ownScorer)) return [run.ownScorer, scorer];
    const other = run.ownScorer === "marginal" ? "conditional" : "marginal";
    return known.includes(run.ownScorer) && known.includes(other) ? [run.ownScorer, other] : [null, null];
  }

  function date(text) {
    const day = new Date(text);
    return Number.isNaN(day.getTime()) ? String(text) : day.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });
  }

  Object.assign(DP.parts, { Pane, sum });
})((window.DominoPlayer = window.DominoPlayer || {}));
