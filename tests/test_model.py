"""The thin decoder against Hugging Face, and the tree mask against fresh forwards."""

from __future__ import annotations

import pytest
import torch
from tiny import VOCAB, path_reference, tiny_config, tiny_target
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from dominotree.errors import PairError
from dominotree.model import KVCache, ModelConfig, Rotary, attention_bias, inverse_frequencies, rotate
from dominotree.target import Target
from dominotree.tree import DraftTree


def t5() -> DraftTree:
    """The five-row tree of the fault log: root r; a, b under r; c under a; d under b."""
    tree = DraftTree()
    for token, parent in ((10, -1), (11, -1), (12, 0), (13, 1)):
        tree.add(token, parent, 0.0)
    return tree


def verify(target: Target, prefix: list[int], tree: DraftTree, anchor: int = 9):
    cache = target.new_cache(len(prefix) + len(tree) + 1)
    target.prefill(torch.tensor(prefix), cache)
    rows = target.verify(
        torch.tensor(tree.rows(anchor)), torch.tensor(tree.positions(len(prefix))), tree.mask(), cache
    )
    return rows, cache


PREFIX = list(range(20, 32))


@pytest.mark.parametrize("kind", ["llama", "qwen3", "llama3-rope"])
def test_layer_outputs_equal_hugging_face(kind: str) -> None:
    torch.manual_seed(0)
    common = dict(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        intermediate_size=48, max_position_embeddings=256, tie_word_embeddings=False,
    )  # fmt: skip
    rope = {"rope_type": "default", "rope_theta": 5000.0}
    if kind == "llama3-rope":
        rope = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 4.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 64}  # fmt: skip
    cls, config = (
        (Qwen3ForCausalLM, Qwen3Config(**common, rope_parameters=rope))
        if kind == "qwen3"
        else (LlamaForCausalLM, LlamaConfig(**common, rope_parameters=rope))
    )
    model = cls(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.2)
    ids = torch.randint(0, VOCAB, (40,))
    with torch.inference_mode():
        theirs = model(ids[None], output_hidden_states=True)
    ours_config = ModelConfig.from_dict(config.to_dict(), kind)
    target = Target(ours_config, dict(model.state_dict()), [0, 1, 2, 3], kind)
    cache = target.new_cache(40)
    positions = torch.arange(40)
    rows = target.verify(ids, positions, torch.ones(40, 40, dtype=torch.bool).tril(), cache)
    torch.testing.assert_close(rows.logits, theirs.logits[0], atol=2e-4, rtol=2e-4)
    features = rows.features.split(32, dim=-1)
    for layer in range(3):  # the last entry of the Hugging Face list is after the final norm (L02)
        torch.testing.assert_close(features[layer], theirs.hidden_states[layer + 1][0], atol=2e-4, rtol=2e-4)


def test_L01_feature_of_layer_i_is_the_output_of_block_i() -> None:
    target = tiny_target(layers=[0, 2])
    seen = {}
    for i, layer in enumerate(target.layers):
        original = layer.forward

        def hook(x, tables, bias, cache, index, original=original, i=i):
            seen[i] = original(x, tables, bias, cache, index)
            return seen[i]

        layer.forward = hook
    cache = target.new_cache(8)
    rows = target.prefill(torch.tensor([1, 2, 3]), cache)
    assert torch.equal(rows.features, torch.cat([seen[0], seen[2]], dim=-1))


@pytest.mark.parametrize("layer", [4, -1])
def test_L02_feature_layer_outside_the_target_is_named(layer: int) -> None:
    with pytest.raises(PairError, match=str(layer)):
        tiny_target(layers=[layer])
    assert tiny_target(layers=[3]).feature_layers == (3,)


def test_E09_positions_are_prefix_plus_depth_and_rows_equal_fresh_forwards() -> None:
    target, tree = tiny_target(), t5()
    assert tree.positions(12) == [12, 13, 13, 14, 14]
    rows, _ = verify(target, PREFIX, tree)
    reference = path_reference(target, PREFIX, tree.rows(9), [-1, 0, 0, 1, 2])
    torch.testing.assert_close(rows.logits, reference, atol=1e-4, rtol=1e-5)
    slots = torch.arange(12, 17)  # the fault: slot numbers as positions
    cache = target.new_cache(20)
    target.prefill(torch.tensor(PREFIX), cache)
    wrong = target.verify(torch.tensor(tree.rows(9)), slots, tree.mask(), cache).logits
    assert (wrong[2:] - reference[2:]).abs().max() > 1e-3


def test_E10_a_sibling_moves_only_its_own_branch() -> None:
    target, tree = tiny_target(), t5()
    before, _ = verify(target, PREFIX, tree)
    tree.token[1] = 40
    after, _ = verify(target, PREFIX, tree)
    assert (before.logits[[0, 1, 3]] - after.logits[[0, 1, 3]]).abs().max() < 1e-5
    assert (before.logits[4] - after.logits[4]).abs().max() > 1e-3


def test_E11_mask_cells() -> None:
    tree = DraftTree()
    tree.add(5, -1, 0.0)
    tree.add(6, -1, 0.0)
    bias = attention_bias(tree.mask(), 3, torch.float32)
    cells = ["".join("1" if x == 0 else "0" for x in row) for row in bias.tolist()]
    assert cells == ["111100", "111110", "111101"]


def test_E10_E43_L20_a_mask_that_does_not_arrive_is_refused_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target()
    target.probe_tree_mask()
    import dominotree.target as module

    def causal(mask, prefix, dtype):
        return attention_bias(torch.ones_like(mask).tril(), prefix, dtype)

    monkeypatch.setattr(module, "attention_bias", causal)
    with pytest.raises(PairError, match="tree mask does not take effect"):
        target.probe_tree_mask()


def test_E12_commit_gathers_the_tail_in_order() -> None:
    target = tiny_target()
    tree = DraftTree()
    for token, parent in ((10, -1), (11, -1), (12, 1)):
        tree.add(token, parent, 0.0)
    _, cache = verify(target, PREFIX, tree)
    cache.commit([0, 2, 3])
    assert cache.length == len(PREFIX) + 3
    fresh = target.new_cache(15)
    target.prefill(torch.tensor([*PREFIX, 9, 11, 12]), fresh)
    torch.testing.assert_close(cache.k[:, :, :15], fresh.k, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(cache.v[:, :, :15], fresh.v, atol=1e-5, rtol=1e-4)


def test_N04_rows_that_see_only_themselves_give_no_nan() -> None:
    target, tree = tiny_target(), t5()
    plain, _ = verify(target, PREFIX, tree)
    cache = target.new_cache(30)
    target.prefill(torch.tensor(PREFIX), cache)
    mask = torch.eye(8, dtype=torch.bool)
    mask[:5, :5] = tree.mask()
    ids = torch.tensor([*tree.rows(9), 0, 0, 0])
    positions = torch.tensor([*tree.positions(12), 12, 12, 12])
    padded = target.verify(ids, positions, mask, cache)
    torch.testing.assert_close(padded.logits[:5], plain.logits, atol=1e-5, rtol=1e-5)
    assert not padded.logits.isnan().any()


def test_N06_a_mask_of_numbers_is_refused() -> None:
    with pytest.raises(TypeError, match="boolean"):
        attention_bias(torch.ones(3, 3), 2, torch.float32)


def test_E17_E16_N07_layers_that_cannot_be_rewound_or_windowed_are_refused() -> None:
    for kind in ("linear_attention", "conv", "sliding_attention"):
        with pytest.raises(PairError, match=kind):
            ModelConfig.from_dict(tiny_config(layer_types=["full_attention", kind]), "x")
    with pytest.raises(PairError, match="mamba"):
        ModelConfig.from_dict(tiny_config(model_type="mamba"), "x")


def test_L05_rotary_base_flat_or_nested_never_the_default() -> None:
    flat = {**tiny_config(rope_theta=500000.0)}
    nested = tiny_config(rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    del nested["rope_theta"]
    for config in (flat, nested):
        assert inverse_frequencies(ModelConfig.from_dict(config, "x"))[1].item() == pytest.approx(
            0.037606, abs=1e-6
        )
    with pytest.raises(PairError, match=r"10000\.0.*500000\.0"):
        ModelConfig.from_dict(
            tiny_config(rope_parameters={"rope_type": "default", "rope_theta": 500000.0}), "x"
        )
    del flat["rope_theta"]
    with pytest.raises(PairError, match="rope_theta"):
        ModelConfig.from_dict(flat, "x")


def test_L07_rotary_pairs_half_against_half() -> None:
    config = ModelConfig.from_dict(tiny_config(head_dim=4), "x")
    rotary = Rotary(config, torch.device("cpu"), torch.float32)
    rotary.inv_freq = torch.tensor([1.0, 0.0])
    out = rotate(torch.tensor([[[1.0, 0, 0, 0]]]), rotary.tables(torch.tensor([1])))
    torch.testing.assert_close(out[0, 0], torch.tensor([0.5403, 0, 0.8415, 0]), atol=1e-4, rtol=0)


def test_N14_offsets_beyond_31_bits() -> None:
    """Slot × row size must be held in 64 bits: torch index arithmetic on our cache layout is int64."""
    slot, row = torch.tensor(2_100_000), 1024
    assert int(slot * row) == 2_150_400_000


def test_E40_rows_beyond_the_cache_are_refused_and_nothing_is_overwritten() -> None:
    target = tiny_target()
    cache = target.new_cache(13)
    target.prefill(torch.tensor(PREFIX), cache)
    before = cache.k.clone()
    with pytest.raises(ValueError, match="do not fit"):
        target.verify(torch.tensor([1, 2]), torch.tensor([12, 13]), torch.eye(2, dtype=torch.bool), cache)
    assert torch.equal(before, cache.k)


def test_unsupported_variants_are_named() -> None:
    for change, word in (({"attention_bias": True}, "attention_bias"), ({"hidden_act": "gelu"}, "gelu"),
                         ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "yarn")):  # fmt: skip
        with pytest.raises(PairError, match=word):
            ModelConfig.from_dict(tiny_config(**change), "x")


def test_rewound_cache_is_left_as_it_was() -> None:
    target, tree = tiny_target(), t5()
    _, cache = verify(target, PREFIX, tree)
    cache.commit([0, 2])
    k, v, length = cache.k[:, :, :14].clone(), cache.v[:, :, :14].clone(), cache.length
    from dominotree.record import union_logits

    union_logits(target, cache, 12, tree, 9)
    assert cache.length == length
    assert torch.equal(cache.k[:, :, :14], k) and torch.equal(cache.v[:, :, :14], v)


def test_cache_shapes_and_room() -> None:
    cache = KVCache(tiny_target().config, 5, torch.device("cpu"), torch.float32)
    assert cache.k.shape == (4, 2, 5, 8) and cache.room() == 5
