"""The static forward is the eager one: every row, every bucket, padded trees, moved positions; rows N04, N06, N20, E09."""

from __future__ import annotations

import pytest
import torch
from tiny import VOCAB, random_weights, tiny_drafter, tiny_target

from dominotree.drafter import Drafter
from dominotree.gpu.static_forward import StaticForward, tree_bias
from dominotree.target import Target
from dominotree.tree import DraftTree

PROMPT = [5, 9, 2, 30, 7, 7, 1, 44, 3, 12, 60, 21]


def t5() -> DraftTree:
    """T5 of the fault log: a, b under the root; c under a; d under b."""
    tree = DraftTree()
    for token, parent in ((10, -1), (11, -1), (12, 0), (13, 1)):
        tree.add(token, parent, 0.0)
    return tree


def inputs(tree: DraftTree, anchor: int, position: int, rows: int):
    """Verify inputs padded to ``rows``: the padding repeats the anchor and attends to itself (and the prefix)."""
    pad = rows - len(tree) - 1
    mask = torch.eye(rows, dtype=torch.bool)
    mask[: len(tree) + 1, : len(tree) + 1] = tree.mask()
    ids = torch.tensor(tree.rows(anchor) + [anchor] * pad)
    return ids, torch.tensor(tree.positions(position) + [position] * pad), mask


def assert_same(got: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal to 1e-5 of the largest entry."""
    assert got.shape == expected.shape
    assert (got - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))


def caches(target: Target, drafter: Drafter | None, capacity: int = 64):
    """(eager cache, static cache, prompt features), both filled with the prompt."""
    ids = torch.tensor(PROMPT)
    eager, static = target.new_cache(capacity), target.new_cache(capacity)
    features = target.prefill(ids, eager).features
    target.prefill(ids, static)
    return eager, static, features


@pytest.mark.parametrize(
    "shape", [{}, {"num_key_value_heads": 4}, {"num_key_value_heads": 1}, {"model_type": "llama"}]
)
@pytest.mark.parametrize("bucket", [24, 64])
def test_N20_E09_verify_is_the_eager_verify(shape: dict, bucket: int) -> None:
    target = tiny_target(**shape)
    eager, static, _ = caches(target, None)
    static.k[:, :, 12:], static.v[:, :, 12:] = 7.0, -9.0  # what earlier rounds left behind must not be seen
    forward = StaticForward(target, None, 5)
    length = torch.tensor([12])
    for tree, anchor in ((t5(), 40), (t5(), 41)):
        ids, positions, mask = inputs(tree, anchor, 12, 5)
        expected = target.verify(ids, positions, mask, eager)
        logits, features = forward.verify(ids, positions, mask, length, static, bucket)
        assert_same(logits, expected.logits)
        assert_same(features, expected.features)
        assert_same(static.k[:, :, :17], eager.k[:, :, :17])
        assert_same(static.v[:, :, :17], eager.v[:, :, :17])
    swapped, kept = ids.clone(), logits.clone()
    swapped[2] = 50  # b: only b and d may move
    logits, _ = forward.verify(swapped, positions, mask, length, static, bucket)
    moved = (logits - kept).abs().amax(-1)
    assert moved[[0, 1, 3]].max() < 1e-6 and moved[[2, 4]].min() > 1e-3


def test_N04_padding_rows_change_nothing_and_are_finite() -> None:
    target = tiny_target()
    eager, static, _ = caches(target, None)
    ids, positions, mask = inputs(t5(), 40, 12, 8)
    expected = target.verify(ids[:5], positions[:5], mask[:5, :5], eager)
    logits, features = StaticForward(target, None, 8).verify(
        ids, positions, mask, torch.tensor([12]), static, 64
    )
    assert logits.isfinite().all()
    assert_same(logits[:5], expected.logits)
    assert_same(features[:5], expected.features)


def test_N06_a_numeric_mask_is_refused() -> None:
    target = tiny_target()
    _, static, _ = caches(target, None)
    ids, positions, mask = inputs(t5(), 40, 12, 5)
    with pytest.raises(TypeError, match="boolean"):
        StaticForward(target, None, 5).verify(ids, positions, mask.float(), torch.tensor([12]), static, 64)


def test_the_bias_opens_prefix_and_ancestors_only() -> None:
    mask = t5().mask()
    open_columns = tree_bias(mask, torch.tensor([3]), 16, torch.float32) == 0
    expected = torch.zeros(5, 16, dtype=torch.bool)
    expected[:, :3], expected[:, 3:8] = True, mask
    assert torch.equal(open_columns, expected)


@pytest.mark.parametrize("shift", [True, False])
def test_draft_is_the_eager_draft(shift: bool) -> None:
    target = tiny_target()
    drafter = tiny_drafter(target, dflash={"shift_label": shift})
    _, _, features = caches(target, drafter)
    eager, static = drafter.new_context(40), drafter.new_context(56)
    drafter.extend(eager, features)
    drafter.extend(static, features)
    static.k[:, :, 12:], static.v[:, :, 12:] = 7.0, -9.0
    block = drafter.draft(eager, 33)
    z, base = StaticForward(target, drafter, 5).draft(torch.tensor([33]), torch.tensor([12]), static, 64)
    assert_same(z, block.z)
    assert_same(base, block.base_logits)


@pytest.mark.parametrize("layers", [(0, 2), (3, 1, 0, 2)])
def test_commit_and_extend_keep_the_accepted_rows(layers: tuple[int, ...]) -> None:
    """The drafter may read some of the target's feature layers, in an order of its own."""
    target = tiny_target(layers=layers)
    drafter = tiny_drafter(target)
    eager, static, features = caches(target, drafter)
    contexts = drafter.new_context(40), drafter.new_context(40)
    for context in contexts:
        drafter.extend(context, features)
    ids, positions, mask = inputs(t5(), 40, 12, 5)
    verified = target.verify(ids, positions, mask, eager)
    forward = StaticForward(target, drafter, 5)
    length = torch.tensor([12])
    _, rows = forward.verify(ids, positions, mask, length, static, 64)
    path = torch.tensor([0, 2, 4, 0, 0])  # anchor, b, d, and two entries that do not count
    eager.commit([0, 2, 4])
    drafter.extend(contexts[0], verified.features[[0, 2, 4]])
    forward.commit(static, path, length)
    forward.extend(rows, path, length, contexts[1])
    for a, b in ((eager, static), contexts):
        assert_same(b.k[:, :, :15], a.k[:, :, :15])
        assert_same(b.v[:, :, :15], a.v[:, :, :15])


def test_bfloat16_runs_and_stays_close() -> None:
    plain = tiny_target()
    weights = {k: v.bfloat16() for k, v in random_weights(Target.weight_shapes(plain.config), 0, 2.0).items()}
    target = Target(plain.config, weights, (0, 2))
    eager, static, _ = caches(target, None)
    ids, positions, mask = inputs(t5(), 40, 12, 5)
    expected = target.verify(ids, positions, mask, eager).logits
    logits, _ = StaticForward(target, None, 5).verify(ids, positions, mask, torch.tensor([12]), static, 64)
    assert logits.dtype == torch.float32 and logits.shape == (5, VOCAB)
    torch.testing.assert_close(logits, expected, atol=0.1, rtol=0.05)
