/* Two runs of one prompt: what compares them as a whole, where they differ most, and the race (race.js).

   Positions of the text are counted in tokens of the output from 1, the prefill's token being the first. A round's
   anchor is token `run.starts[k]`; it writes from the next one on. */
(function (DP) {
  "use strict";
  const { h, term, number, plural, value, missing, Race, sameMachine, DASH } = DP.parts;

  const MUCH = 4; // drafts more than the other run at the same anchor: worth a look
  const FEW = 3; // fewer of these: the list is filled up with the next largest differences
  const MOST = 7;

  /** A name that may break between its words, written together or not: "Cond|Adaptive". */
  const breakable = (name) => name.split(/(?<=[a-z])(?=[A-Z])/).flatMap((part, k) => (k ? [document.createElement("wbr"), part] : [part]));

  /** Tokens at the start of the output that both runs share. */
  function common([a, b]) {
    const n = Math.min(a.pieces.length, b.pieces.length);
    for (let k = 0; k < n; k++) if (a.pieces[k].token !== b.pieces[k].token) return k;
    return n;
  }

  const sameText = (runs) => common(runs) === Math.min(...runs.map((r) => r.pieces.length));

  /**
   * Where both runs stand at the same token after the same text: [{start, rounds: [k, k], drafts: [n, n]}], in text
   * order. Only there can accepted drafts be compared.
   */
  function shared(runs) {
    const reach = common(runs);
    const [a, b] = runs;
    const other = new Map(b.starts.map((start, k) => [start, k]));
    const found = [];
    a.starts.forEach((start, k) => {
      const j = other.get(start);
      if (j === undefined || start > reach) return;
      found.push({ start, rounds: [k, j], drafts: [a.rounds[k].path.length, b.rounds[j].path.length] });
    });
    return found;
  }

  /** The most instructive of these positions: those MUCH apart, else the largest differences; largest first. */
  function instructive(positions) {
    const gap = ({ drafts }) => Math.abs(drafts[0] - drafts[1]);
    const ranked = positions.filter((p) => gap(p) > 0).sort((p, q) => gap(q) - gap(p) || p.start - q.start);
    const much = ranked.filter((p) => gap(p) >= MUCH);
    return (much.length >= FEW ? much : ranked.slice(0, FEW + 2)).slice(0, MOST);
  }

  /** The text before a position, cut at its beginning. */
  function textBefore(run, start, most = 16) {
    const text = run.pieces
      .slice(Math.max(0, start - 8), start)
      .map((p) => p.text)
      .join("")
      .replace(/\s*\n\s*/g, " ⏎ ");
    const characters = Array.from(text);
    if (characters.length <= most && start <= 8) return text;
    const end = characters.slice(-most).join("");
    const word = end.indexOf(" ");
    return `…${word >= 0 && word < most / 2 ? end.slice(word + 1) : end}`.trimEnd(); // from a whole word on, if it is near
  }

  class Comparison {
    constructor(player) {
      this.player = player;
      this.racing = false;
      this.runs = null;
      const segment = (name, title, tip) => h("button.segment", { type: "button", "data-by": name, "aria-pressed": "false", "data-tip": tip, onclick: () => this.choose(name) }, title);
      this.modes = h(
        "div.segments",
        { role: "group", "aria-label": "Step by", hidden: true },
        segment("round", "By round", "Round 1 beside round 1, 2 beside 2"),
        segment("position", "By text position", "The rounds that cover the same token of the text"),
        segment("race", "Race", "Both texts as they came, on the recorded clock"),
      );
      this.summary = h("section.card.summary", { "aria-label": "Both runs", hidden: true });
      this.jumps = h("section.card.jumps", { "aria-label": "Where they differ most", hidden: true });
      this.race = new Race({ onMoved: () => this.moved() });
    }

    enter(runs) {
      this.runs = runs;
      const title = (r) => (r.method === "ar" ? "AR" : r.title);
      this.names = runs[0].title === runs[1].title ? runs.map((r) => `${r.title}${r.settings.budget ? `, ${r.settings.budget}` : ""}`) : runs.map(title);
      if (this.names[0] === this.names[1]) this.names = this.names.map((name, i) => `${name} (${i + 1})`);
      this.modes.hidden = this.summary.hidden = false;
      this.setRacing(false);
      const button = this.modes.querySelector("[data-by=race]");
      button.disabled = !this.race.prepare(runs);
      this.positions = shared(runs);
      this.list = instructive(this.positions);
      this.showSummary();
      this.showJumps();
    }

    leave() {
      this.setRacing(false);
      this.runs = null;
      for (const pane of this.player.panes) pane.holds.hidden = false;
      this.modes.hidden = this.summary.hidden = this.jumps.hidden = true;
    }

    choose(name) {
      if (name === "race") return this.setRacing(!this.racing);
      if (this.racing) {
        this.setRacing(false);
        this.goTo(this.race.rounds);
      }
      this.player.stepBy(name);
      this.player.render();
    }

    /** Show the rounds in which the race stands. */
    goTo([k]) {
      const { player } = this;
      player.at = player.by === "position" ? Math.max(0, player.stops.indexOf(this.runs[0].starts[k])) : k;
    }

    setRacing(on) {
      if (on && (!this.runs || !this.race.pair || this.player.presenter.on)) return;
      if (on) this.player.play(false);
      const changed = on !== this.racing;
      this.racing = on;
      this.player.root.classList.toggle("dp-racing", on);
      if (on) this.race.enter();
      else this.race.leave();
      if (changed) this.player.render();
    }

    /** The race moved, started or stopped: the transport follows. */
    moved() {
      if (!this.racing) return;
      this.player.showControls();
      if (!this.race.running) this.player.writeHash();
    }

    // ---- what the player asks ---------------------------------------------------------------------------

    /** Line over a pane: where in the text its round stands. */
    place(pane) {
      const { run, k } = pane;
      const start = run.starts[k];
      const kept = run.rounds[k].kept;
      const first = start + 1;
      const writes = kept === 0 ? "writes nothing more" : kept === 1 ? `writes token ${first}` : `writes tokens ${first}–${start + kept}`;
      const mark = pane.tree.guide === null ? "" : `, dotted line: token ${start + pane.tree.guide}`;
      return `after token ${start}, ${writes}${mark}`;
    }

    /** Before the panes are drawn: what the trees count along their axis, and the line that marks the common position. */
    prepare() {
      const { player } = this;
      const position = player.comparing && player.by === "position" ? player.stops[player.at] : null;
      const starts = player.panes.map((pane) => (pane.run && pane.run.size ? pane.run.starts[pane.k] : null));
      const apart = starts.some((start) => start !== starts[0]);
      player.panes.forEach((pane, i) => {
        pane.tree.origin = position === null ? null : starts[i];
        pane.tree.guide = position === null || starts[i] === null || !apart ? null : position + 1 - starts[i];
      });
    }

    /** After the panes are drawn. */
    update() {
      const { player } = this;
      if (!player.comparing) return;
      if (this.racing && player.presenter.on) this.setRacing(false);
      for (const pane of player.panes) {
        pane.offset.textContent = pane.run.size ? this.place(pane) : "";
        pane.holds.hidden = player.chosen === null;
      }
      const at = player.panes.map((pane) => pane.k).join();
      for (const row of this.jumps.querySelectorAll("tbody tr")) {
        if (row.dataset.rounds === at) row.setAttribute("aria-current", "true");
        else row.removeAttribute("aria-current");
      }
    }

    // ---- cards ------------------------------------------------------------------------------------------

    showSummary() {
      const { runs, names } = this;
      const fair = sameMachine(runs);
      const sum = (r, of) => r.rounds.reduce((total, round) => total + of(round), 0);
      const spent = (r) => value(r.summary.decode_ms) ?? (r.size ? r.soFar[r.size - 1].ms || null : null);
      const rows = [
        // [name, unit, value of a run, digits, higher is better (1), lower (−1) or neither]
        [[term("tau", "τ")], "tokens/round", (r) => (r.size ? r.tau(r.size - 1) : null), 2, 1],
        ["rounds", "", (r) => r.size, 0, 0],
        ["tokens", "", (r) => r.summary.new_tokens ?? r.pieces.length, 0, 0],
        ["accepted drafts", "", (r) => r.summary.accepted_drafts ?? sum(r, (round) => round.path.length), 0, 0],
        ["speed", "tokens/s", (r) => r.speed, 1, fair ? 1 : 0],
        [[term("speedup", "over AR")], "", (r) => r.speedUp, 2, 0, "×"],
        ["decoding", "s", (r) => (spent(r) === null ? null : spent(r) / 1000), runs.some((r) => spent(r) !== null && spent(r) < 1000) ? 3 : 2, 0],
        ["build, mean", "ms/round", (r) => (r.method === "ar" ? null : r.meanMs("build")), 2, 0], // AR builds nothing
      ];
      const cells = ([, , of, digits, better, after = ""]) => {
        const found = runs.map(of);
        return found.map((x, i) => {
          const other = found[1 - i];
          const best = better && !missing(x) && !missing(other) && better * (x - other) > 0;
          return h(best ? "td.best" : "td", null, missing(x) ? DASH : `${number(x, digits)}${after}`);
        });
      };
      const drafters = runs.map((r) => (r.method === "ar" ? null : r.header.drafter_label || r.pair.drafter || null));
      const notes = [];
      const texts = sameText(runs);
      notes.push(texts ? "Both runs emit the same text." : "The two runs emit different texts: rounds can be compared, tokens only as far as the texts agree.");
      if (fair) notes.push(runs[0].machine === runs[1].machine ? `Both on ${runs[0].machine}.` : `${runs.map((r, i) => `${names[i]} on ${r.machine}`).join(", ")}.`);
      else notes.push(`Different machines: ${runs.map((r, i) => `${names[i]} on ${r.header.machine || "an unnamed one"}`).join(", ")}. Speeds do not compare the methods.`);
      if (drafters[0] && drafters[1] && drafters[0] !== drafters[1]) notes.push(`Drafters: ${names.map((name, i) => `${name} ${drafters[i]}`).join(", ")}.`);
      this.summary.replaceChildren(
        h(
          "table.compare",
          null,
          h("caption", null, "Both runs"),
          h("thead", null, h("tr", null, h("td"), ...names.map((name) => h("th", { scope: "col" }, ...breakable(name))))),
          h("tbody", null, ...rows.map((row) => h("tr", null, h("th", { scope: "row" }, ...[row[0]].flat(), row[1] ? h("span.unit", null, ` ${row[1]}`) : null), ...cells(row)))),
        ),
        h("p.hint", null, notes.join(" ")),
      );
    }

    showJumps() {
      const { runs, names, list, positions } = this;
      this.jumps.hidden = runs.some((r) => !r.size);
      const much = list.filter(({ drafts }) => Math.abs(drafts[0] - drafts[1]) >= MUCH).length;
      const anchors = plural(positions.length, "anchor");
      if (!list.length) {
        const why = positions.length ? `At the ${anchors} that both runs share, both accepted as many drafts.` : "The runs share no anchor, so no position of theirs can be compared.";
        return this.jumps.replaceChildren(h("p.kicker", null, "Where they differ most"), h("p.hint", null, why));
      }
      const row = ({ start, rounds, drafts }) =>
        h(
          "tr",
          { "data-rounds": rounds.join() },
          h("td", null, String(start + 1)),
          h(
            "td",
            null,
            h(
              "button.link",
              { type: "button", "aria-label": `Token ${start + 1}: ${names[0]} accepted ${plural(drafts[0], "draft")}, ${names[1]} ${drafts[1]}`, onclick: () => this.jump(start) },
              textBefore(runs[0], start),
            ),
          ),
          ...drafts.map((n, i) => h(n > drafts[1 - i] ? "td.best" : "td", null, String(n))),
        );
      this.jumps.replaceChildren(
        h(
          "table.compare.jump-table",
          null,
          h("caption", null, "Where they differ most"),
          h("thead", null, h("tr", null, h("th", { scope: "col" }, "token"), h("th", { scope: "col" }, "after"), ...names.map((name) => h("th", { scope: "col" }, ...breakable(name))))),
          h("tbody", null, ...list.map(row)),
        ),
        h("p.hint", null, `Accepted drafts where both runs stand at the same token: ${anchors}, at ${much === 0 ? "none" : much} of them one accepted ${MUCH} or more than the other.`),
      );
    }

    /** Both panes at the round that begins after `start` tokens. */
    jump(start) {
      const { player } = this;
      if (this.racing) this.setRacing(false);
      player.play(false);
      player.stepBy("position");
      player.seek(player.stops.indexOf(start));
      player.render();
    }
  }

  Object.assign(DP.parts, { Comparison, instructive, shared });
})((window.DominoPlayer = window.DominoPlayer || {}));
