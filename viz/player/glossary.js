/* Terms of the field in one or two sentences each; shown as a tip wherever a term stands. */
(function (DP) {
  "use strict";
  const { h } = DP.parts;
  const GLOSSARY = {
    round: "One draft → build → verify → commit cycle. Every round costs one forward pass of the target.",
    anchor: "The last committed token, root of the round's tree. Its own target state is not computed yet: it is row 0 of every verify.",
    draft: "A token that the small model proposed and the target has not checked yet.",
    bonus: "The target's own next token after the accepted path. It comes free with every verify and becomes the next anchor.",
    tau: "τ: tokens committed per round, the bonus token included. Plain autoregressive decoding has τ = 1.",
    delta: "ΔL: what the Domino head adds to a candidate's base logit for the tokens already on its path.",
    logit: "L: the drafter's base logit of this token at this depth. It is blind to the path.",
    topm: "Top-M: only the M most likely candidates of a level are corrected and scored (M = 64 unless said otherwise).",
    conditional: "Each node's children are corrected for the node's own path, so siblings in different branches get different scores.",
    static: "One correction per depth, taken along the greedy chain and shared by every node of that depth.",
    marginal: "Base logits only: one distribution per depth, the same whatever came before it.",
    verify: "One target forward over anchor and tree; each row sees only its own ancestors. The walk follows the target's choices.",
    holds: "The longest path of this tree that matches the text the run went on to emit: what this tree would have got accepted at this anchor. It is per anchor; another method's own run has its own anchors.",
    speedup: "This run's tokens per second over plain autoregressive decoding on the same machine in the same mode. “–” when no such run was recorded.",
    logp: "Natural log of the probability, normalised over the same top-M candidates for all three scorers, so that they can be compared.",
    cumulative: "Sum of the log-probabilities along the path, as the best-first builder ranks it. As in the paper, the first level is normalised over the whole vocabulary there and the corrected levels over the top-M, so it can differ a little from the sum of this column.",
    censored: "The text ends before such a path does, so its tree may hold more than was counted.",
    heap: "Paths that were pushed and not popped yet, likeliest first. The builder pops the likeliest, adds it to the tree and pushes its children.",
    rank: "Place of this token in the target's own distribution after this path; 1 is its favourite.",
  };

  /** A term with its explanation: hover, focus or tap. */
  function term(key, text) {
    return h("span.term", { tabindex: "0", "data-term": key }, text);
  }

  /** One tip for the whole player, placed beside whatever asks for it. */
  function tips(root) {
    const tip = h("div.tip", { role: "tooltip", id: `dp-tip-${Math.random().toString(36).slice(2, 8)}`, hidden: true });
    root.append(tip);
    let owner = null;
    const show = (element) => {
      const text = element.dataset.tip || GLOSSARY[element.dataset.term];
      if (!text) return;
      owner = element;
      tip.textContent = text;
      tip.hidden = false;
      element.setAttribute("aria-describedby", tip.id);
      const at = element.getBoundingClientRect();
      const frame = root.getBoundingClientRect();
      const left = Math.max(8, Math.min(at.left - frame.left, frame.width - tip.offsetWidth - 8));
      const above = at.bottom + tip.offsetHeight + 16 > innerHeight;
      tip.style.left = `${left}px`;
      tip.style.top = `${(above ? at.top - tip.offsetHeight - 8 : at.bottom + 8) - frame.top}px`;
    };
    const hide = () => {
      if (owner) owner.removeAttribute("aria-describedby");
      owner = null;
      tip.hidden = true;
    };
    const find = (event) => (event.target instanceof Element ? event.target.closest("[data-term],[data-tip]") : null);
    root.addEventListener("pointerover", (event) => (find(event) ? show(find(event)) : hide()));
    root.addEventListener("focusin", (event) => (find(event) && find(event).matches(":focus-visible") ? show(find(event)) : hide()));
    root.addEventListener("focusout", hide);
    root.addEventListener("pointerleave", hide);
    root.addEventListener("keydown", (event) => event.key === "Escape" && hide());
    return hide;
  }

  Object.assign(DP.parts, { term, tips, GLOSSARY });
})((window.DominoPlayer = window.DominoPlayer || {}));
