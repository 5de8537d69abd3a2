"""The round loop: lossless for every method, exact lengths, stops, limits, cancel; rows E of the fault log."""

from __future__ import annotations

import hashlib
import itertools
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import VOCAB, ByteTokenizer, OneHotDrafter, ScriptTarget, tiny_pair, tiny_target

from dominotree.checkpoints import Pair
from dominotree.decode import Run, Settings, generate
from dominotree.errors import EngineBusyError, PromptError, SettingsError
from dominotree.methods import METHODS
from dominotree.tree import DraftTree, walk

DRAFTING = [m for m in METHODS if m != "ar"]


def ids(
    pair: Pair, method: str = "dominotree", n: int = 24, prompt: list[int] | None = None, **kwargs
) -> list[int]:
    extra = {k: kwargs.pop(k) for k in ("cache_rows", "record", "cancel") if k in kwargs}
    s = Settings(method=method, max_new_tokens=n, **kwargs)
    return generate(pair, settings=s, prompt_ids=prompt or [5, 9, 2, 30], **extra).summary["token_ids"]


def script_pair(script, guess, levels: int = 7, stop_ids=(), context: int = 256, limit: int = 10**6) -> Pair:
    target = ScriptTarget(script, context=context)
    pair = Pair(target, ByteTokenizer(stop_ids), None, None, {"name": "script"})
    pair.dflash = OneHotDrafter(target, guess, levels, limit)
    return pair


def run_script(
    pair: Pair, method: str = "ddtree", prompt: list[int] | None = None, n: int = 24, **kwargs
) -> Run:
    extra = {k: kwargs.pop(k) for k in ("cache_rows", "record") if k in kwargs}
    run = Run(
        pair,
        prompt_ids=prompt or [1, 2, 3],
        settings=Settings(method=method, max_new_tokens=n, **kwargs),
        **extra,
    )
    pair.target.run = run
    for _ in run:
        pass
    return run


def counting(prefix: list[int]) -> int:
    """A text that never repeats locally: the next token depends on length and last token."""
    return (prefix[-1] * 5 + len(prefix)) % VOCAB


def text_of(script, prompt: list[int], n: int) -> list[int]:
    out = list(prompt)
    for _ in range(n):
        out.append(script(out))
    return out[len(prompt) :]


def oracle(script, prompt: list[int], n: int = 64):
    text = list(prompt) + text_of(script, prompt, n)
    return lambda position, level: [text[position + level + 1]]


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_every_method_gives_the_tokens_of_ar(temperature: float) -> None:
    pair = tiny_pair()
    for seed, prompt in ((0, [5, 9, 2, 30]), (7, [11, 12])):
        expected = ids(pair, "ar", prompt=prompt, temperature=temperature, seed=seed)
        assert len(expected) == 24
        for method in DRAFTING:
            for record in (False, True):
                assert (
                    ids(pair, method, prompt=prompt, temperature=temperature, seed=seed, record=record)
                    == expected
                )


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 5), budget=st.integers(1, 40), top_m=st.sampled_from([1, 4, 16, None]),
    method=st.sampled_from(DRAFTING), temperature=st.sampled_from([0.0, 1.0]), n=st.integers(0, 20),
    prefix=st.integers(0, 3), shift=st.booleans(),
)  # fmt: skip
def test_lossless_whatever_the_settings(seed, budget, top_m, method, temperature, n, prefix, shift) -> None:
    pair = tiny_pair(seed, dflash={"pure_draft_prefix_len": prefix, "shift_label": shift})
    common = {"temperature": temperature, "seed": seed, "n": n}
    assert ids(pair, method, budget=budget, top_m=top_m, **common) == ids(pair, "ar", **common)


def test_E02_stop_token_stays_wherever_it_comes() -> None:
    stop = 40
    for texts, kept in (([stop], 1), ([7, stop], 2), ([7, 8, 9, stop], 4)):

        def script(prefix, texts=texts):
            return texts[min(len(prefix) - 3, len(texts) - 1)]

        ar = run_script(script_pair(script, lambda p, i: [0], stop_ids=[stop]), "ar")
        assert ar.output == texts and len(ar.output) == kept
        # as prefill token, as replacement after a rejected draft, as accepted draft, as bonus after full acceptance
        for guess in (lambda p, i: [1], oracle(script, [1, 2, 3])):
            for levels in (1, 2, 3, 7):
                run = run_script(script_pair(script, guess, levels, stop_ids=[stop]))
                assert run.output == texts
                assert (
                    run.trace.summary["stop_reason"] == "stop-token"
                    and run.trace.summary["stop_token"] == stop
                )


@pytest.mark.parametrize("n", range(18))
def test_E04_exactly_the_tokens_asked_for(n: int) -> None:
    expected = text_of(counting, [1, 2, 3], 17)
    pair = script_pair(counting, oracle(counting, [1, 2, 3]), 8)
    run = run_script(pair, "dflash", n=n)
    assert run.output == expected[:n]
    assert sum(r.kept for r in run.trace.rounds) == max(n - 1, 0)


def test_E05_a_mask_token_that_the_target_emits_is_output() -> None:
    text = [7, 3, 9, 3, 5]  # 3 is the stub drafter's mask id

    def script(prefix):
        return text[min(len(prefix) - 3, 4)]

    assert run_script(script_pair(script, lambda p, i: [3, 7]), n=5).output == text


def test_E12_six_rounds_with_and_without_a_sibling() -> None:
    right = oracle(counting, [1, 2, 3])
    accepted = []
    for guess in (right, lambda p, i: [60, *right(p, i)]):
        run = run_script(script_pair(counting, guess, 3), budget=6, children=2, n=30)
        assert run.output == text_of(counting, [1, 2, 3], 30)
        accepted.append(sum(r.accepted for r in run.trace.rounds[:6]))
    assert accepted[1] >= 1


def test_E13_features_of_accepted_rows_only_reach_the_drafter() -> None:
    pair = tiny_pair()
    handed = []
    original = pair.domino.extend

    def extend(context, features):
        handed.append((context.length, features.clone()))
        original(context, features)

    pair.domino.extend = extend
    run = Run(pair, prompt_ids=[5, 9, 2, 30], settings=Settings(max_new_tokens=20), record=False)
    rounds = list(run)
    text = [5, 9, 2, 30, *run.output]
    fresh = pair.target.prefill(torch.tensor(text), pair.target.new_cache(len(text))).features
    assert len(handed) == len(rounds) + 1
    for (start, rows), rnd in zip(handed[1:], rounds, strict=True):
        assert start == rnd.position and len(rows) == rnd.accepted + 1
        known = fresh[start : start + len(rows)]
        torch.testing.assert_close(rows[: len(known)], known, atol=1e-4, rtol=1e-4)


def test_E25_best_path_proposals_are_coherent() -> None:
    """The target emits AB or CD; best-path drafts of a conditional tree never mix them: mean accepted 1.00."""
    a, b, c, d = 10, 11, 12, 13

    class PathScorer:
        name = "conditional"

        def root(self):
            return None

        def step(self, state, token):
            return token

        def children(self, state, level, count):
            log_half = -0.6931471805599453
            if level == 0:
                return [a, c][:count], [log_half, log_half][:count]
            return ([b], [0.0]) if state == a else ([d], [0.0])

    from dominotree.builders.reference import best_first

    accepted = []
    for truth in ([a, b], [c, d]):
        tree = best_first(PathScorer(), 2, 2, 2)
        accepted.append(len(tree.longest_match(truth)))
    assert sum(accepted) / 2 == 1.0


def test_E31_E48_drafting_touches_no_cache_and_repeats_bit_for_bit() -> None:
    pair = tiny_pair()
    target, drafter = pair.target, pair.domino
    cache = target.new_cache(40)
    features = target.prefill(torch.tensor([5, 9, 2, 30]), cache).features
    context = drafter.new_context(40)
    drafter.extend(context, features)

    def digest() -> str:
        return hashlib.sha256(cache.k.numpy().tobytes() + cache.v.numpy().tobytes()).hexdigest()

    before = digest(), cache.length
    first, second = drafter.draft(context, 7), drafter.draft(context, 7)
    assert (digest(), cache.length) == before
    assert context.length == 4
    assert torch.equal(first.base_logits, second.base_logits) and torch.equal(first.z, second.z)


def test_E32_E48_a_tree_of_width_one_is_the_chain() -> None:
    pair = tiny_pair()
    rng = torch.Generator().manual_seed(0)
    for _ in range(20):
        prompt = torch.randint(4, VOCAB, (6,), generator=rng).tolist()
        common = dict(prompt_ids=prompt)
        chain = Run(pair, settings=Settings(method="domino", max_new_tokens=16), record=False, **common)
        tree = Run(
            pair,
            settings=Settings(
                method="dominotree", budget=pair.domino.levels, children=1, top_m=None, max_new_tokens=16
            ),
            record=False,
            **common,
        )
        keys = lambda r: (r.anchor, r.position, r.path, r.bonus, r.committed, r.kept, r.depth_reached)  # noqa: E731
        assert [keys(r) for r in chain] == [keys(r) for r in tree]


def test_E38_a_drafted_stop_token_does_not_finish_the_run() -> None:
    stop = 50

    def script(prefix):
        return 5 + len(prefix) % 3

    pair = script_pair(script, lambda p, i: [stop, 5, 6] if i == 0 else [6], stop_ids=[stop])
    run = run_script(pair, n=6)
    assert run.output == text_of(script, [1, 2, 3], 6)
    assert all(r.nodes.token.count(stop) <= 1 for r in run.trace.rounds)
    tree = DraftTree()
    tree.add(stop, -1, 0.0)
    tree.add(9, 0, 0.0)
    walked = walk(tree, lambda row, depth: [stop, 9, 9][row], frozenset([stop]))
    assert walked.path == [0]


def test_E39_every_stop_id_stops() -> None:
    def script(prefix):
        return 12 if len(prefix) == 8 else 20 + len(prefix) % 5

    for method in ("ar", "ddtree"):
        run = run_script(script_pair(script, oracle(script, [1, 2, 3]), stop_ids=[11, 12]), method)
        assert run.output[-1] == 12 and len(run.output) == 6


def test_E40_trees_shrink_at_the_end_of_the_buffer() -> None:
    pair = tiny_pair()
    expected = ids(pair, "ar", n=24)
    run = Run(
        pair,
        prompt_ids=[5, 9, 2, 30],
        settings=Settings(budget=16, max_new_tokens=24),
        record=False,
        cache_rows=28,
    )
    rounds = list(run)
    assert run.output == expected
    assert all(r.position + 1 + r.verified_nodes <= 28 for r in rounds)
    assert "tree-shrunk" in rounds[-1].flags


@pytest.mark.parametrize("method", ["ar", "domino", "dominotree"])
def test_E40_the_run_ends_cleanly_at_the_context_limit(method: str) -> None:
    pair = tiny_pair(target=tiny_target(max_position_embeddings=24), max_position_embeddings=64)
    run = Run(pair, prompt_ids=[5, 9, 2, 30], settings=Settings(method=method, max_new_tokens=100))
    for rnd in run:
        assert all(rnd.position + d < 24 for d in rnd.nodes.depth)
    assert len(run.output) == 20 and run.trace.summary["stop_reason"] == "context"


def test_E41_past_the_drafters_own_limit_drafting_is_off() -> None:
    pair = tiny_pair(max_position_embeddings=16)
    prompt = list(range(5, 25))
    run = Run(pair, prompt_ids=prompt, settings=Settings(max_new_tokens=30))
    rounds = list(run)
    assert run.output == ids(pair, "ar", n=30, prompt=prompt)
    assert all(r.flags == ["drafting-off"] and r.committed == [r.bonus] for r in rounds)
    short = Run(pair, prompt_ids=prompt[:4], settings=Settings(max_new_tokens=30))
    flags = [("drafting-off" in r.flags) for r in short]
    assert (
        flags[0] is False and flags[-1] is True and short.output == ids(pair, "ar", n=30, prompt=prompt[:4])
    )


def test_E44_the_next_root_is_the_committed_length() -> None:
    wrong_at = {1: 0, 2: 3, 3: 7, 4: 1}
    right = oracle(counting, [1, 2, 3])
    pair = script_pair(counting, lambda p, i: right(p, i) if i < wrong_at.get(p % 5, 4) else [63])
    run = run_script(pair, "dflash", n=40)
    position = 3
    for rnd in run.trace.rounds:
        assert rnd.position == position
        position += rnd.accepted + 1
    assert len({r.accepted for r in run.trace.rounds}) >= 3 and run.output == text_of(counting, [1, 2, 3], 40)


def test_E46_score_row_zero_is_the_root() -> None:
    a, b, c, d = 10, 11, 12, 13
    tree = DraftTree()
    for token, parent in ((a, -1), (b, -1), (c, 0), (d, 1)):
        tree.add(token, parent, 0.0)
    wants = {0: a, 1: c, 3: 99}
    walked = walk(tree, lambda row, depth: wants[row])
    assert [tree.token[i] for i in walked.path] == [a, c] and walked.bonus == 99
    assert walked.chosen == [(0, a), (1, c), (3, 99)] and walked.rows == [0, 1, 3]


def test_E49_no_filler_nodes() -> None:
    """Short trees are not padded: every node of picture and CSV was offered by a scorer."""
    mask = 3

    def script(prefix):
        return mask

    run = run_script(script_pair(script, lambda p, i: [8], levels=2), n=4, children=1)
    assert run.output == [mask] * 4
    assert all(
        set(r.nodes.token) <= {8, *range(8)} and r.verified_nodes == len(r.nodes.order)
        for r in run.trace.rounds
    )


def test_one_target_call_per_round() -> None:
    pair = script_pair(counting, oracle(counting, [1, 2, 3]))
    run = run_script(pair, record=False)
    assert pair.target.calls == len(run.trace.rounds)


def test_N03_nan_drafts_are_flagged_and_harmless() -> None:
    pair = script_pair(counting, oracle(counting, [1, 2, 3]))
    original = pair.dflash.draft

    def draft(context, anchor):
        block = original(context, anchor)
        block.base_logits[1] = float("nan")
        return block

    pair.dflash.draft = draft
    run = run_script(pair, n=12)
    assert run.output == text_of(counting, [1, 2, 3], 12)
    assert all("nan-draft" in r.flags for r in run.trace.rounds)
    assert all(0 <= t < VOCAB for r in run.trace.rounds for t in r.nodes.token)


def test_N18_S11_seeds() -> None:
    pair = tiny_pair()
    alone = ids(pair, temperature=1.0, seed=7)
    state = torch.random.get_rng_state()
    for other in (1, 2, 3):
        ids(pair, temperature=1.0, seed=other)
    assert ids(pair, temperature=1.0, seed=7) == alone
    assert torch.equal(torch.random.get_rng_state(), state)
    unseeded = [tuple(ids(pair, "ar", n=40, temperature=1.0, seed=None)) for _ in range(2)]
    assert unseeded[0] != unseeded[1]
    runs = [Run(pair, prompt_ids=[1, 2], settings=Settings(seed=None)) for _ in range(2)]
    assert runs[0].trace.header["settings"]["seed"] != runs[1].trace.header["settings"]["seed"]


def test_L22_low_acceptance_is_said_aloud() -> None:
    run = run_script(script_pair(counting, lambda p, i: [62]), "dflash", n=25)
    assert "low-acceptance" in run.trace.rounds[19].flags and "belong" in run.trace.summary["warnings"][0]


def test_L25_the_drafter_sees_its_own_block_whatever_the_budget() -> None:
    seen = {}
    for budget in (5, 15, 64):
        pair = tiny_pair()
        original = pair.domino.draft
        blocks = []

        def draft(context, anchor, original=original, blocks=blocks):
            blocks.append(original(context, anchor))
            return blocks[-1]

        pair.domino.draft = draft
        next(iter(Run(pair, prompt_ids=[5, 9, 2, 30], settings=Settings(budget=budget), record=False)))
        seen[budget] = blocks[0].base_logits
    assert torch.equal(seen[5], seen[15]) and torch.equal(seen[5], seen[64])


def test_cancel_stops_within_a_round_and_frees_the_engine() -> None:
    pair = tiny_pair()
    cancel = threading.Event()
    run = Run(pair, prompt_ids=[5, 9], settings=Settings(max_new_tokens=60), cancel=cancel)
    for rnd in run:
        if rnd.index == 2:
            cancel.set()
    assert len(run.trace.rounds) == 2 and run.trace.summary["stop_reason"] == "cancelled"
    assert not pair.lock.locked()
    abandoned = iter(Run(pair, prompt_ids=[5, 9], settings=Settings(max_new_tokens=60)))
    next(abandoned)
    assert pair.lock.locked()
    abandoned.close()
    assert not pair.lock.locked()
    cancel.set()
    early = Run(pair, prompt_ids=[5, 9], settings=Settings(), cancel=cancel)
    assert list(early) == [] and early.trace.summary["stop_reason"] == "cancelled"


def test_two_runs_never_overlap() -> None:
    pair = tiny_pair()
    active, worst = itertools.count(), []
    inside = threading.Semaphore(1)

    def work() -> None:
        for _ in Run(pair, prompt_ids=[5, 9, 2], settings=Settings(max_new_tokens=12), record=False):
            worst.append(inside.acquire(blocking=False))
            next(active)
            inside.release()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(worst) and next(active) > 0


@pytest.mark.parametrize(
    ("bad", "word"),
    [({"budget": 0}, "budget"), ({"budget": 10**6}, "1000000"), ({"temperature": -1.0}, "-1"),
     ({"temperature": float("nan")}, "nan"), ({"method": "eagle"}, "eagle"), ({"top_m": 0}, "top_m"),
     ({"seed": -1}, "seed"), ({"max_new_tokens": -3}, "-3"), ({"children": 0}, "children"),
     ({"temperature": "hot"}, "hot"), ({"budget": 2.5}, "2.5"), ({"budget": True}, "True")],
)  # fmt: skip
def test_bad_settings_are_one_sentence_with_the_value(bad: dict, word: str) -> None:
    with pytest.raises(SettingsError, match=word) as error:
        Settings(**bad)
    assert isinstance(error.value, ValueError) and "\n" not in str(error.value)


def test_bad_prompts() -> None:
    pair = tiny_pair()
    for prompt in ("", "  \n\t "):
        with pytest.raises(PromptError, match="empty"):
            Run(pair, prompt)
    with pytest.raises(PromptError, match="256"):
        Run(pair, "x" * 300)
    with pytest.raises(PromptError, match="64"):
        Run(pair, prompt_ids=[64])


def test_raw_and_kept_counts() -> None:
    """U23: both counts; output length = 1 + sum of kept; τ counts the bonus."""
    run = run_script(script_pair(counting, oracle(counting, [1, 2, 3]), 4), "dflash", n=13)
    s = run.trace.summary
    assert s["committed"] == s["accepted_drafts"] + s["rounds"]
    assert s["new_tokens"] == 13 == 1 + sum(r.kept for r in run.trace.rounds)
    assert s["tau"] == pytest.approx(s["committed"] / s["rounds"])


def test_a_chain_has_every_level_whatever_the_tree_budget() -> None:
    run = Run(
        tiny_pair(), prompt_ids=[5, 9, 2], settings=Settings(method="domino", budget=2, max_new_tokens=30)
    )
    assert next(iter(run)).verified_nodes == 8


def test_a_run_decodes_once() -> None:
    run = Run(tiny_pair(), prompt_ids=[5, 9, 2], settings=Settings(max_new_tokens=5))
    list(run)
    with pytest.raises(RuntimeError, match="once"):
        list(run)


def test_two_open_runs_in_one_thread_are_refused_not_locked_for_ever() -> None:
    pair = tiny_pair()
    first = iter(Run(pair, prompt_ids=[5, 9], settings=Settings(max_new_tokens=20)))
    next(first)
    with pytest.raises(EngineBusyError, match="still open"):
        next(iter(Run(pair, prompt_ids=[5, 9], settings=Settings(max_new_tokens=20))))
    first.close()
    assert list(Run(pair, prompt_ids=[5, 9], settings=Settings(max_new_tokens=5)))


def test_inference_mode_does_not_leak_between_rounds() -> None:
    run = iter(Run(tiny_pair(), prompt_ids=[5, 9], settings=Settings(max_new_tokens=20)))
    next(run)
    assert not torch.is_inference_mode_enabled()
    run.close()


@pytest.mark.parametrize("prompt_ids", [[1.5], ["a"], [True], [], [-1]])
def test_prompt_ids_must_be_token_ids(prompt_ids: list) -> None:
    with pytest.raises(PromptError, match="token ids"):
        Run(tiny_pair(), prompt_ids=prompt_ids)


def test_impossible_prompts_and_caches_are_one_sentence() -> None:
    with pytest.raises(PromptError, match="half a character"):
        Run(tiny_pair(), "a\udcff")
    with pytest.raises(SettingsError, match="cache_rows 2"):
        Run(tiny_pair(), prompt_ids=[1, 2, 3], cache_rows=2)
    with pytest.raises(SettingsError, match="temperature"):
        Settings(temperature=10**400)
