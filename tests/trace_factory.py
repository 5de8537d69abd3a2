"""Made-up but *consistent* traces of any size, for tests of the trace, the layout, the player and the page.

``make_trace`` plays the real game with invented numbers: a text is drawn, every level of every round gets
candidates with base logits and a path-dependent correction, the three scorers build their best-first trees
from them, one tree is verified against the text, and the round commits what matched plus a bonus token. So
every relation that a recorded trace has (cumulative scores, pop order, accepted path, union of trees,
counterfactuals) holds here too. Same arguments, same trace.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable, Sequence

from hypothesis import strategies as st

from dominotree import trace as tr

#: method -> (scorer of the verified tree, builder, drafter label, drafted as one chain)
METHODS: dict[str, tuple[str | None, str | None, str | None, bool]] = {
    "ar": (None, None, None, False),
    "dflash": ("marginal", "chain", "Domino base logits", True),
    "domino": ("conditional", "chain", None, True),
    "ddtree": ("marginal", "reference", "Domino base logits", False),
    "marginal": ("marginal", "reference", "Domino base logits", False),
    "static": ("static", "reference", None, False),
    "dominotree": ("conditional", "reference", None, False),
    "condadaptive": ("conditional", "reference", None, False),
}

#: Tokens that have broken a CSV, a label, a page or a reader somewhere (faults.md U11, U12, U17, S10).
ODD_TOKENS: tuple[bytes, ...] = (
    b"",
    b" ",
    b"   ",
    b"\n",
    b"\n\n",
    b"\r",
    b"\r\n",
    b"\t",
    b"\x00",
    b"a\x00b",
    b"\x1b[31m",
    b"\x7f",
    b"NA",
    b"null",
    b"NULL",
    b"None",
    b"nan",
    b"NaN",
    b"N/A",
    b"<NA>",
    b"inf",
    b"-inf",
    b"1",
    b"007",
    b"1e5",
    b"0x1e5",
    b"True",
    b"1-2",
    b'"',
    b'""',
    b"'",
    b",",
    b";",
    b"\\",
    b"\\n",
    b"a,b",
    b"=1+1",
    b"=",
    b"+",
    b"-",
    b"@",
    b"+1",
    b"-ing",
    b"@SUM(A1)",
    b"</s>",
    b"<b>",
    b"&amp;",
    b"<img src=x onerror=alert(1)>",
    b"${1+1}",
    b"{{x}}",
    b"%{x}",
    "é".encode(),
    "中文".encode(),
    "😀".encode(),
    "👩‍🔬".encode(),
    "\u200b".encode(),
    "\u202e".encode(),
    "\ufeff".encode(),
    "\u00a0".encode(),
    "\u2028".encode(),
    "\ue000".encode(),
    "\u0301".encode(),
    "␣".encode(),
    "⟨".encode(),
    b"\xf0\x9f",
    b"\x98\x80",
    b"\xed\xa0\x80",
    b"a\xffb",
    b"\xc3",
)

_WORDS = """
the a of to and in is that for it as was with be by on not he his but at are this have from or had
an they which one you were all her she there would their we him been has when who will no more if
out so up said what its about than into them can only other time new some could these two may first
then do any like my now over such our man me even most made after also did many off before must well
back through years much where your way down should because long each just state those people too how
little good world very make year still see own work men day get here old between both life being
under three never know same last another while us might great go come since against right came take
used himself few house use place during high without again home around small however found part
school every number course war until always away something fact water though less public put think
almost hand enough took far head yet better government system set told nothing night end why called
eyes find going look asked later point knew week case group
"""

#: The ordinary vocabulary: words with their leading space, some punctuation, digits, the odd tokens.
VOCABULARY: tuple[bytes, ...] = (
    *(b" " + w.encode() for w in _WORDS.split()),
    *(p.encode() for p in ".,?!:;()-'\"0123456789"),
    *(t for t in ODD_TOKENS if t not in {b",", b";", b"'", b'"', b"1", b"-"}),
)
STOP_TOKEN = b"<|im_end|>"

_MASK = (1 << 64) - 1


def _mix(a: int, b: int) -> int:
    """A 64-bit hash of two integers (the splitmix finaliser)."""
    x = (a * 0x9E3779B97F4A7C15 + b + 0x632BE59BD9B4E019) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _unit(a: int, b: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments."""
    return (_mix(a, b) >> 11) / (1 << 53)


def _log_softmax(row: Sequence[float]) -> tuple[list[float], float]:
    top = max(row)
    logz = top + math.log(sum(math.exp(x - top) for x in row))
    return [x - logz for x in row], logz


class _Drafts:
    """What a drafter would offer in one round: candidates, base logits and path-dependent corrections."""

    def __init__(self, key: int, text: Sequence[int], ids: range, levels: int, width: int, skill: float):
        self.key, self.text = key, text
        self.known: dict[tuple[int, ...], tuple[list[float], list[float | None], float]] = {}
        self.candidates: list[list[int]] = []
        self.base: list[list[float]] = []
        rng = random.Random(key)
        for level in range(levels):
            right = text[level]
            tokens = [t for t in rng.sample(ids, min(len(ids), width + 1)) if t != right][: width - 1]
            # The right token's place falls with depth, as it does for a drafter blind to the path.
            place = 0 if rng.random() < skill ** (1 + level / 4) else rng.randrange(1, width + 2)
            if place <= len(tokens) or not tokens:
                tokens.insert(place, right)
            logit = 18.0 + rng.random()
            row = []
            for _ in tokens:
                row.append(logit)
                logit -= rng.expovariate(0.9)
            self.candidates.append(tokens)
            self.base.append(row)
        self.level_rows = [_log_softmax(row) for row in self.base]
        # The static scorer: one correction per level, along the greedy corrected chain.
        path: tuple[int, ...] = ()
        self.static_rows: list[list[float]] = []
        self.greedy: list[int] = []
        for level in range(levels):
            row, _, _ = self.conditional_row(path)
            self.static_rows.append(row)
            best = max(range(len(row)), key=lambda k: (row[k], -k))
            self.greedy.append(self.candidates[level][best])
            path += (self.greedy[-1],)

    def conditional_row(self, path: tuple[int, ...]) -> tuple[list[float], list[float | None], float]:
        """Children of a node: log p over M, ΔL (None at level 0, which has no correction) and logsumexp."""
        if path not in self.known:
            self.known[path] = self._conditional_row(path)
        return self.known[path]

    def _conditional_row(self, path: tuple[int, ...]) -> tuple[list[float], list[float | None], float]:
        level = len(path)
        tokens, base = self.candidates[level], self.base[level]
        if level == 0:
            row, logz = self.level_rows[0]
            return row, [None] * len(tokens), logz
        state = self.key
        for token in path:
            state = _mix(state, token)
        on_text = list(path) == list(self.text[:level])
        delta: list[float | None] = []
        logits = []
        for token, logit in zip(tokens, base, strict=True):
            change = 3.0 * (_unit(state, token) - 0.6) + (
                3.0 if on_text and token == self.text[level] else 0.0
            )
            delta.append(change)
            logits.append(logit + change)
        row, logz = _log_softmax(logits)
        return row, delta, logz

    def row(self, scorer: str, path: tuple[int, ...]) -> list[float]:
        if scorer == "conditional":
            return self.conditional_row(path)[0]
        return (self.static_rows if scorer == "static" else [r for r, _ in self.level_rows])[len(path)]


def _best_first(drafts: _Drafts, scorer: str, budget: int, children: int) -> list[tuple[int, ...]]:
    """Paths of the tree's nodes in the order in which they were popped; ties: first pushed wins."""
    heap: list[tuple[float, int, tuple[int, ...]]] = []
    pushed = 0
    found: list[tuple[int, ...]] = []

    def push(path: tuple[int, ...], score: float) -> None:
        nonlocal pushed
        if len(path) == len(drafts.candidates):
            return
        row, tokens = drafts.row(scorer, path), drafts.candidates[len(path)]
        for k in sorted(range(len(row)), key=lambda k: (-row[k], tokens[k]))[:children]:
            heapq.heappush(heap, (-(score + row[k]), pushed, (*path, tokens[k])))
            pushed += 1

    push((), 0.0)
    while heap and len(found) < budget:
        cost, _, path = heapq.heappop(heap)
        found.append(path)
        push(path, -cost)
    return found


def _make_round(
    index: int,
    anchor: int,
    position: int,
    text: Sequence[int],
    drafts: _Drafts,
    *,
    method: str,
    budget: int,
    children: int,
    scorers: Iterable[str],
    stop_id: int,
    with_pops: bool,
    rng: random.Random,
) -> tr.Round:
    """One round that drafts at ``anchor`` and is judged against ``text`` (the tokens that follow it)."""
    scorer, _, _, chain = METHODS[method]
    trees: dict[str, list[tuple[int, ...]]] = {}
    if scorer is not None:
        trees = {s: _best_first(drafts, s, budget, children) for s in scorers}
        if chain:
            greedy = drafts.greedy if scorer == "conditional" else [c[0] for c in drafts.candidates]
            trees["verified"] = [tuple(greedy[: d + 1]) for d in range(len(greedy))]
        else:
            trees["verified"] = trees.get(scorer) or _best_first(drafts, scorer, budget, children)
    bits: dict[tuple[int, ...], int] = {}
    for name in (
        "verified",
        *tr.SCORERS,
    ):  # the verified tree first, in pop order; parents come before children
        for path in trees.get(name, []):
            bits[path] = bits.get(path, 0) | tr.TREE_BITS[name]
    order = {path: k for k, path in enumerate(trees.get("verified", []))}

    accepted: list[tuple[int, ...]] = []
    while tuple(text[: len(accepted) + 1]) in order and stop_id not in text[: len(accepted)]:
        accepted.append(tuple(text[: len(accepted) + 1]))
    where = {path: k for k, path in enumerate(bits)}

    nodes = tr.Nodes()
    rows: dict[tuple[int, ...], tuple[list[float], list[float | None], float]] = {}
    cum: dict[tuple[int, ...], tuple[float, float, float]] = {(): (0.0, 0.0, 0.0)}
    for path, mask in bits.items():
        above, level, token = path[:-1], len(path) - 1, path[-1]
        if above not in rows:
            rows[above] = drafts.conditional_row(above)
        conditional, delta, logz_m = rows[above]
        k = drafts.candidates[level].index(token)
        marginal, static = drafts.level_rows[level][0][k], drafts.static_rows[level][k]
        m, s, c = cum[above]
        cum[path] = (m + marginal, s + static, c + conditional[k])
        right = list(above) == list(text[:level])
        rank = 0 if right and token == text[level] else rng.randrange(1 if right else 0, 4000)
        nodes.token.append(token)
        nodes.parent.append(where[above] if above else -1)
        nodes.depth.append(level + 1)
        nodes.order.append(order.get(path))
        nodes.base_logit.append(drafts.base[level][k])
        nodes.delta.append(delta[k])
        nodes.marginal.append(marginal)
        nodes.static.append(static)
        nodes.conditional.append(conditional[k])
        nodes.logz_m.append(logz_m)
        nodes.logz_v.append(logz_m + 0.01 + 0.2 * rng.random())
        nodes.cum_marginal.append(cum[path][0])
        nodes.cum_static.append(cum[path][1])
        nodes.cum_conditional.append(cum[path][2])
        nodes.target_logprob.append(-math.log1p(rank) * 1.7 - 0.3 * rng.random() - 1e-3)
        nodes.target_rank.append(rank)
        nodes.trees.append(mask)
        nodes.accepted.append(path in accepted)

    path_nodes = [where[path] for path in accepted]
    committed = list(text[: len(accepted) + 1])
    kept = committed.index(stop_id) + 1 if stop_id in committed else len(committed)
    visits = []
    for depth, node in enumerate([-1, *path_nodes]):
        others = [
            t for t in drafts.candidates[min(depth, len(drafts.candidates) - 1)] if t != committed[depth]
        ]
        spread = sorted((-3.0 - 4 * rng.random() for _ in others[:4]), reverse=True)
        top = [(committed[depth], -0.05 - 0.5 * rng.random()), *zip(others[:4], spread, strict=True)]
        visits.append(tr.Visit(node=node, chosen=committed[depth], top=top))
    pops = []
    if with_pops and scorer is not None and not chain:
        last = (
            trees["verified"][-1] if len(trees["verified"]) == budget else None
        )  # fills the budget: not expanded
        for popped in [(), *(p for p in trees["verified"] if len(p) < len(drafts.candidates) and p != last)]:
            _, delta, _ = drafts.conditional_row(popped)
            row, level = drafts.row(scorer, popped), drafts.candidates[len(popped)]
            pops.append(
                tr.Pop(
                    node=where[popped] if popped else -1,
                    token=list(drafts.candidates[len(popped)]),
                    base_logit=list(drafts.base[len(popped)]),
                    delta=list(delta),
                    score=list(row),
                    offered=sorted(range(len(row)), key=lambda k: (-row[k], level[k]))[:children],
                )
            )
    drafting = scorer is not None
    times = {"verify": 20 + 5 * rng.random(), "commit": 0.5 + 0.3 * rng.random()}
    if drafting:
        times = {"draft": 6 + 2 * rng.random(), "build": 2 + 0.05 * budget * rng.random(), **times}
    return tr.Round(
        index=index,
        anchor=anchor,
        position=position,
        nodes=nodes,
        path=path_nodes,
        bonus=committed[-1],
        committed=committed,
        kept=kept,
        depth_reached=max((len(p) for p in order), default=0),
        verified_nodes=len(order),
        times_ms=times,
        visits=visits,
        level_logz_m=[z for _, z in drafts.level_rows] if drafting else [],
        level_logz_v=[z + 0.1 for _, z in drafts.level_rows] if drafting else [],
        pops=pops,
    )


def make_trace(
    rounds: int,
    nodes: int,
    seed: int = 0,
    method: str = "dominotree",
    *,
    levels: int = 16,
    width: int = 12,
    children: int = 8,
    skill: float = 0.8,
    scorers: Sequence[str] = tr.SCORERS,
    vocabulary: Sequence[bytes] = VOCABULARY,
    pops_for: Iterable[int] = (),
    cut: int = 0,
    stop: int | None = None,
    temperature: float = 0.0,
    finished: bool = True,
) -> tr.Trace:
    """A consistent trace.

    ``nodes`` is the budget of each scorer's tree (the union has up to three times as many); ``scorers`` whose
    trees are recorded; ``skill`` in (0, 1): how often the drafter is right; ``pops_for``: rounds with a full
    record of every pop; ``cut``: tokens of the last round that the token limit cuts off (at least one stays);
    ``stop``: the last round's text has a stop token in this place (0 …, if the round gets that far);
    ``finished=False`` leaves out the summary, as a run that is still going.
    """
    scorer, builder, label, _ = METHODS[method]
    ids = range(100, 100 + len(vocabulary))
    stop_id = 100 + len(vocabulary)
    rng = random.Random(f"{seed}/{method}/{rounds}/{nodes}")
    writer = random.Random(seed)  # the text depends on the seed alone, as a lossless run's text does
    words: list[int] = []

    def text_from(start: int, count: int) -> list[int]:
        while len(words) < start + count:
            words.append(writer.choice(ids))
        return words[start : start + count]

    prompt_ids = [2 * k + 1 for k in range(20)]
    first = text_from(0, 1)[0]
    trace = tr.Trace(
        header={
            "title": f"made up: {method}, {rounds} rounds, budget {nodes}, seed {seed}",
            "created": "2026-01-02T03:04:05+00:00",
            "machine": "test machine",
            "versions": {"dominotree": "0.1.0", "torch": "2.13.0"},
            "pair": {"name": "made-up", "target": "made-up-target", "drafter": "made-up-drafter"}
            | {"drafter_kind": "domino", "device": "cpu", "dtype": "float32", "threads": 2},
            "settings": {
                "method": method,
                "scorer": scorer,
                "builder": builder,
                "budget": nodes if scorer else None,
            }
            | {"top_m": width, "children": children, "temperature": temperature, "seed": seed}
            | {"max_new_tokens": 100000, "normalisation": "top-m"},
            "drafter_label": label,
            "ar_tokens_per_second": 31.4159,
            "timing_note": "recorded outside the timed windows",
            "record": "full",
        },
        prompt={"text": "Say something.", "token_ids": prompt_ids, "kind": "chat"},
        first_token=first,
    )
    done = 1  # tokens of the text that are committed, the prefill's included
    wanted = set(pops_for)
    for index in range(1, rounds + 1):
        after = text_from(done, levels + 1)
        if stop is not None and index == rounds:
            after[min(stop, levels)] = stop_id
        drafts = _Drafts(_mix(seed, index), after, ids, levels, width, skill)
        this = _make_round(
            index,
            words[done - 1],
            len(prompt_ids) + done - 1,
            after,
            drafts,
            method=method,
            budget=nodes,
            children=children,
            scorers=scorers,
            stop_id=stop_id,
            with_pops=index in wanted,
            rng=rng,
        )
        trace.rounds.append(this)
        done += len(this.committed)
    stopped = bool(trace.rounds) and stop_id in trace.rounds[-1].committed
    if trace.rounds and cut and not stopped:
        last = trace.rounds[-1]
        last.kept = max(1, len(last.committed) - cut)
    used = {first, stop_id}
    for this in trace.rounds:
        used.update([this.anchor, *this.committed, *this.nodes.token])
        used.update(t for visit in this.visits for t, _ in visit.top)
        used.update(t for pop in this.pops for t in pop.token)
    names = {**dict(zip(ids, vocabulary, strict=True)), stop_id: STOP_TOKEN}
    trace.tokens = {t: names[t].hex() for t in sorted(used)}
    if finished:
        out = [first, *(t for this in trace.rounds for t in this.committed[: this.kept])]
        committed = sum(len(this.committed) for this in trace.rounds)
        spent = sum(sum(this.times_ms.values()) for this in trace.rounds)
        trace.summary = {
            "tau": committed / rounds if rounds else None,
            "rounds": rounds,
            "committed": committed,
            "accepted_drafts": sum(this.accepted for this in trace.rounds),
            "new_tokens": len(out),
            "token_ids": out,
            "text": b"".join(names[t] for t in out).decode("utf-8", "replace"),
            "stop_reason": "stop-token" if stopped else "max-new-tokens",
            "stop_token": stop_id if stopped else None,
            "prefill_ms": 42.0,
            "decode_ms": spent,
            "tokens_per_second": 1000 * (len(out) - 1) / spent if spent else None,
            "near_ties": [],
        }
    return trace


def spoil(trace: tr.Trace, seed: int, share: float = 0.2) -> tr.Trace:
    """Put -inf and missing values into a trace's float columns, as real runs may have them; returns it."""
    rng = random.Random(seed)
    for this in trace.rounds:
        nodes = this.nodes
        for name in (
            "base_logit",
            "delta",
            "marginal",
            "static",
            "conditional",
            "cum_conditional",
            "target_logprob",
        ):
            column = getattr(nodes, name)
            for k in range(len(column)):
                if rng.random() < share:
                    column[k] = rng.choice([None, -math.inf, 0.0, -0.0, 1e-300, -123456.789])
        for k in range(len(nodes.target_rank)):
            if rng.random() < share:
                nodes.target_rank[k] = None
    return trace


@st.composite
def traces(draw: st.DrawFn, odd: bool = False) -> tr.Trace:
    """Small traces of every method; ``odd``: arbitrary bytes as tokens, -inf and missing scores."""
    seed = draw(st.integers(0, 2**32 - 1))
    vocabulary: Sequence[bytes] = VOCABULARY
    if odd:
        token = st.sampled_from(ODD_TOKENS) | st.binary(max_size=6) | st.text(max_size=4).map(str.encode)
        vocabulary = draw(st.lists(token.filter(lambda b: b != STOP_TOKEN), min_size=4, max_size=12))
    finished = draw(st.booleans())
    trace = make_trace(
        draw(st.integers(0, 5)),
        draw(st.integers(1, 20)),
        seed,
        draw(st.sampled_from(sorted(METHODS))),
        levels=draw(st.integers(1, 6)),
        width=draw(st.integers(1, 6)),
        skill=draw(st.sampled_from([0.05, 0.5, 0.95])),
        scorers=draw(st.sampled_from([tr.SCORERS, ("conditional",), ()])),
        vocabulary=vocabulary,
        pops_for=draw(st.sampled_from([(), (1, 2)])),
        cut=draw(st.integers(0, 3)),
        stop=draw(st.none() | st.integers(0, 4)) if finished else None,
        finished=finished,
    )
    return spoil(trace, seed) if odd else trace
