"""Trees and scorers: exact tiny trees worked out by hand, tree invariants, the three scorers' definitions."""

from __future__ import annotations

import math
import subprocess
import sys
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import tiny_pair

from dominotree.builders.reference import best_first, chain
from dominotree.correction import CorrectionHead
from dominotree.decode import Run, Settings
from dominotree.drafter import DraftBlock, Drafter, DrafterConfig
from dominotree.errors import TreeError
from dominotree.scorers import Candidates, ConditionalScorer, MarginalScorer, StaticScorer, argmax_low
from dominotree.trace import TREE_BITS
from dominotree.tree import DraftTree


class TableScorer:
    """Children by (path) from a table of probabilities: the state is the path."""

    name = "table"

    def __init__(self, table: dict[tuple[int, ...], dict[int, float]]) -> None:
        self.table = table

    def root(self) -> tuple[int, ...]:
        return ()

    def step(self, state, token):
        return (*state, token)

    def children(self, state, level, count):
        ranked = sorted(self.table.get(state, {}).items(), key=lambda kv: (-kv[1], kv[0]))[:count]
        return [t for t, _ in ranked], [math.log(p) for _, p in ranked]


def test_best_first_by_hand() -> None:
    """P(1)=.6, P(2)=.4; after 1: 3 (.5), 4 (.5); after 2: 5 (.9). Pops: 1 (.6), 2 (.4), 5 (.36), 3 (.3), 4 (.3)."""
    scorer = TableScorer({(): {1: 0.6, 2: 0.4}, (1,): {3: 0.5, 4: 0.5}, (2,): {5: 0.9}})
    tree = best_first(scorer, 2, 5, 8)
    assert tree.token == [1, 2, 5, 3, 4]
    assert tree.parent == [-1, -1, 1, 0, 0]
    assert tree.depth == [1, 1, 2, 2, 2]
    assert tree.score == pytest.approx([math.log(p) for p in (0.6, 0.4, 0.36, 0.3, 0.3)])
    assert best_first(scorer, 2, 3, 8).token == [1, 2, 5]
    assert best_first(scorer, 1, 5, 8).token == [1, 2]  # an empty heap ends the build
    assert best_first(scorer, 2, 5, 1).token == [1, 3]  # one child per node


def test_conditional_keeps_a_branch_that_marginal_loses() -> None:
    """The paper's point in ten lines: the marginal wants 'New Angeles', the path-dependent score does not."""
    new, los, york, angeles = 1, 2, 3, 4
    marginal = TableScorer(
        {(): {new: 0.5, los: 0.5}, (new,): {york: 0.45, angeles: 0.55}, (los,): {york: 0.45, angeles: 0.55}}
    )
    conditional = TableScorer(
        {(): {new: 0.5, los: 0.5}, (new,): {york: 0.99, angeles: 0.01}, (los,): {york: 0.01, angeles: 0.99}}
    )
    text = [new, york]
    assert len(best_first(marginal, 2, 4, 1).longest_match(text)) == 1
    assert len(best_first(conditional, 2, 4, 1).longest_match(text)) == 2


def test_E36_all_scores_equal_the_first_pushed_wins() -> None:
    scorer = TableScorer({(): {1: 1.0, 2: 1.0, 3: 1.0}, (1,): {4: 1.0, 5: 1.0}, (2,): {6: 1.0}})
    assert best_first(scorer, 3, 5, 3).token == [1, 2, 3, 4, 5]


def test_E36_the_same_tree_in_other_processes() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "import torch\nfrom dominotree.builders.reference import best_first\n"
        "from dominotree.drafter import DraftBlock\nfrom dominotree.scorers import MarginalScorer\n"
        "block = DraftBlock(torch.zeros(4, 8), torch.zeros(4, 64), 0)\n"
        "t = best_first(MarginalScorer(block, 3), 4, 5, 3)\nprint(t.token, t.parent)"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": str(i), "PATH": ""},
        ).stdout
        for i in range(2)
    }
    assert len(seen) == 1 and "[0, 1, 2, 0, 1]" in seen.pop()


def test_E34_a_broken_node_list_is_named_at_once() -> None:
    started = time.monotonic()
    orphan = DraftTree([1, 2, 3], [-1, 5, 0], [1, 2, 2], [0.0, 0.0, 0.0])
    loop = DraftTree([1, 2, 3, 4], [-1, 0, 3, 2], [1, 2, 3, 4], [0.0] * 4)
    with pytest.raises(TreeError, match="node 1 names parent 5"):
        orphan.validate()
    with pytest.raises(TreeError, match="node 2 names parent 3"):
        loop.validate()
    assert time.monotonic() - started < 1


def test_E22_a_repeated_sibling_is_refused() -> None:
    tree = DraftTree()
    tree.add(4, -1, 0.0)
    tree.add(4, -1, 0.0)
    with pytest.raises(TreeError, match="repeats token 4"):
        tree.validate()


def zero_head(hidden: int = 4, vocab: int = 12, prefix: int = 1) -> CorrectionHead:
    return CorrectionHead(
        torch.zeros(6, hidden), torch.zeros(6, 2), torch.zeros(3, hidden + 2), torch.zeros(vocab, 3), prefix
    )


def test_E28_pure_prefix_leaves_no_gap() -> None:
    logits = torch.zeros(4, 12)
    for level, token in enumerate((5, 6, 7, 8)):
        logits[level, token] = 3.0
    block = DraftBlock(torch.zeros(4, 4), logits, 0)
    assert chain(block, 4, zero_head(), lambda ids: torch.zeros(len(ids), 4)).token == [5, 6, 7, 8]
    assert chain(block, 4, None, None).token == [5, 6, 7, 8]


@pytest.mark.parametrize(("shift", "expected"), [(False, [1, 2, 3]), (True, [0, 1, 2])])
def test_E29_label_shift_decides_which_row_serves_a_level(shift: bool, expected: list[int]) -> None:
    pair = tiny_pair(dflash={"shift_label": shift}, block_size=4)
    drafter, target = pair.domino, pair.target
    context = drafter.new_context(8)
    z = torch.arange(4.0)[:, None].expand(4, 32)
    drafter.layers = []
    drafter.target.embed = lambda ids: z
    drafter.norm = torch.ones(32)
    import dominotree.drafter as module

    original = module.rms_norm
    module.rms_norm = lambda x, w, eps: x
    try:
        block = drafter.draft(context, 5)
    finally:
        module.rms_norm = original
        del target.embed
    assert block.z[: len(expected), 0].tolist() == expected
    assert block.levels == (4 if shift else 3) == len(block.base_logits)


def test_conditional_scores_by_hand() -> None:
    """ΔL from a head small enough to compute by hand: prefix 1, M = 3 candidates, level 1."""
    logits = torch.tensor([[0.0, 1.0, 2.0, -9.0], [1.0, 0.5, 0.0, -9.0]])
    block = DraftBlock(torch.tensor([[0.0], [1.0]]), logits, anchor=3)
    head = CorrectionHead(
        w_ih=torch.tensor([[0.0], [0.0], [1.0]]), w_hh=torch.zeros(3, 1),
        w1=torch.tensor([[1.0, 2.0]]), w2=torch.tensor([[1.0], [0.0], [-1.0], [0.0]]), prefix_len=1,
    )  # fmt: skip
    table = torch.tensor([[0.5], [1.0], [-1.0], [0.0]])
    scorer = ConditionalScorer(Candidates.of(block, 3), head, lambda ids: table[ids])
    root = scorer.root()
    assert root.item() == pytest.approx(0.0)  # tanh(0)·(1 − σ(0))
    tokens, scores = scorer.children(root, 0, 8)
    assert tokens == [2, 1, 0]  # level 0: base logits, normalised over the whole vocabulary
    assert scores == pytest.approx((logits[0] - logits[0].logsumexp(0))[[2, 1, 0]].tolist())
    state = scorer.step(root, 1)
    s = 0.5 * math.tanh(1.0)  # z = σ(0) = .5, n = tanh(emb), h' = .5·n
    assert state.item() == pytest.approx(s, abs=1e-6)
    inner = 1.0 * 1.0 + 2.0 * s
    silu = inner / (1 + math.exp(-inner))
    row = [1.0 + silu, 0.5, 0.0 - silu]
    z = math.log(sum(math.exp(v) for v in row))
    tokens, scores = scorer.children(state, 1, 8)
    assert tokens == [0, 1, 2] and scores == pytest.approx([v - z for v in row], abs=1e-5)
    full = ConditionalScorer(Candidates.of(block, 3), head, lambda ids: table[ids], full_row=True)
    _, scores = full.children(state, 1, 8)
    z_full = math.log(sum(math.exp(v) for v in [*row, -9.0]))
    assert scores == pytest.approx([v - z_full for v in row], abs=1e-5)


def test_static_follows_the_greedy_corrected_chain() -> None:
    pair = tiny_pair()
    target, drafter = pair.target, pair.domino
    context = drafter.new_context(8)
    drafter.extend(context, target.prefill(torch.tensor([5, 9, 2]), target.new_cache(3)).features)
    block = drafter.draft(context, 7)
    embed = lambda ids: target.embed(torch.tensor(ids))  # noqa: E731
    found = Candidates.of(block, 16)
    static, conditional = (
        StaticScorer(found, drafter.head, embed),
        ConditionalScorer(found, drafter.head, embed),
    )
    state = conditional.root()
    for level in range(block.levels):
        ours, theirs = static.children(None, level, 8), conditional.children(state, level, 8)
        assert ours == theirs
        state = conditional.step(state, argmax_low(conditional.whole_row(state, level)))
    marginal = MarginalScorer(block, 8).children(None, 2, 8)
    log_p = block.base_logits[2].log_softmax(-1)
    assert marginal[1] == pytest.approx(sorted(log_p.tolist(), reverse=True)[:8], abs=1e-5)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 20), budget=st.integers(1, 60), children=st.integers(1, 9), levels=st.integers(1, 8),
       name=st.sampled_from(["marginal", "static", "conditional"]), coarse=st.booleans())  # fmt: skip
def test_tree_invariants(seed, budget, children, levels, name, coarse) -> None:
    """Ancestor-closed, distinct siblings, scores fall along paths and in pop order, budget kept, top-B of the offer."""
    pair = tiny_pair(seed % 3)
    drafter = pair.domino
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(8, 64, generator=rng) * 3
    block = DraftBlock(torch.randn(8, 32, generator=rng), logits.round() if coarse else logits, 5)
    embed = lambda ids: pair.target.embed(torch.tensor(ids))  # noqa: E731
    found = Candidates.of(block, 12)
    scorer = {"marginal": lambda: MarginalScorer(block, children), "static": lambda: StaticScorer(found, drafter.head, embed),
              "conditional": lambda: ConditionalScorer(found, drafter.head, embed)}[name]()  # fmt: skip
    tree = best_first(scorer, levels, budget, children)
    tree.validate()
    assert len(tree) <= budget and max(tree.depth) <= levels
    assert all(a >= b - 1e-12 for a, b in zip(tree.score, tree.score[1:], strict=False))
    for score, parent in zip(tree.score, tree.parent, strict=True):
        assert parent < 0 or score <= tree.score[parent] + 1e-12
    smaller = best_first(scorer, levels, max(1, budget // 2), children)
    assert smaller.token == tree.token[: len(smaller)] and smaller.parent == tree.parent[: len(smaller)]
    mask = tree.mask()
    for node, parent in enumerate(tree.parent):
        path = {0, node + 1}
        while parent >= 0:
            path.add(parent + 1)
            parent = tree.parent[parent]
        assert set(mask[node + 1].nonzero().flatten().tolist()) == path


def test_recorded_union_agrees_with_the_builders() -> None:
    """Every scorer's tree is in the union with the builder's own scores; columns agree with each other."""
    pair = tiny_pair()
    run = Run(pair, prompt_ids=[5, 9, 2, 30], settings=Settings(budget=12, top_m=16, max_new_tokens=30))
    for rnd in run:
        nodes = rnd.nodes
        assert [o for o in nodes.order if o is not None] == list(range(rnd.verified_nodes))
        for name in ("marginal", "static", "conditional"):
            inside = [i for i, bits in enumerate(nodes.trees) if bits & TREE_BITS[name]]
            assert len(inside) == 12
            cum = getattr(nodes, f"cum_{name}")
            assert all(cum[i] is not None and cum[i] <= 0 for i in inside)
        assert all(bool(b & TREE_BITS["verified"]) == bool(b & TREE_BITS["conditional"]) for b in nodes.trees)
        for i, (parent, delta) in enumerate(zip(nodes.parent, nodes.delta, strict=True)):
            if nodes.depth[i] == 1:
                assert delta is None
                continue
            expected = nodes.base_logit[i] + delta - nodes.logz_m[i]
            if nodes.conditional[i] is not None:
                assert nodes.conditional[i] == pytest.approx(expected, abs=1e-4)
                step = nodes.cum_conditional[i] - nodes.cum_conditional[parent]
                assert step == pytest.approx(nodes.conditional[i], abs=1e-4)
            assert nodes.logz_v[i] >= nodes.logz_m[i] - 1e-5
        assert [nodes.token[i] for i in rnd.path] == rnd.committed[:-1]
        for v in rnd.visits:
            assert v.chosen in [t for t, _ in v.top]
            child = [
                i
                for i, (p, t) in enumerate(zip(nodes.parent, nodes.token, strict=True))
                if p == v.node and t == v.chosen
            ]
            for i in child:
                assert nodes.target_rank[i] == 0 and nodes.target_logprob[i] == pytest.approx(
                    v.top[0][1], abs=1e-3
                )
        assert rnd.counterfactual == {} or rnd.counterfactual["conditional"].accepted >= 0
    for rnd in run.trace.rounds:
        cf = rnd.counterfactual["conditional"]
        assert cf.censored or cf.accepted == rnd.accepted


def test_static_chain_may_leave_the_candidates() -> None:
    """The chain's token is the best of the whole vocabulary, also where the correction lifts one from outside top-M."""
    logits = torch.tensor([[2.0, 1.0, 0.0, 0.0], [3.0, 2.0, 0.0, 0.0], [1.0, 0.5, 0.0, 0.0]])
    block = DraftBlock(torch.ones(3, 1), logits, anchor=0)
    head = CorrectionHead(
        w_ih=torch.tensor([[0.0], [0.0], [1.0]]), w_hh=torch.zeros(3, 1), w1=torch.tensor([[5.0, 1.0]]),
        w2=torch.tensor([[0.0], [0.0], [0.0], [2.0]]), prefix_len=1,
    )  # fmt: skip
    table = torch.tensor([[0.0], [0.0], [0.0], [9.0]])
    found = Candidates.of(block, 2)
    static = StaticScorer(found, head, lambda ids: table[ids])
    conditional = ConditionalScorer(found, head, lambda ids: table[ids])
    state = conditional.step(conditional.root(), 0)
    assert argmax_low(conditional.whole_row(state, 1)) == 3 and 3 not in found.ids[1]
    expected = conditional.log_probs(conditional.step(state, 3), 2)
    assert torch.equal(static.rows[2], expected)


def test_full_row_and_full_vocabulary_options_stay_lossless() -> None:
    pair = tiny_pair()
    base = [
        r.committed for r in Run(pair, prompt_ids=[5, 9], settings=Settings(method="ar", max_new_tokens=20))
    ]
    for top_m, full_row in ((None, False), (8, True), (None, True)):
        run = Run(
            pair, prompt_ids=[5, 9], settings=Settings(top_m=top_m, full_row=full_row, max_new_tokens=20)
        )
        list(run)
        assert run.output[1:] == [t for r in base for t in r]


def test_drafter_config_names_what_is_missing() -> None:
    from tiny import drafter_config

    from dominotree.errors import PairError

    for missing in (
        "mask_token_id",
        "target_layer_ids",
        "emb_dim",
        "gru_hidden_dim",
        "pure_draft_prefix_len",
    ):
        config = drafter_config()
        del config["dflash_config"][missing]
        with pytest.raises(PairError, match=missing):
            DrafterConfig.from_dict(config, "x")
    older = drafter_config()
    older["emb_dim"] = older["dflash_config"].pop("emb_dim")
    older["dflash_config"]["projector_type"] = "causal_v5"
    assert DrafterConfig.from_dict(older, "x").emb_dim == 12
    for variant in ("use_bias_norm", "use_bias_gate"):
        with pytest.raises(PairError, match=variant):
            DrafterConfig.from_dict(drafter_config({variant: True}), "x")
    assert set(Drafter.weight_shapes(DrafterConfig.from_dict(drafter_config(), "x"))) >= {
        "fc.weight",
        "prefix_gru.weight_ih_l0",
    }
