/* The build of one round, step by step: pops of the heap, then the visits of the verify walk. Numbers only, no page.

   Steps: 0 the anchor is expanded; s the s-th node is popped; then one step for each visited node of the verify walk.
   What was popped, and with which score, every trace holds; the candidates of a pop only where they were recorded
   (docs/trace.md, Pop). */
(function (DP) {
  "use strict";
  const { value, missing, ANCHOR, BITS } = DP.parts;

  const PUSHED = 64; // children of a pop that are listed at most

  class Build {
    constructor(run, k) {
      const round = run.rounds[k];
      const { nodes } = round;
      Object.assign(this, { run, k, round, nodes });
      this.popped = [...nodes.token.keys()].filter((i) => nodes.trees[i] & BITS.verified).sort((a, b) => nodes.order[a] - nodes.order[b]);
      this.place = new Map([[ANCHOR, 0], ...this.popped.map((node, j) => [node, j + 1])]); // node -> its step
      this.pops = new Map((round.pops || []).map((pop) => [pop.node, pop]));
      this.visits = round.visits || [];
      this.builds = this.popped.length ? this.popped.length + 1 : 0;
      this.size = this.builds + this.visits.length;
      this.cum = nodes[`cum_${run.settings.scorer}`] || [];
      this.levels = (round.level_logz_m || []).length;
      this.limit = this.knownUntil();
      this.entries = this.pushed();
    }

    /** Were the candidates recorded? */
    get recorded() {
      return this.pops.size > 0;
    }

    /** {stage: "build", node, number} or {stage: "verify", visit, number}; number 0: the anchor's expansion. */
    at(step) {
      if (step < this.builds) return { stage: "build", number: step, node: step ? this.popped[step - 1] : ANCHOR };
      return { stage: "verify", number: step - this.builds + 1, visit: this.visits[step - this.builds] };
    }

    depth(node) {
      return node === ANCHOR ? 0 : this.nodes.depth[node];
    }
    token(node) {
      return node === ANCHOR ? this.round.anchor : this.nodes.token[node];
    }
    /** Cumulative log-probability of a node as the builder had it; null where it is not stored. */
    score(node) {
      return node === ANCHOR ? 0 : value(this.cum[node]);
    }
    /** Token ids of the path from depth 1 to the node. */
    path(node) {
      const path = [];
      for (let at = node; at !== ANCHOR; at = this.nodes.parent[at]) path.unshift(this.nodes.token[at]);
      return path;
    }
    /** Children of a node in the verified tree, in the order in which they were popped. */
    children(node) {
      return this.popped.filter((i) => this.nodes.parent[i] === node);
    }
    /** Did the popped node get no children because the budget was spent? */
    fillsBudget(node) {
      if (node !== this.popped[this.popped.length - 1] || this.pops.has(node)) return false;
      return this.popped.length >= (this.run.settings.budget || Infinity) || (this.round.flags || []).includes("tree-shrunk");
    }

    /** Did a cost-aware rule end the build before its budget was spent? */
    get stopsEarly() {
      const { rule, budget } = this.run.settings;
      return Boolean(rule) && rule !== "fixed" && this.popped.length < (budget || 0);
    }

    /** First step whose pushes were not recorded: from there on the heap is not known. */
    knownUntil() {
      if (!this.recorded) return 0;
      let limit = Infinity;
      for (let j = this.popped.length; j > 0; j--) {
        const node = this.popped[j - 1];
        if (this.pops.has(node)) break;
        if (this.depth(node) < this.levels && !this.fillsBudget(node)) limit = j;
      }
      return limit;
    }

    /** Every path that was pushed: {parent, token, score, rank, pushed, node, popped} in the order of pushing. */
    pushed() {
      const child = new Map(this.popped.map((i) => [`${this.nodes.parent[i]}/${this.nodes.token[i]}`, i]));
      const entries = [];
      for (const [node, pop] of this.pops) {
        const above = this.score(node);
        (pop.offered || []).forEach((at, rank) => {
          const token = pop.token[at];
          const own = child.get(`${node}/${token}`);
          const score = own === undefined ? above + value(pop.score[at]) : this.score(own);
          entries.push({ parent: node, token, score, rank, pushed: this.place.get(node), node: own ?? null, popped: own === undefined ? Infinity : this.place.get(own) });
        });
      }
      return entries;
    }

    /** The heap after a step, best first, as the builder would pop it; null where it is not known. */
    heap(step) {
      const at = Math.min(step, this.builds - 1);
      if (!this.recorded || at >= this.limit) return null;
      const open = this.entries.filter((e) => e.pushed <= at && e.popped > at);
      // Scores are stored with 6 digits: between equal ones the recorded order decides.
      return open.sort((a, b) => b.score - a.score || a.popped - b.popped || a.pushed - b.pushed || a.rank - b.rank);
    }

    /** The path popped in the step `step + 1`; null at the end of the build. */
    next(step) {
      return step + 1 < this.builds ? this.popped[step] : null;
    }

    /**
     * The candidates after a node: {rows, level, corrected, over, count, left, leftBefore, leftAfter, pushed}, or null
     * if they were not recorded. A row: {token, L, delta, before, after (log p), place, rank (0 …), pushed, node}; rows
     * are in base order. `over`: what both probabilities are normalised over, "candidates" or "vocabulary". In the
     * short form `rank` is exact among the best only: `exact` says down to which place.
     */
    candidates(node) {
      const pop = this.pops.get(node);
      if (!pop) return null;
      const level = this.depth(node);
      const corrected = pop.delta.some((d) => !missing(d));
      const whole = !corrected || this.run.settings.full_row === true;
      const [logM, logV] = [value(this.round.level_logz_m[level]), value(this.round.level_logz_v[level])];
      const logz = whole ? logV : logM;
      const rows = pop.token.map((token, i) => {
        const L = value(pop.base_logit[i]);
        return { token, L, delta: value(pop.delta[i]), before: logz === null ? null : L - logz, after: value(pop.score[i]), place: pop.place?.length ? pop.place[i] : i, pushed: false, node: null };
      });
      const byScore = [...rows.keys()].sort((a, b) => rows[b].after - rows[a].after || rows[a].token - rows[b].token);
      const ranked = pop.offered?.length ? [...pop.offered, ...byScore.filter((i) => !pop.offered.includes(i))] : byScore;
      ranked.forEach((i, rank) => (rows[i].rank = rank));
      (pop.offered || []).forEach((i) => (rows[i].pushed = true));
      for (const child of this.children(node)) {
        const row = rows.find((r) => r.token === this.nodes.token[child]);
        if (row) row.node = child;
      }
      const left = pop.left_out || 0;
      return {
        rows,
        ranked: ranked.map((i) => rows[i]),
        level,
        corrected,
        over: whole ? "vocabulary" : "candidates",
        count: rows.length + left,
        left,
        leftBefore: left && logz !== null ? value(pop.left_base) + logM - logz : null,
        leftAfter: left ? value(pop.left_score) : null,
        exact: left ? Math.min(16, rows.length) : rows.length,
        pushed: Math.min(this.run.settings.children ?? PUSHED, rows.length + left),
      };
    }

    /** Share of the probability that the top-M candidates after a node hold: {base, corrected}, null where not stored. */
    coverage(node) {
      const level = this.depth(node);
      const share = (m, v) => (m === null || v === null || m === undefined || v === undefined ? null : Math.exp(Math.min(0, m - v)));
      const base = share(value(this.round.level_logz_m[level]), value(this.round.level_logz_v[level]));
      const child = this.nodes.parent.findIndex((p) => p === node);
      const corrected = this.run.settings.scorer === "conditional" && child >= 0 && !missing(this.nodes.delta[child]);
      return { base, corrected: corrected ? share(value(this.nodes.logz_m[child]), value(this.nodes.logz_v[child])) : null };
    }

    /** The visit of the verify walk at a node, if it was visited. */
    visit(node) {
      return this.visits.find((v) => v.node === node) || null;
    }
    /** The accepted child of the k-th visited node (0 …), null where the walk stopped. */
    accepted(index) {
      return index < this.round.path.length ? this.round.path[index] : null;
    }

    /**
     * Why the token that the target chose where the walk stopped was no child there:
     * {why: "nothing" | "stop-token" | "budget" | "last-level" | "cut-off" | "not-pushed" | "not-reached" | "unknown", row, score}.
     */
    missed() {
      const visit = this.visits[this.visits.length - 1];
      if (!this.popped.length) return { why: "nothing" };
      if (this.children(visit.node).some((i) => this.nodes.token[i] === visit.chosen)) return { why: "stop-token" };
      if (this.fillsBudget(visit.node)) return { why: "budget" };
      if (this.depth(visit.node) >= this.levels && this.levels) return { why: "last-level" };
      const found = this.candidates(visit.node);
      if (!found) return { why: "unknown" };
      const row = found.rows.find((r) => r.token === visit.chosen);
      if (!row) return { why: "cut-off", count: found.count };
      if (!row.pushed) return { why: "not-pushed", row, found };
      return { why: "not-reached", row, found, score: this.score(visit.node) + row.after };
    }
  }

  Object.assign(DP.parts, { Build });
})((window.DominoPlayer = window.DominoPlayer || {}));
