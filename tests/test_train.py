"""The training recipe on tiny models: data rules, masks, shift, loss, resume, export, and agreement with the engine."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from dominotree.bench.accepted import rounds_along
from dominotree.checkpoints import Pair, load_drafter, load_target, read_config
from dominotree.decode import Settings
from dominotree.drafter import DrafterConfig
from dominotree.train import cli, config, data, export, plot, prompts
from dominotree.train.drafter import DrafterShape, TrainDrafter, block_mask, dense_attention
from dominotree.train.evaluate import Options, Text, evaluate, walk
from dominotree.train.generate import (
    GenerationSettings,
    generate_corpus,
    groups_by_length,
    loop_cut,
    top_k,
)
from dominotree.train.llama import BatchedTarget, GraphDecoder
from dominotree.train.loss import Columns, VocabularySampler, dual_cross_entropy
from dominotree.train.optim import orthogonalise
from dominotree.train.trainer import Corpus, FlexAttention, Trainer, TrainSettings, choose_blocks

ROOT = Path(__file__).resolve().parents[1]
VOCAB, HIDDEN, LAYERS, HEADS, KV, SIZE, WIDE = 128, 32, 4, 4, 2, 8, 48
CPU = torch.device("cpu")
SHAPE = DrafterShape(
    layers=2, intermediate=48, emb_dim=12, gru_hidden=16, output_rows=100, block_size=8, mask_token_id=1,
    target_layers=(0, 2), hidden=HIDDEN, heads=HEADS, kv_heads=KV, head_dim=SIZE, vocab=VOCAB,
)  # fmt: skip
PLAIN = replace(SHAPE, domino=False, shift_label=False, emb_dim=0, gru_hidden=0)
SETTINGS = TrainSettings(
    shape=SHAPE, sequences=6, anchors=8, max_total=64, columns=VOCAB, frequent=64, chunk=300, steps=40, log_every=10,
    warmup_steps=5, evaluate_at=(),
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama checkpoint whose texts soon repeat: there is something to learn."""
    where = tmp_path_factory.mktemp("target")
    g = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g) * 0.08

    w = {"model.embed_tokens.weight": draw(VOCAB, HIDDEN) * 6, "model.norm.weight": torch.ones(HIDDEN)}
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        w |= {
            p + n: torch.ones(HIDDEN) for n in ("input_layernorm.weight", "post_attention_layernorm.weight")
        }
        for name, shape in {
            "self_attn.q_proj": (HEADS * SIZE, HIDDEN), "self_attn.k_proj": (KV * SIZE, HIDDEN),
            "self_attn.v_proj": (KV * SIZE, HIDDEN), "self_attn.o_proj": (HIDDEN, HEADS * SIZE),
            "mlp.gate_proj": (WIDE, HIDDEN), "mlp.up_proj": (WIDE, HIDDEN), "mlp.down_proj": (HIDDEN, WIDE),
        }.items():  # fmt: skip
            w[f"{p}{name}.weight"] = draw(*shape)
    save_file(w, where / "model.safetensors")
    settings = {
        "model_type": "llama", "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV, "head_dim": SIZE, "intermediate_size": WIDE, "rms_norm_eps": 1e-5, "rope_theta": 100000.0,
        "max_position_embeddings": 256, "tie_word_embeddings": True, "hidden_act": "silu",
    }  # fmt: skip
    (where / "config.json").write_text(json.dumps(settings))
    return where


@pytest.fixture(scope="module")
def target(folder: Path) -> BatchedTarget:
    return BatchedTarget(folder, CPU, torch.float32)


def prompt_set(count: int) -> data.PromptSet:
    r = np.random.default_rng(0)
    rows = [r.integers(3, VOCAB, r.integers(5, 9)).astype(np.uint16) for _ in range(count)]
    offsets = np.concatenate([[0], np.cumsum([len(x) for x in rows])]).astype(np.int64)
    return data.PromptSet(
        np.concatenate(rows), offsets, np.arange(count, dtype=np.uint8) % 3, np.zeros(count, np.uint8)
    )


GENERATION = GenerationSettings(
    max_new_tokens=32, long_share=0.0, batch=24, min_group=8, max_total=64, min_response=3, loop_keep=28, loop_period=8,
    compact_every=4,
)  # fmt: skip


@pytest.fixture(scope="module")
def corpus(target: BatchedTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("corpus")
    generate_corpus(target, prompt_set(80), [2, 7], where, GENERATION)
    return where


# ------------------------------------------------------------------------------------------------ prompts


def test_every_evaluation_prompt_is_recognised_and_other_prompts_pass():
    evaluation = [row["prompt"] for row in data.read_evaluation(ROOT / "assets" / "eval" / "prompts.jsonl")]
    check = data.OverlapCheck([data.without_opening(t) for t in evaluation])
    assert len(evaluation) == 96
    assert all(check.hit(data.without_opening(t)) is not None for t in evaluation)
    assert all(check.hit(f"Hello! {data.without_opening(t).upper()} Thanks.") is not None for t in evaluation)
    for text in (
        "What is the capital of Peru?",
        "Write a Python function that rotates a list.",
        "What is 12 + 30?",
    ):
        assert check.hit(text) is None


def test_a_long_quotation_of_an_evaluation_prompt_is_rejected():
    check = data.OverlapCheck(["one two three four five six seven eight nine ten"])
    assert (
        check.hit(
            "Please say: two three four five six seven eight nine, and then something else entirely now"
        )
        == 0
    )
    assert check.hit("two three four five six seven, eleven twelve thirteen fourteen fifteen sixteen") is None
    assert check.rejected["n-gram"] == 1


def test_made_prompts_are_new_and_clear_of_the_evaluation(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prompts, "DOCSTRING_PACKAGES", ("statistics", "textwrap"))
    evaluation = [row["prompt"] for row in data.read_evaluation(ROOT / "assets" / "eval" / "prompts.jsonl")]
    settings = data.PromptSettings(math=150, reasoning_gym_per_task=0, code=150, chat=150, seed=4)
    made, report = data.make_prompts(settings, evaluation)
    texts = [text for _, text in made]
    check = data.OverlapCheck([data.without_opening(t) for t in evaluation])
    assert len(texts) == len(set(texts)) == sum(report["prompts"].values()) >= 400
    assert not any(check.hit(data.without_opening(t)) for t in texts)
    assert made == data.make_prompts(settings, evaluation)[0]  # the seed decides everything


def test_examples_in_made_up_functions_are_true():
    import random
    import re

    r = random.Random(1)
    text = next(
        t for t in (prompts._completion(r) for _ in range(200)) if ">>>" in t and "positive numbers" in t
    )
    assert re.search(r"```python\n(from typing import List\n\n\n)?def \w+\(", text)
    namespace: dict = {}
    call = re.search(r">>> (\w+)\((\[.*?\])\)\n\s+(.+)", text)
    assert call is not None
    exec("result = " + call[2], namespace)
    assert isinstance(namespace["result"], list)


# ------------------------------------------------------------------------------------------------ generation


def test_features_are_the_states_after_each_layer(folder: Path, target: BatchedTarget):
    from transformers import LlamaForCausalLM

    ids = torch.randint(3, VOCAB, (3, 17))
    states = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)(
        ids, output_hidden_states=True
    ).hidden_states
    expected = torch.cat([states[1], states[3]], -1)
    assert torch.allclose(target.features(ids, [0, 2]), expected, atol=1e-5)


def test_greedy_responses_and_soft_labels_follow_the_target(target: BatchedTarget, corpus: Path):
    ids, offsets, prompt, soft, greedy = (
        np.load(corpus / f"{n}.npy") for n in ("ids", "offsets", "prompt_len", "soft_ids", "greedy")
    )
    assert 0.6 < greedy.mean() < 0.9
    for i in np.flatnonzero(greedy):
        text = torch.from_numpy(ids[offsets[i] : offsets[i + 1]].astype(np.int64))
        states = target.features(text[None], [LAYERS - 1])[0]
        best = target.logits(states).argmax(-1)[prompt[i] - 1 : -1]
        assert torch.equal(best, text[prompt[i] :])
        assert np.array_equal(soft[offsets[i] + prompt[i] : offsets[i + 1], 0], best.numpy())
        assert not soft[offsets[i] : offsets[i] + prompt[i]].any()


def test_the_graph_decoder_computes_the_same_step(target: BatchedTarget):
    ids, pad = torch.randint(3, VOCAB, (4, 9)), torch.tensor([0, 3, 1, 0])
    plain, _ = target.start(ids, pad, 5)
    state, _ = target.start(ids, pad, 5)
    graph = GraphDecoder(target, state)
    for _ in range(4):
        token = torch.randint(3, VOCAB, (4,))
        graph.ids.copy_(token)
        assert torch.allclose(target.step(plain, token), graph._body(), atol=1e-4)


def test_loops_are_cut_but_repeated_words_stay():
    loop = [9, 8, *[1, 2, 3] * 10]
    rows = torch.tensor([loop, [*range(20), *[0] * 12], [5] * 32])
    sizes = torch.tensor([32, 20, 32])
    assert loop_cut(rows, sizes, period=8, keep=12).tolist() == [32 - 27 + 12, 20, 13]


def test_top_k_by_chunks_is_exact():
    values = torch.randperm(4 * 1280).float().view(4, 1280)
    v, i = top_k(values, 4)
    assert torch.equal(v, values.topk(4).values) and torch.equal(i, values.topk(4).indices)


def test_batches_cover_every_prompt_once():
    lengths = np.random.default_rng(1).integers(5, 40, 500)
    groups = groups_by_length(lengths, np.arange(500), batch=64, min_group=20)
    assert sorted(np.concatenate(groups).tolist()) == list(range(500))
    assert max(map(len, groups)) <= 64


# ------------------------------------------------------------------------------------------------ blocks and masks


def test_block_mask_by_hand():
    mask = block_mask(torch.tensor([[2, 3]]), context=4, rows=2)[0].int().tolist()
    assert mask == [
        [1, 1, 0, 0, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 1, 0, 0],
        [1, 1, 1, 0, 0, 0, 1, 1],
        [1, 1, 1, 0, 0, 0, 1, 1],
    ]


def test_flex_tiles_hold_every_visible_pair():
    anchors, rows, context = 16, 16, 256
    flex = FlexAttention(anchors, rows, context, 2, CPU)
    place = torch.stack([torch.arange(100, 116), torch.arange(3, 19)])
    flex.set(place, 128)
    expected = block_mask(place, context, rows)
    q, k = torch.meshgrid(torch.arange(anchors * rows), torch.arange(context + anchors * rows), indexing="ij")
    for b in range(2):
        assert torch.equal(flex.mask.mask_mod(torch.tensor(b), torch.tensor(0), q, k), expected[b])
    tiles = torch.zeros(2, 4, dtype=torch.bool)
    for i in range(2):
        tiles[i, flex.mask.kv_indices[0, 0, i, : int(flex.kv_count[0, 0, i])].long()] = True
    whole = tiles.repeat_interleave(128, 0).repeat_interleave(128, 1)
    assert not (expected.any(0) & ~whole).any()


def test_labels_and_gru_inputs_of_a_block(corpus: Path):
    loaded = Corpus([corpus], CPU)
    rows = torch.arange(6)
    blocks = choose_blocks(loaded, rows, 64, anchors=8, levels=8, decay=7.0)
    for s in range(6):
        text = loaded.sequences(rows[s : s + 1], 64)[0]
        size, start = int(loaded.size[s]), int(loaded.prompt[s])
        for a in range(8):
            at = int(blocks.anchor[s, a])
            assert start <= at <= size - 2
            if a and at == int(blocks.anchor[s, a - 1]):
                assert (blocks.labels[s, a] == -1).all()  # a repeated anchor counts once
                continue
            for level in range(8):
                label = int(text[at + 1 + level]) if at + 1 + level < size else -1
                assert int(blocks.labels[s, a, level]) == label
                if label >= 0:
                    assert int(blocks.read[s, a, level]) == int(text[at + level])
    assert torch.isclose(blocks.weight.sum(), torch.tensor(1.0))
    assert (blocks.weight[blocks.labels < 0] == 0).all()


def test_E29_shift_label_decides_which_row_serves_a_level():
    shifted = TrainDrafter(SHAPE)
    shifted.initialise(torch.randn(VOCAB, HIDDEN), torch.ones(HIDDEN), torch.Generator().manual_seed(0))
    plain = TrainDrafter(replace(SHAPE, shift_label=False))
    plain.load_state_dict(shifted.state_dict())
    context, anchor = torch.randn(1, 10, HIDDEN), torch.tensor([[4, 7]])
    attend = dense_attention(block_mask(anchor, 10, 8))
    tokens = torch.randn(1, 2, HIDDEN), torch.randn(HIDDEN)
    a, b = (m.backbone(context, anchor, *tokens, attend) for m in (shifted, plain))
    assert a.shape[2] == 8 and b.shape[2] == 7
    assert torch.equal(a[:, :, 1:], b)


# ------------------------------------------------------------------------------------------------ loss


def naive_loss(z, hidden, output, embedding, labels, soft_ids, soft_p, weight, lam, alpha):
    base = z @ embedding.T
    final = base if hidden is None else base + hidden @ output.T
    keep = labels >= 0
    wanted = alpha * F.one_hot(labels.clamp_min(0), len(embedding)).float()
    wanted = wanted.scatter_add(1, soft_ids, (1 - alpha) * soft_p)
    loss = lam * -(base.log_softmax(-1) * wanted).sum(-1) + (1 - lam) * -(final.log_softmax(-1) * wanted).sum(
        -1
    )
    return (weight * loss)[keep].sum()


@pytest.mark.parametrize("head", [True, False])
def test_loss_and_gradients_over_the_whole_vocabulary_are_exact(head: bool):
    torch.manual_seed(0)
    n, e = 50, 6
    z = torch.randn(n, HIDDEN, requires_grad=True)
    hidden = torch.randn(n, e, requires_grad=True) if head else None
    output = torch.randn(VOCAB, e, requires_grad=True) if head else None
    embedding = torch.randn(VOCAB, HIDDEN)
    labels = torch.randint(-1, VOCAB, (n,))
    soft_ids = torch.stack([torch.randperm(VOCAB)[:4] for _ in range(n)])
    soft_p = torch.rand(n, 4)
    soft_p = soft_p / soft_p.sum(-1, keepdim=True)
    weight = torch.rand(n) * (labels >= 0)
    lam = torch.tensor(0.3)
    columns = VocabularySampler(torch.rand(VOCAB), 40, VOCAB)(labels)
    assert torch.allclose(columns.raise_by, torch.zeros(VOCAB), atol=1e-6)
    ours = dual_cross_entropy(
        z, hidden, output, embedding, labels, soft_ids, soft_p, weight, columns, lam, 0.6, chunk=16
    )
    inputs = [t for t in (z, hidden, output) if t is not None]
    got = torch.autograd.grad(ours.loss, inputs)
    wanted = naive_loss(z, hidden, output, embedding, labels, soft_ids, soft_p, weight, lam, 0.6)
    assert torch.isclose(ours.loss, wanted, atol=1e-5)
    for mine, reference in zip(got, torch.autograd.grad(wanted, inputs), strict=True):
        assert torch.allclose(mine, reference, atol=1e-6)


def test_sampled_columns_hold_all_labels_and_meet_the_partition_sum():
    torch.manual_seed(1)
    logits = torch.randn(VOCAB)
    labels = torch.tensor([100, 101, -1, 102])
    sampler = VocabularySampler(torch.arange(VOCAB, 0, -1), frequent=32, size=64)
    sums = []
    for _ in range(400):
        columns: Columns = sampler(labels)
        assert len(columns.ids.unique()) == 64
        assert set(range(32)) <= set(columns.ids.tolist()) and {100, 101, 102} <= set(columns.ids.tolist())
        assert torch.equal(columns.ids[columns.place[labels[labels >= 0]]], labels[labels >= 0])
        sums.append((logits[columns.ids] + columns.raise_by).exp().sum())
    assert torch.stack(sums).mean().item() == pytest.approx(logits.exp().sum().item(), rel=0.02)


def test_orthogonalised_matrices_have_singular_values_near_one():
    for shape in ((3, 20, 50), (2, 50, 20)):
        s = torch.linalg.svdvals(orthogonalise(torch.randn(shape)).float())
        assert s.min() > 0.5 and s.max() < 1.35


def test_unrolled_gru_is_the_gru():
    model = TrainDrafter(SHAPE)
    x = torch.randn(5, 8, HIDDEN)
    assert torch.allclose(model.gru_states(x), model.unrolled_gru_states(x), atol=1e-6)


# ------------------------------------------------------------------------------------------------ training


def losses(where: Path) -> list[float]:
    return [
        e["final_loss"]
        for e in map(json.loads, (where / "log.jsonl").read_text().splitlines())
        if "final_loss" in e
    ]


def test_training_lowers_the_loss_and_keeps_untrained_rows_at_zero(
    target: BatchedTarget, corpus: Path, tmp_path: Path
):
    loaded = Corpus([corpus], CPU)
    trainer = Trainer(replace(SETTINGS, steps=150, log_every=25, muon_lr=6e-3), target, tmp_path)
    trainer.prepare(loaded, 2)
    summary = trainer.run(loaded)
    found = losses(tmp_path)
    assert summary["steps"] == 150 and summary["blocks"] == 150 * 6 * 8
    assert found[-1] < 0.6 * found[0]
    idle = trainer.model.row_trained == 0
    assert idle.sum() == VOCAB - SHAPE.output_rows
    assert (trainer.model.w2[idle] == 0).all() and (trainer.model.w2[~idle] != 0).any()


def test_schedules_end_on_time():
    s = replace(SETTINGS, steps=None, limit_s=10.0, lambda_floor=0.15, lambda_end=0.85, warmup_steps=0)
    assert s.lam(0) == 1 and s.lam(0.85) == pytest.approx(0.15) and s.lam(1) == 0.15
    assert s.lr_factor(0.1, 5) == 1 and s.lr_factor(1.0, 5) == pytest.approx(s.final_lr)
    assert replace(s, shape=PLAIN).lam(0.9) == 1  # a drafter without a head has the base loss only


def test_resume_goes_on_where_it_stopped(target: BatchedTarget, corpus: Path, tmp_path: Path):
    loaded = Corpus([corpus], CPU)
    first = Trainer(replace(SETTINGS, steps=8), target, tmp_path)
    first.prepare(loaded, 2)
    first.run(loaded)
    second = Trainer(replace(SETTINGS, steps=14), target, tmp_path)
    second.prepare(loaded, 2)
    assert second.resume()
    assert (second.step_number, second.position) == (8, 8)
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert second.run(loaded)["steps"] == 14 and second.position == 14
    other = Trainer(replace(SETTINGS, shape=replace(SHAPE, layers=1)), target, tmp_path)
    with pytest.raises(ValueError, match="another drafter shape"):
        other.resume()


def test_a_run_is_reproducible(target: BatchedTarget, corpus: Path, tmp_path: Path):
    ends = []
    for name in "ab":
        loaded = Corpus([corpus], CPU)
        trainer = Trainer(replace(SETTINGS, steps=3), target, tmp_path / name)
        trainer.prepare(loaded, 2)
        torch.manual_seed(5)
        trainer.run(loaded)
        ends.append(torch.cat([p.flatten() for p in trainer.model.parameters()]))
    assert torch.equal(*ends)


# ------------------------------------------------------------------------------------------------ export, evaluation


@pytest.fixture(scope="module")
def trained(target: BatchedTarget, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A Domino and a DFlash drafter, trained a little and exported."""
    found = {}
    for name, shape in (("domino", SHAPE), ("dflash", PLAIN)):
        where = tmp_path_factory.mktemp(name)
        loaded = Corpus([corpus], CPU)
        trainer = Trainer(replace(SETTINGS, shape=shape, steps=60, muon_lr=6e-3), target, where)
        trainer.prepare(loaded, 2)
        trainer.run(loaded)
        export.save_released(trainer.model, where / "out", LAYERS, 256, torch.float32)
        found[name] = where / "out"
    return found


@pytest.mark.parametrize("kind", ["domino", "dflash"])
def test_an_exported_drafter_gives_the_engine_the_same_rounds(
    kind: str, folder: Path, target: BatchedTarget, corpus: Path, trained: dict[str, Path]
):
    where = trained[kind]
    raw = read_config(where)
    assert raw["dflash_config"]["shift_label"] is (kind == "domino")
    engine = load_target(folder, [0, 2], CPU, torch.float32)
    drafter = load_drafter(where, DrafterConfig.from_dict(raw, kind), engine)
    pair = Pair(engine, None, drafter if kind == "domino" else None, drafter if kind == "dflash" else None)  # type: ignore[arg-type]
    model = export.load_released(where, CPU)
    loaded = Corpus([corpus], CPU)
    texts = []
    for i in range(4):
        ids = loaded.sequences(torch.tensor([i]), int(loaded.size[i]))[0].tolist()
        texts.append(Text("x", ids[: int(loaded.prompt[i])], ids[int(loaded.prompt[i]) :]))
    result = evaluate(
        model, target, texts, Options(budgets=(4, 12), top_m=16, children=4, list_children=16), 2
    )
    methods = {"dflash": ("dflash", None), "ddtree": ("marginal@12", 12)}
    if kind == "domino":
        methods = {"domino": ("domino", None), "dominotree": ("dominotree@12", 12), "static": ("static@12", 12), "marginal": ("marginal@4", 4)}  # fmt: skip
    for method, (name, budget) in methods.items():
        children = None if budget is None else 4 if method == "dominotree" else 16
        settings = Settings(method=method, budget=budget or 16, top_m=16, children=children)
        assert result.rounds(name) == [rounds_along(pair, t.prompt, t.response, settings) for t in texts], (
            method
        )


def test_full_vocabulary_and_calibration(target: BatchedTarget, corpus: Path, trained: dict[str, Path]):
    model = export.load_released(trained["domino"], CPU)
    loaded = Corpus([corpus], CPU)
    ids = loaded.sequences(torch.tensor([0]), int(loaded.size[0]))[0].tolist()
    text = [Text("x", ids[: int(loaded.prompt[0])], ids[int(loaded.prompt[0]) :])]
    whole = evaluate(
        model,
        target,
        text,
        Options(budgets=(8,), top_m=VOCAB, children=8, list_children=32, calibrate=True),
        1,
    )
    wide = evaluate(
        model, target, text, Options(budgets=(8,), top_m=VOCAB - 1, children=8, list_children=32), 1
    )
    assert whole.rounds("dominotree@8") == wide.rounds("dominotree@8")
    for rows in whole.calibration.values():
        assert rows and all(0 <= p <= 1 and 0 <= g <= 1 and n > 0 for n, p, g in rows)
    depths = whole.depths("dominotree@8")
    assert depths == sorted(depths, reverse=True)


def test_the_whole_recipe_runs_from_one_command(folder: Path, tmp_path: Path):
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 7]}))
    given = prompt_set(30)
    given.split[:3] = 1
    given.save(tmp_path / "prompts.npz")
    shape = {k: v for k, v in asdict(SHAPE).items() if k not in ("domino", "shift_label")} | {
        "target_layers": [0, 2]
    }
    small = {
        "sequences": 3,
        "anchors": 8,
        "max_total": 64,
        "columns": VOCAB,
        "frequent": 64,
        "steps": 3,
        "log_every": 1,
    }
    for name, domino in (("domino", True), ("dflash", False)):
        values = small | {"shape": shape | {"domino": domino, "shift_label": domino}}
        (tmp_path / f"{name}.yaml").write_text(json.dumps(values))  # JSON is YAML
    (tmp_path / "generate.yaml").write_text(
        json.dumps({"max_new_tokens": 20, "batch": 16, "min_response": 3})
    )
    line = [
        "all",
        "--target",
        str(folder),
        "--out",
        str(tmp_path / "out"),
        "--device",
        "cpu",
        "--minutes",
        "1",
    ]
    for option in ("prompts.npz", "generate.yaml", "domino.yaml", "dflash.yaml"):
        stem, kind = option.split(".")
        line += [f"--{stem}" if kind == "npz" else f"--{stem}-config", str(tmp_path / option)]
    assert cli.main(line) == 0
    for name in ("domino", "dflash"):
        record = json.loads((tmp_path / "out" / name / "record.json").read_text())
        assert record["summary"]["steps"] == 3 and record["dev"]["dflash"]["all"] >= 1
        assert export.load_released(tmp_path / "out" / name / "drafter", CPU).shape.domino is (
            name == "domino"
        )
    plot.write_plot([tmp_path / "out" / "domino" / "log.jsonl"], tmp_path / "plot.html")
    assert "depth 8" in (tmp_path / "plot.html").read_text(encoding="utf-8")


def test_walk_counts_the_bonus_and_stops_at_the_end():
    assert walk(np.array([2, 0, 0, 0, 1, 5])) == [3, 1, 2]
    assert walk(np.array([9, 9, 9])) == [3]
    assert walk(np.array([], dtype=int)) == []


def test_settings_refuse_unknown_keys_and_read_the_shipped_configs():
    for name, domino in (("domino", True), ("dflash", False)):
        found = config.load(TrainSettings, name, ["shape.layers=2", "muon_lr=1e-3"])
        assert found.shape.domino is found.shape.shift_label is domino
        assert found.shape.layers == 2 and found.muon_lr == 1e-3
    with pytest.raises(ValueError, match="no setting learning_rate"):
        config.build(TrainSettings, {"learning_rate": 1})


def test_the_recorded_table_holds_what_the_recipe_aims_at():
    with (ROOT / "assets" / "eval" / "tau.csv").open(newline="", encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if r["pair"] == "default" and float(r["temperature"]) == 0]
    tau = {
        (r["method"], r["budget"], r["set"]): float(r["tau"])
        for r in rows
        if r["top_m"] in ("", "64") and (r["method"] != "dflash" or "dflash" not in r["drafter"])
    }
    assert tau["dominotree", "16", "all"] >= 4.75 and tau["dominotree", "64", "all"] >= 5.7
    assert tau["dominotree", "16", "chat"] >= 3.2
    assert tau["dflash", "", "all"] >= 2.56 and tau["marginal", "16", "all"] >= 3.30
    assert tau["ddtree", "16", "all"] >= max(3.5, tau["marginal", "16", "all"] - 0.01)
    for budget in ("16", "64"):
        assert (
            tau["marginal", budget, "all"] < tau["static", budget, "all"] < tau["dominotree", budget, "all"]
        )
