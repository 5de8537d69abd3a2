/* A race of two recorded runs: both texts fill in at the recorded stage times, slower or faster than they were.

   The clock starts after the prefill. A round's tokens appear when the round is committed, since that is when a reader
   of the stream would get them; the bars of a lane stand where their round stood in time. */
(function (DP) {
  "use strict";
  const { h, number, plural, value, STAGES, BONUS, DASH } = DP.parts;

  /** Seconds of the screen to one recorded second. */
  const PACES = [0.5, 1, 2, 4, 10, 25, 50, 100];
  const LEAST = 7000; // ms that a race should last on the screen: the first pace that does is taken
  const HEIGHT = { bars: 34, stages: 8, lane: 48, axis: 18 };

  const SVG = "http://www.w3.org/2000/svg";
  function svg(tag, attributes, ...children) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, text] of Object.entries(attributes)) element.setAttribute(name, text);
    element.append(...children);
    return element;
  }

  const paceName = (pace) => (pace === 1 ? "real time" : pace < 1 ? `${1 / pace}× faster` : `${pace}× slower`);
  const SHORT = 1000; // ms: the clock of a shorter race shows single ms, and its slider has them
  const clockText = (ms, most) => (ms / 1000).toFixed(most < SHORT ? 3 : 2);
  const seconds = (ms, most) => `${clockText(ms, most)} s`;

  /** When each round of a run ended, in ms after the prefill: {ends, stages}, or null where a round has no times. */
  function clock(run) {
    const ends = [];
    const stages = []; // per round: [stage, from, to]
    let at = 0;
    for (const round of run.rounds) {
      const times = round.times_ms || {};
      const known = STAGES.filter((s) => value(times[s]) !== null);
      if (!known.length) return null;
      stages.push(known.map((s) => [s, at, (at += value(times[s]))]));
      ends.push(at);
    }
    return ends.length ? { ends, stages } : null;
  }

  /** One runner: its line of figures, its track and its text. */
  class Lane {
    constructor() {
      this.name = h("b");
      this.machine = h("span.race-machine");
      this.figures = h("span.race-figures");
      this.head = h("p.race-head", null, h("span.race-name", null, this.name, " ", this.machine), this.figures);
      this.canvas = svg("svg", { class: "dp-race-track", role: "presentation" });
      this.kicker = h("p.kicker");
      this.text = h("p.output.race-text");
    }

    /** `most`: ms that the race lasts. */
    enter(run, times, most) {
      this.run = run;
      this.times = times;
      this.most = most;
      this.name.textContent = run.title;
      this.machine.textContent = run.machine || "unnamed machine";
      this.kicker.textContent = run.title;
      this.spans = [];
      this.text.replaceChildren();
      for (const piece of run.pieces) {
        let span = this.spans[piece.round];
        if (!span) {
          span = this.spans[piece.round] = h(`span.r.${piece.round ? `c${(piece.round - 1) % 6}` : "prefill"}`, { "data-round": piece.round });
          this.text.append(span);
        }
        span.append(h(piece.node === BONUS ? "span.t.tb" : "span.t", null, piece.text));
      }
      this.shown = null;
    }

    /** The bars, for a track of `width` px that lasts `most` ms. */
    layOut(width, most) {
      const { run, times } = this;
      this.scale = width / most;
      const { bars, stages, lane } = HEIGHT;
      const unit = bars / Math.max(2, ...run.rounds.map((r) => r.committed.length));
      const paths = Object.fromEntries(["accepted", "bonus", ...STAGES].map((name) => [name, ""]));
      const bar = (name, from, to, y0, y1) => (paths[name] += `M${from.toFixed(2)} ${y0.toFixed(2)}H${to.toFixed(2)}V${y1.toFixed(2)}H${from.toFixed(2)}Z`);
      run.rounds.forEach((round, k) => {
        const from = (k ? times.ends[k - 1] : 0) * this.scale;
        const to = Math.max(from + 0.6, times.ends[k] * this.scale - Math.min(1.5, 0.1 * (times.ends[k] * this.scale - from)));
        const top = bars - round.path.length * unit;
        if (round.path.length) bar("accepted", from, to, top, bars);
        bar("bonus", from, to, top - unit, top);
        for (const [stage, start, end] of times.stages[k]) bar(stage, start * this.scale, Math.min(to, end * this.scale), bars + 4, bars + 4 + stages);
      });
      this.rest = svg("rect", { class: "dp-race-rest", y: -2, height: lane + 2, width: width + 4 });
      this.head_ = svg("rect", { class: "dp-race-now", y: -2, height: lane, width: 2 });
      this.canvas.setAttribute("viewBox", `0 -4 ${width} ${lane + 4}`);
      this.canvas.style.height = `${lane + 4}px`;
      this.canvas.replaceChildren(...Object.entries(paths).map(([name, d]) => svg("path", { class: `dp-s-${name}`, d })), this.rest, this.head_);
      this.shown = null;
    }

    /** Rounds that have ended at `t`. */
    done(t) {
      const { ends } = this.times;
      let k = 0;
      while (k < ends.length && ends[k] <= t + 1e-6) k++;
      return k;
    }

    draw(t) {
      const { run, times } = this;
      const end = times.ends[times.ends.length - 1];
      const k = this.done(t);
      const over = k >= run.size;
      this.rest.setAttribute("x", Math.min(t, end) * this.scale + 1);
      this.head_.setAttribute("x", Math.min(t, end) * this.scale - 1);
      const stage = over ? null : (times.stages[k].find(([, , to]) => t < to) || times.stages[k][times.stages[k].length - 1])[0];
      const tokens = k < run.size ? run.starts[k] : run.pieces.length;
      const speed = t > 0 ? (1000 * (k ? run.soFar[k - 1].committed : 0)) / Math.min(t, end) : null;
      const figures = `${tokens} of ${run.pieces.length} tokens · ${number(over ? run.speed : speed, 1)} tokens/s · ${over ? `done at ${seconds(end, this.most)}` : `round ${k + 1} of ${run.size}, ${stage}`}`;
      if (figures !== this.figures.textContent) this.figures.textContent = figures;
      if (k === this.shown) return;
      this.shown = k;
      this.spans.forEach((span, round) => {
        span.classList.toggle("dp-coming", round > k);
        span.classList.toggle("dp-now", round === k && k > 0);
      });
      this.reveal();
    }

    reveal() {
      const now = this.spans[this.shown];
      const box = this.text;
      if (!now || box.scrollHeight <= box.clientHeight + 4) return;
      box.scrollTop = Math.max(0, now.offsetTop + now.offsetHeight - box.clientHeight + 8);
    }
  }

  class Race {
    /** `onMoved`: the race stands elsewhere, or began or ceased to run. */
    constructor({ onMoved }) {
      this.onMoved = onMoved;
      this.t = 0; // ms of the recorded clock
      this.running = false;
      this.lanes = [new Lane(), new Lane()];
      this.axis = svg("svg", { class: "dp-race-axis", role: "presentation", preserveAspectRatio: "none" });
      this.lead = h("p.race-lead"); // changes all the time, so it is not read out
      this.result = h("p.race-result", { role: "status" });
      this.note = h("p.hint");
      this.paceSelect = h(
        "select.race-pace",
        { "aria-label": "Pace of the race", onchange: () => (this.pace = Number(this.paceSelect.value)) },
        ...PACES.map((pace) => h("option", { value: pace }, paceName(pace))),
      );
      this.slider = h("input.slider", { type: "range", min: 0, step: 10, value: 0, "aria-label": "Race clock", oninput: () => this.seek(Number(this.slider.value)) });
      this.clockText = h("output.slider-text");
      this.seekBox = h("div.race-seek", null, this.slider, this.clockText);
      this.tracks = h("div.race-tracks", null, ...this.lanes.flatMap((lane) => [lane.head, lane.canvas]), this.axis);
      this.texts = h("div.race-texts", null, ...this.lanes.map((lane) => h("div", null, lane.kicker, lane.text)));
      const key = (name, text) => h("li", null, h(`span.swatch.sw-${name}`), text);
      this.root = h(
        "section.race",
        { "aria-label": "Race on the recorded clock", hidden: true },
        this.tracks,
        h("div.race-lines", null, this.lead, this.result, h("ul.strip-key", null, key("accepted", "accepted drafts"), key("bonus", "bonus"), ...STAGES.map((s) => key(s, s)))),
        this.texts,
        this.note,
      );
      for (const lane of this.lanes) {
        lane.canvas.addEventListener("click", (event) => {
          const box = lane.canvas.getBoundingClientRect();
          this.seek((this.most * (event.clientX - box.left)) / box.width);
        });
      }
    }

    /** Take two runs; false (and no race) where one of them has no recorded times. */
    prepare(runs) {
      const times = runs.map(clock);
      this.pair = times.every(Boolean) ? runs : null;
      if (!this.pair) return false;
      this.most = Math.max(...times.map(({ ends }) => ends[ends.length - 1]));
      this.events = [...new Set(times.flatMap(({ ends }) => ends))].sort((a, b) => a - b);
      runs.forEach((run, i) => this.lanes[i].enter(run, times[i], this.most));
      this.pace = PACES.find((pace) => pace * this.most >= LEAST) ?? PACES[PACES.length - 1];
      this.paceSelect.value = String(this.pace);
      this.slider.step = this.most < SHORT ? "1" : "10";
      this.slider.max = String(Math.ceil(this.most));
      const prefill = runs.map((r) => value(r.summary.prefill_ms));
      this.note.textContent =
        "Recorded stage times; a round's tokens appear when it is committed. " +
        (prefill.every((ms) => ms !== null) ? `The clock starts after the prefill (${number(prefill[0], 0)} ms and ${number(prefill[1], 0)} ms).` : "The clock starts after the prefill.");
      this.t = 0;
      this.width = 0;
      return true;
    }

    enter() {
      this.root.hidden = false;
      this.measure();
    }

    leave() {
      this.play(false);
      this.root.hidden = true;
    }

    /** Lay the tracks out for the width that they have; does nothing while it is the same. */
    measure() {
      const width = this.tracks.clientWidth;
      if (!width || width === this.width || !this.pair) return;
      this.width = width;
      for (const lane of this.lanes) lane.layOut(width, this.most);
      const step = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 300].find((s) => (width * 1000 * s) / this.most > 56) || 1000;
      this.axis.setAttribute("viewBox", `0 0 ${width} ${HEIGHT.axis}`);
      this.axis.replaceChildren();
      for (let k = 0; k * step * 1000 <= this.most; k++) {
        const x = (width * k * step * 1000) / this.most;
        if (x > width - 12 && k) continue;
        this.axis.append(svg("text", { x: k ? x : 0, y: 13, "text-anchor": k ? "middle" : "start" }, k ? `${+(k * step).toFixed(3)}` : "0 s"));
      }
      this.draw();
    }

    draw() {
      if (!this.width) return;
      for (const lane of this.lanes) lane.draw(this.t);
      this.slider.value = String(this.t);
      this.slider.style.setProperty("--dp-fill", `${(100 * this.t) / this.most}%`);
      this.clockText.textContent = `${clockText(this.t, this.most)} / ${seconds(this.most, this.most)}`;
      this.slider.setAttribute("aria-valuetext", `${seconds(this.t, this.most)} of ${seconds(this.most, this.most)}`);
      const over = this.t >= this.most;
      const [result, lead] = over ? [this.sentence(), ""] : ["", this.leader()];
      if (result !== this.result.textContent) this.result.textContent = result;
      if (lead !== this.lead.textContent) this.lead.textContent = lead;
    }

    /** Who has written more so far. */
    leader() {
      const tokens = this.lanes.map((lane, i) => (lane.shown < this.pair[i].size ? this.pair[i].starts[lane.shown] : this.pair[i].pieces.length));
      const ahead = tokens[0] - tokens[1];
      if (this.t === 0) return "Press play: both texts come as they were recorded.";
      return ahead === 0 ? "Level." : `${this.nameOf(ahead > 0 ? 0 : 1)} is ahead by ${plural(Math.abs(ahead), "token")}.`;
    }

    nameOf(i) {
      return this.pair[0].title === this.pair[1].title ? ["The first run", "The second run"][i] : this.pair[i].title;
    }

    /** Who was first, and whether that says anything. */
    sentence() {
      const [a, b] = this.lanes.map((lane, i) => ({ name: this.nameOf(i), ms: lane.times.ends[lane.times.ends.length - 1], tokens: this.pair[i].pieces.length }));
      const [one, two] = a.ms <= b.ms ? [a, b] : [b, a];
      const length = one.tokens === two.tokens ? `for ${plural(one.tokens, "token")}` : `for ${one.tokens} and ${two.tokens} tokens`;
      const who = one.ms === two.ms ? "Both finish together" : `${one.name} finishes first`;
      const times = one.tokens === two.tokens && one.ms ? `, ${number(two.ms / one.ms)}× as fast` : "";
      const machines = sameMachine(this.pair) ? "" : " They ran on different machines, so this does not compare the methods.";
      return `${who}: ${seconds(one.ms, this.most)} against ${seconds(two.ms, this.most)} ${length}${times}.${machines}`;
    }

    seek(t) {
      this.t = Math.max(0, Math.min(this.most, t));
      this.draw();
      this.onMoved();
    }

    /** To the end of the next or previous round of either run; "first", "last". */
    move(step) {
      this.play(false);
      if (step === "first") return this.seek(0);
      if (step === "last") return this.seek(this.most);
      const at = [0, ...this.events];
      this.seek(step > 0 ? (at.find((t) => t > this.t + 1e-6) ?? this.most) : (at.findLast((t) => t < this.t - 1e-6) ?? 0));
    }

    play(on) {
      if (on === this.running) return;
      this.running = on;
      cancelAnimationFrame(this.frame);
      if (on) {
        if (this.t >= this.most) this.t = 0;
        const calm = matchMedia("(prefers-reduced-motion: reduce)").matches; // then only what a round changes is drawn
        let last = performance.now();
        let drawn = -1;
        const tick = (now) => {
          this.t = Math.min(this.most, this.t + Math.max(0, now - last) / this.pace);
          last = now;
          const done = this.lanes.reduce((sum, lane) => sum + lane.done(this.t), 0);
          if (!calm || done !== drawn) this.draw();
          drawn = done;
          if (this.t >= this.most) return this.play(false);
          this.frame = requestAnimationFrame(tick);
        };
        this.frame = requestAnimationFrame(tick);
      }
      this.onMoved();
    }

    /** Rounds (0 …) that each run is in now. */
    get rounds() {
      return this.lanes.map((lane, i) => Math.min(lane.done(this.t), this.pair[i].size - 1));
    }
  }

  const machineOf = (run) => run.header.machine || "";
  const sameMachine = ([a, b]) => machineOf(a) !== "" && machineOf(a) === machineOf(b);

  Object.assign(DP.parts, { Race, sameMachine });
})((window.DominoPlayer = window.DominoPlayer || {}));
