/* A run as the player needs it: the served trace (trace JSON + layout) and what follows from it. */
(function (DP) {
  "use strict";
  const { bytesOf, tokenText, value } = DP.parts;

  const BITS = { marginal: 1, static: 2, conditional: 4, verified: 8 };
  const STAGES = ["draft", "build", "verify", "commit"];
  const SCORERS = ["conditional", "static", "marginal"];
  const SCORER_TITLES = { conditional: "Conditional", static: "Static-corrected", marginal: "Marginal", verified: "Drafted" };
  const METHOD_TITLES = {
    ar: "Autoregressive (AR)",
    dflash: "DFlash chain",
    domino: "Domino chain",
    ddtree: "DDTree",
    caddtree: "CaDDTree",
    marginal: "Marginal tree",
    static: "Static-corrected tree",
    dominotree: "DominoTree",
    condadaptive: "CondAdaptive",
    "condadaptive-calibrated": "CondAdaptive, calibrated",
  };
  const CHAINS = new Set(["dflash", "domino"]);
  const ANCHOR = -1;
  const BONUS = -2;

  let serial = 0;

  class Run {
    /** `served`: a parsed trace with `layout`; may hold no rounds yet (live). Throws Error with one clear sentence. */
    constructor(served) {
      if (!served || served.schema !== "dominotree.trace" || !Array.isArray(served.rounds))
        throw new Error("This is not a DominoTree trace.");
      if (served.version > 1) throw new Error(`This trace has version ${served.version}; this player reads version 1.`);
      if (!Array.isArray(served.layout) || served.layout.length !== served.rounds.length)
        throw new Error("This trace has no layout; open it on the page, which computes one.");
      this.serial = ++serial;
      this.header = served.header || {};
      this.settings = this.header.settings || {};
      this.pair = this.header.pair || {};
      this.prompt = served.prompt || {};
      this.summary = served.summary || {};
      this.id = served.run_id || "";
      this.own = Boolean(served.own); // decoded live by this visitor, not recorded
      this.firstToken = served.first_token;
      this.rounds = [];
      this.layout = [];
      this.labels = new Map();
      this.hexes = new Map();
      this.starts = []; // tokens of the output before the round (prefill's token included)
      this.pieces = []; // [round (0 = prefill), text, node (index, BONUS), token] in output order
      this.stream = new TextDecoder("utf-8");
      this.committed = 0;
      this.spent = 0;
      this.soFar = []; // per round: {committed, ms}
      this.addTokens(served.tokens);
      if (this.firstToken !== null && this.firstToken !== undefined) this.emit(0, this.firstToken, ANCHOR);
      served.rounds.forEach((round, k) => this.push(round, served.layout[k]));
      if (this.summary.rounds !== undefined) this.flush();
    }

    get method() {
      return this.settings.method || "";
    }
    get title() {
      return METHOD_TITLES[this.method] || this.method || "Run";
    }
    get size() {
      return this.rounds.length;
    }
    get isTree() {
      return this.method !== "ar" && !CHAINS.has(this.method);
    }
    /** The scorer whose tree this run verified; "verified" for chains (their one path is what was drafted). */
    get ownScorer() {
      return this.isTree && SCORERS.includes(this.settings.scorer) ? this.settings.scorer : "verified";
    }

    addTokens(tokens) {
      for (const [id, bytes] of Object.entries(tokens || {})) this.hexes.set(Number(id), bytes);
    }

    append({ round, layout, tokens }) {
      this.addTokens(tokens);
      this.push(round, layout);
    }

    finish({ summary, counterfactuals, header, run_id }) {
      if (header) {
        this.header = header;
        this.settings = header.settings || {};
        this.pair = header.pair || {};
      }
      this.summary = summary || {};
      if (run_id) this.id = run_id;
      if (counterfactuals) this.rounds.forEach((r, k) => (r.counterfactual = counterfactuals[k] || r.counterfactual));
      this.flush();
    }

    push(round, layout) {
      const index = this.rounds.length + 1;
      this.starts.push(this.pieces.length);
      round.committed.forEach((token, k) => {
        if (k < round.kept) this.emit(index, token, k < round.path.length ? round.path[k] : BONUS);
      });
      this.committed += round.committed.length;
      this.spent += STAGES.reduce((sum, stage) => sum + (value((round.times_ms || {})[stage]) || 0), 0);
      this.soFar.push({ committed: this.committed, ms: this.spent });
      this.rounds.push(round);
      this.layout.push(layout);
    }

    emit(round, token, node) {
      this.pieces.push({ round, node, token, text: this.stream.decode(bytesOf(this.hex(token)), { stream: true }) });
    }

    flush() {
      const rest = this.stream.decode();
      if (rest && this.pieces.length) this.pieces[this.pieces.length - 1].text += rest;
    }

    hex(token) {
      return this.hexes.get(token) || "";
    }

    /** Visible text of a token id. */
    label(token) {
      let text = this.labels.get(token);
      if (text === undefined) {
        text = this.hexes.has(token) ? tokenText(bytesOf(this.hexes.get(token))) || "⟨empty⟩" : `⟨id ${token}⟩`;
        this.labels.set(token, text);
      }
      return text;
    }

    /** Tokens that the run went on to emit after the round's anchor (raw, before any cut), at most `count`. */
    textAfter(k, count = 64) {
      const text = [];
      for (let r = k; r < this.rounds.length && text.length < count; r++) text.push(...this.rounds[r].committed);
      return text.slice(0, count);
    }

    tau(k) {
      return this.soFar[k].committed / (k + 1);
    }
    tokensPerSecond(k) {
      const { committed, ms } = this.soFar[k];
      return ms > 0 ? (1000 * committed) / ms : null;
    }
    get speed() {
      const stored = value(this.summary.tokens_per_second);
      return stored !== null ? stored : this.size ? this.tokensPerSecond(this.size - 1) : null;
    }
    get speedUp() {
      const ar = value(this.header.ar_tokens_per_second);
      return ar && this.speed !== null ? this.speed / ar : null;
    }
    meanMs(stage) {
      const times = this.rounds.map((r) => value((r.times_ms || {})[stage])).filter((t) => t !== null);
      return times.length ? times.reduce((a, b) => a + b, 0) / times.length : null;
    }

    /** Most lanes above or below the spine in any round. */
    get mostLanes() {
      return Math.max(0, ...this.layout.map(({ lanes }) => Math.max(-lanes[0], lanes[1])));
    }

    /** Where it ran; on a GPU with the precision, which its speed depends on. */
    get machine() {
      const { machine } = this.header;
      return machine && /^cuda/.test(this.pair.device || "") && this.pair.dtype ? `${machine}, ${this.pair.dtype}` : machine || "";
    }

    /** Scorers whose trees are recorded in round k; the run's own is always among them when it is a tree. */
    scorers(k) {
      if (!this.isTree || k < 0 || k >= this.size) return [];
      const all = this.rounds[k].nodes.trees.reduce((bits, b) => bits | b, 0);
      return SCORERS.filter((s) => all & BITS[s] || (s === this.ownScorer && all & BITS.verified));
    }

    /** Is node n of round k in this scorer's tree? */
    bit(scorer) {
      return scorer === this.ownScorer ? BITS.verified : BITS[scorer];
    }

    /** {accepted, censored} of a scorer's tree at anchor k, or null when unknown (the run is still going). */
    counterfactual(k, scorer) {
      const round = this.rounds[k];
      if (scorer === this.ownScorer) return { accepted: round.path.length, censored: false };
      return (round.counterfactual || {})[scorer] || null;
    }

    /** The path along the emitted text that the scorer's tree holds: nodes of the spine, from depth 1. */
    held(k, scorer) {
      const bit = this.bit(scorer);
      const path = [];
      for (const n of this.layout[k].spine) {
        if (!(this.rounds[k].nodes.trees[n] & bit)) break;
        path.push(n);
      }
      return path;
    }

    /** By scorer, over the anchors: {accepted: coming tokens held, cut: paths that the end of the text cut}; a scorer is missing
        while an anchor's is unknown. */
    tally() {
      if (this.tallied) return this.tallied;
      const sums = {};
      for (const s of SCORERS) {
        const found = this.rounds.map((_, k) => this.counterfactual(k, s));
        if (this.size && found.every(Boolean)) sums[s] = { accepted: found.reduce((sum, c) => sum + c.accepted, 0), cut: found.filter((c) => c.censored).length };
      }
      if (this.summary.rounds !== undefined) this.tallied = sums; // the run has ended
      return sums;
    }

    /** Where scorer a's tree holds most more of the coming tokens than b's, in a run that tally() knows both of: [how many,
        round (0 …)]. A round whose build was recorded comes before one that is a little better. */
    gain(a, b) {
      const gains = this.rounds.map((_, k) => this.counterfactual(k, a).accepted - this.counterfactual(k, b).accepted);
      const best = (rounds) => rounds.reduce((found, k) => (found === null || gains[k] > gains[found] ? k : found), null);
      const all = [...gains.keys()];
      const told = best(all.filter((k) => this.rounds[k].pops?.length));
      const most = best(all);
      const at = told !== null && gains[told] >= 0.6 * gains[most] ? told : most;
      return [gains[at], at];
    }
  }

  /** Tokens of the output before each round of any of these runs, in order: the steps by text position. */
  const stepsOf = (runs) => [...new Set(runs.flatMap((run) => run.starts))].sort((a, b) => a - b);

  Object.assign(DP.parts, { Run, stepsOf, BITS, STAGES, SCORERS, SCORER_TITLES, METHOD_TITLES, ANCHOR, BONUS });
})((window.DominoPlayer = window.DominoPlayer || {}));
