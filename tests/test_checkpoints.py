"""Finding, checking and loading a pair: rows L and S09 of the fault log. Small real files, no network."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tiny import (
    TINY,
    ByteTokenizer,
    drafter_config,
    random_weights,
    tiny_config,
    tiny_pair,
    tiny_target,
)

from dominotree import checkpoints
from dominotree.checkpoints import load_drafter, load_pair, load_target, read_tensors, resolve
from dominotree.decode import Settings, generate
from dominotree.drafter import Drafter, DrafterConfig
from dominotree.errors import PairError
from dominotree.model import ModelConfig
from dominotree.target import Target

CPU = torch.device("cpu")


def target_folder(folder: Path, seed: int = 0, **changes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    raw = tiny_config(**changes)
    (folder / "config.json").write_text(json.dumps(raw))
    weights = random_weights(Target.weight_shapes(ModelConfig.from_dict(raw, "x")), seed, 2.0)
    save_file(weights, folder / "model.safetensors")
    return folder


def drafter_folder(folder: Path, seed: int = 1, dflash: dict | None = None, **changes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    raw = drafter_config(dflash, **changes)
    (folder / "config.json").write_text(json.dumps(raw))
    config = DrafterConfig.from_dict(raw, "x")
    save_file(random_weights(Drafter.weight_shapes(config), seed, 2.0), folder / "model.safetensors")
    return folder


def rewrite(folder: Path, change) -> None:
    tensors = read_tensors(folder, CPU, torch.float32)
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.fixture
def byte_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints.Tokenizer, "from_folder", classmethod(lambda cls, path: ByteTokenizer()))


def load_both(tmp_path: Path, **kwargs):
    return load_pair(target=target_folder(tmp_path / "t"), drafter=drafter_folder(tmp_path / "d"), **kwargs)


def test_a_local_pair_loads_and_decodes(tmp_path: Path, byte_tokenizer) -> None:
    pair = load_both(tmp_path)
    assert pair.info["drafter_kind"] == "domino" and pair.info["target"] == "t"
    outputs = [
        generate(pair, settings=Settings(method=m, max_new_tokens=12), prompt_ids=[4, 8]).summary["token_ids"]
        for m in ("ar", "dominotree")
    ]
    assert outputs[0] == outputs[1]


def test_L03_renamed_and_missing_tensors_are_listed(tmp_path: Path) -> None:
    folder = drafter_folder(tmp_path / "d")
    config = DrafterConfig.from_dict(json.loads((folder / "config.json").read_text()), "d")

    def damage(tensors) -> None:
        tensors["fc.wight"] = tensors.pop("fc.weight")
        del tensors["norm.weight"]

    rewrite(folder, damage)
    with pytest.raises(PairError, match=r"missing fc\.weight, norm\.weight; not expected fc\.wight"):
        load_drafter(folder, config, tiny_target())


def test_L04_loaded_tensors_are_the_files_twice(tmp_path: Path) -> None:
    folder = target_folder(tmp_path / "t")
    saved = read_tensors(folder, CPU, torch.float32)
    for _ in range(2):
        target = load_target(folder, [0], CPU, torch.float32)
        assert torch.equal(target.embedding, saved["model.embed_tokens.weight"])
        assert torch.equal(target.layers[1].qkv[:32], saved["model.layers.1.self_attn.q_proj.weight"])
        assert torch.equal(target.layers[3].down, saved["model.layers.3.mlp.down_proj.weight"])


def test_L09_tied_head_shares_the_embedding(tmp_path: Path) -> None:
    folder = target_folder(tmp_path / "t")
    target = load_target(folder, [0, 2], CPU, torch.float32)
    assert target.head.data_ptr() == target.embedding.data_ptr()
    untied = load_target(target_folder(tmp_path / "u", tie_word_embeddings=False), [], CPU, torch.float32)
    assert untied.head.data_ptr() != untied.embedding.data_ptr()
    rewrite(folder, lambda tensors: tensors.update({"lm_head.weight": torch.zeros(64, 32)}))
    assert load_target(folder, [], CPU, torch.float32).head.abs().sum() > 0


def test_L11_vocabularies_of_different_size(tmp_path: Path) -> None:
    padded = drafter_folder(tmp_path / "p", vocab_size=66)
    config = DrafterConfig.from_dict(json.loads((padded / "config.json").read_text()), "p")
    pair = tiny_pair()
    pair.domino = load_drafter(padded, config, pair.target)
    run = generate(pair, settings=Settings(top_m=None, max_new_tokens=16), prompt_ids=[4, 8], record=True)
    assert all(t < 64 for r in run.rounds for t in r.nodes.token)
    small = DrafterConfig.from_dict(drafter_config(vocab_size=40), "s")
    with pytest.raises(PairError, match=r"40.*64"):
        Drafter.check(small, pair.target, "s")


def test_L12_mask_id_must_be_a_row_of_the_embedding() -> None:
    with pytest.raises(PairError, match=r"64.*64 rows"):
        Drafter.check(DrafterConfig.from_dict(drafter_config({"mask_token_id": 64}), "d"), tiny_target(), "d")
    config = drafter_config()
    del config["dflash_config"]["mask_token_id"]
    with pytest.raises(PairError, match="mask_token_id"):
        DrafterConfig.from_dict(config, "d")


def test_L13_a_pruned_vocabulary_is_refused_not_misread() -> None:
    with pytest.raises(PairError, match="token map"):
        Drafter.check(DrafterConfig.from_dict(drafter_config(vocab_size=3), "d"), tiny_target(), "d")


@pytest.mark.parametrize(
    ("change", "word"), [({"hidden_size": 64, "head_dim": 8}, "64.*32"), ({"num_target_layers": 6}, "6.*4")]
)
def test_L22_a_drafter_for_another_target_is_refused(change: dict, word: str) -> None:
    with pytest.raises(PairError, match=word):
        Drafter.check(DrafterConfig.from_dict(drafter_config(**change), "d"), tiny_target(), "d")
    with pytest.raises(PairError, match=r"\[9\]"):
        Drafter.check(
            DrafterConfig.from_dict(drafter_config({"target_layer_ids": [1, 9]}), "d"), tiny_target(), "d"
        )


def test_L23_E29_plain_methods_on_a_domino_drafter_say_so() -> None:
    pair = tiny_pair()
    for method in ("dflash", "ddtree", "marginal"):
        run = generate(pair, settings=Settings(method=method, max_new_tokens=4), prompt_ids=[4, 8])
        assert run.header["drafter_label"] == "Domino base logits"
    assert (
        generate(pair, settings=Settings(max_new_tokens=4), prompt_ids=[4]).header["drafter_label"]
        == "tiny drafter"
    )


def test_a_missing_head_is_named(tmp_path: Path, byte_tokenizer) -> None:
    plain = drafter_folder(tmp_path / "f", dflash={"projector_type": None, "shift_label": None})
    pair = load_pair(target=target_folder(tmp_path / "t"), drafter=plain)
    assert pair.dflash is not None and pair.dflash.levels == 7
    with pytest.raises(PairError, match="dominotree.*only a DFlash drafter"):
        generate(pair, settings=Settings(max_new_tokens=4), prompt_ids=[4])
    both = load_pair(
        target=tmp_path / "t",
        drafter=drafter_folder(tmp_path / "d", dflash={"target_layer_ids": [3, 1]}),
        dflash=plain,
    )
    assert both.target.feature_layers == (0, 1, 2, 3)
    outputs = {
        m: generate(both, settings=Settings(method=m, max_new_tokens=12), prompt_ids=[4, 8])
        for m in ("ar", "ddtree", "dominotree")
    }
    assert len({tuple(t.summary["token_ids"]) for t in outputs.values()}) == 1
    assert outputs["ddtree"].header["drafter_label"] == "f"


def test_L21_generation_defaults_of_the_checkpoint_reach_no_method(tmp_path: Path, byte_tokenizer) -> None:
    folder = target_folder(tmp_path / "t")
    (folder / "generation_config.json").write_text(
        json.dumps({"repetition_penalty": 1.1, "top_k": 20, "do_sample": True})
    )
    pair = load_pair(target=folder, drafter=drafter_folder(tmp_path / "d"))
    runs = [
        generate(pair, settings=Settings(method=m, max_new_tokens=12), prompt_ids=[4, 8])
        for m in ("ar", "dominotree")
    ]
    assert runs[0].summary["token_ids"] == runs[1].summary["token_ids"]
    assert runs[0].header["settings"]["temperature"] == runs[1].header["settings"]["temperature"] == 0.0


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_S09_no_foreign_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentinel = tmp_path / "ran"
    folder = target_folder(tmp_path / "t")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(sentinel)))
    with pytest.raises(PairError, match="safetensors"):
        load_target(folder, [], CPU, torch.float32)
    coded = target_folder(tmp_path / "c", auto_map={"AutoModel": "evil.Model"})
    with pytest.raises(PairError, match="auto_map"):
        load_target(coded, [], CPU, torch.float32)
    for bad in ("../../p", "x/../y", "x", "a/b/c", "/no/such/folder", "x /y"):
        with pytest.raises(PairError, match="hub id"):
            resolve(bad)
    with pytest.raises(PairError, match="not on this machine"):
        resolve("x/y")  # well-formed, but there is no hub here
    assert not sentinel.exists()


@pytest.mark.parametrize(
    ("kwargs", "word"),
    [({"name": "llama"}, "llama"), ({"dtype": "float16"}, "float16"), ({"device": "cuda:0"}, "GPU"),
     ({"target": "no-such-folder"}, "no-such-folder")],
)  # fmt: skip
def test_load_pair_names_what_is_wrong(kwargs: dict, word: str) -> None:
    if kwargs.get("device") and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(PairError, match=word):
        load_pair(**kwargs)


def test_damaged_folders_are_named(tmp_path: Path) -> None:
    folder = target_folder(tmp_path / "t")
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:100])
    with pytest.raises(PairError, match=r"model\.safetensors cannot be read"):
        load_target(folder, [], CPU, torch.float32)
    (folder / "config.json").write_text("{")
    with pytest.raises(PairError, match="not valid JSON"):
        load_target(folder, [], CPU, torch.float32)
    (folder / "config.json").unlink()
    with pytest.raises(PairError, match=r"no config\.json"):
        load_target(folder, [], CPU, torch.float32)
    wrong = target_folder(tmp_path / "w")
    (wrong / "config.json").write_text(json.dumps({**TINY, "vocab_size": 60}))
    with pytest.raises(PairError, match=r"\(64, 32\).*\(60, 32\)"):
        load_target(wrong, [], CPU, torch.float32)
    shards = target_folder(tmp_path / "s")
    (shards / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "part-2.safetensors"}})
    )
    with pytest.raises(PairError, match=r"part-2\.safetensors"):
        load_target(shards, [], CPU, torch.float32)


def test_bfloat16_runs_on_the_cpu_and_lists_near_ties(tmp_path: Path, byte_tokenizer) -> None:
    pair = load_both(tmp_path, dtype="bfloat16")
    run = generate(pair, settings=Settings(max_new_tokens=16), prompt_ids=[4, 8])
    assert len(run.summary["token_ids"]) == 16 and pair.target.dtype == torch.bfloat16
    assert isinstance(run.summary["near_ties"], list)


def test_a_drafter_beside_a_pair_name_is_used_or_refused(
    tmp_path: Path, byte_tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    found = SimpleNamespace(
        target_dir=target_folder(tmp_path / "t"), drafter_dir=drafter_folder(tmp_path / "d"), dflash_dir=None
    )
    monkeypatch.setattr("dominotree.default_pair.ensure", lambda progress: found)
    assert load_pair("default").info["drafter"] == "d"
    assert load_pair("default", drafter=drafter_folder(tmp_path / "own", seed=9)).info["drafter"] == "own"
    with pytest.raises(PairError, match="no-such"):
        load_pair("default", drafter="no-such")


@pytest.mark.parametrize(
    "change", [{"num_attention_heads": 8}, {"num_key_value_heads": 4}, {"intermediate_size": 100}]
)
def test_target_tensors_of_another_shape_are_named(tmp_path: Path, change: dict) -> None:
    folder = target_folder(tmp_path / "t")
    (folder / "config.json").write_text(json.dumps({**TINY, **change}))
    with pytest.raises(PairError, match="has shape"):
        load_target(folder, [], CPU, torch.float32)


@pytest.mark.parametrize("content", ["{", "{}", "[]"])
def test_a_damaged_index_is_named(tmp_path: Path, content: str) -> None:
    folder = target_folder(tmp_path / "t")
    (folder / "model.safetensors.index.json").write_text(content)
    with pytest.raises(PairError, match=r"index\.json is damaged"):
        load_target(folder, [], CPU, torch.float32)


def test_a_wrong_wish_is_a_bad_argument() -> None:
    from dominotree.errors import SettingsError

    for kwargs in (
        {"name": "foo"},
        {"dtype": "int8"},
        {"device": "meta"},
        {"device": "foo"},
        {"target": "../x"},
        {"target": ""},
    ):
        with pytest.raises(SettingsError):
            load_pair(**kwargs)
