"""Find, check and load a pair: a target with its drafters. Nothing is converted by hand, no foreign code runs."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from dominotree.calibration import Calibration
from dominotree.cost import CostModel
from dominotree.drafter import Drafter, DrafterConfig
from dominotree.errors import PairChoiceError, PairError
from dominotree.methods import Method
from dominotree.model import ModelConfig
from dominotree.target import Target
from dominotree.tokenizer import Tokenizer

#: Released pairs by name: target, Domino drafter, DFlash drafter.
NAMED_PAIRS: dict[str, tuple[str, str, str | None]] = {
    "qwen3-4b": ("Qwen/Qwen3-4B", "Huang2020/Qwen3-4B-Domino-b16", "z-lab/Qwen3-4B-DFlash-b16"),
    "qwen3-8b": ("Qwen/Qwen3-8B", "Huang2020/Qwen3-8B-Domino-b16", "z-lab/Qwen3-8B-DFlash-b16"),
}
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.jinja", "tokenizer.model"]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BASE_LOGITS = "Domino base logits"


@dataclass
class Pair:
    """A target with its drafters, ready to run. ``lock`` lets one run at a time use the engine."""

    target: Target
    tokenizer: Tokenizer
    domino: Drafter | None
    dflash: Drafter | None
    info: dict[str, Any] = field(default_factory=dict)
    ar_tokens_per_second: float | None = None
    costs: CostModel | None = None  # for cost-aware methods, instead of the stored profile
    calibration: Calibration | None = None  # for the calibrated one, instead of the stored map
    engines: dict[str, Any] = field(
        default_factory=dict
    )  # captured engines, made at first use (gpu/rounds.py)
    lock: threading.Lock = field(default_factory=threading.Lock)
    holder: int | None = None  # thread whose run holds the lock

    def drafter_for(self, method: Method) -> tuple[Drafter | None, str | None]:
        """The drafter that a method runs on and, where it is not its own kind, the label that says so.

        A plain DFlash method without a DFlash drafter runs on the Domino drafter's base logits: its label shift is
        honoured, its head ignored (faults E29, L23). Raises PairError when a method needs a head that is missing.
        """
        if method.drafter is None:
            return None, None
        if method.drafter == "dflash":
            if self.dflash is not None:
                return self.dflash, self.dflash.name
            if self.domino is not None:
                return self.domino, BASE_LOGITS
        if self.domino is None:
            raise PairError(
                f"method {method.name!r} needs a Domino drafter, but this pair has "
                f"{'only a DFlash drafter' if self.dflash else 'no drafter'}; choose ddtree, dflash or ar."
            )
        return self.domino, BASE_LOGITS if method.scorer == "marginal" else self.domino.name


def load_pair(
    name: str = "default",
    *,
    target: str | Path | None = None,
    drafter: str | Path | None = None,
    dflash: str | Path | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    progress: bool = True,
) -> Pair:
    """Load a pair by name, or from a target and its drafters, each a local folder or a hub id.

    A drafter given beside a name takes the place of the named pair's own.

    Raises PairError: an unknown name, a missing file, a checkpoint that does not fit, no GPU for ``device``.
    """
    if dtype not in DTYPES:
        raise PairChoiceError(f"dtype {dtype!r} is not supported; choose {' or '.join(DTYPES)}.")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise PairChoiceError(f"device {device!r} is not supported; choose cpu or cuda.")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise PairChoiceError(
            f"device {device!r} was asked for, but torch {torch.__version__} sees no GPU; use device 'cpu'."
        )
    if target is None and name == "default":
        from dominotree.default_pair import ensure

        found = ensure(progress=progress)
        target, drafter, dflash = found.target_dir, drafter or found.drafter_dir, dflash or found.dflash_dir
    elif target is None:
        if name not in NAMED_PAIRS:
            raise PairChoiceError(
                f"unknown pair {name!r}; choose default, {', '.join(NAMED_PAIRS)}, or name a target and its drafter."
            )
        base, domino_name, dflash_name = NAMED_PAIRS[name]
        target, drafter, dflash = base, drafter or domino_name, dflash or dflash_name
    else:
        name = f"{Path(target).name} pair"
    folder = resolve(target)
    drafter_folders = [resolve(d) for d in (drafter, dflash) if d is not None]
    configs = [DrafterConfig.from_dict(read_config(f), f.name) for f in drafter_folders]
    layers = sorted({i for c in configs for i in c.target_layer_ids})
    loaded = load_target(folder, layers, torch.device(device), DTYPES[dtype])
    drafters = [load_drafter(f, c, loaded) for f, c in zip(drafter_folders, configs, strict=True)]
    loaded.probe_tree_mask()
    domino = next((d for d in drafters if d.config.kind == "domino"), None)
    plain = next((d for d in drafters if d.config.kind == "dflash"), None)
    info = {
        "name": name, "target": loaded.name, "drafter": domino.name if domino else None,
        "dflash": plain.name if plain else None, "drafter_kind": "domino" if domino else "dflash" if plain else None,
        "device": device, "dtype": dtype, "threads": torch.get_num_threads(), "vocab_size": loaded.vocab_size,
        "hidden_size": loaded.config.hidden_size, "num_layers": loaded.config.num_layers,
        "block_size": (domino or plain).config.block_size if domino or plain else None,  # type: ignore[union-attr]
        "levels": (domino or plain).levels if domino or plain else None,  # type: ignore[union-attr]
    }  # fmt: skip
    return Pair(loaded, Tokenizer.from_folder(folder), domino, plain, info)


def resolve(where: str | Path) -> Path:
    """A local folder as it is, or a hub id fetched as safetensors and JSON only (fault S09)."""
    path = Path(where).expanduser()
    if str(where) and path.is_dir():
        return path
    text = str(where)
    if not HUB_ID.fullmatch(text) or ".." in text:
        raise PairChoiceError(f"{text!r} is neither a folder nor a hub id of the form owner/name.")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(text, allow_patterns=HUB_FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise PairError(
            f"{text!r} is not on this machine and could not be fetched from the hub ({type(error).__name__}: "
            f"{reason[:160]}); connect to the network once, or give a local folder."
        ) from error


def read_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of a checkpoint folder."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise PairError(
            f"{folder.name}: there is no config.json in this folder, so it is not a checkpoint."
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise PairError(f"{folder.name}: config.json is not valid JSON ({error}); fetch it again.") from error
    if not isinstance(config, dict):
        raise PairError(f"{folder.name}: config.json does not hold an object; fetch it again.")
    return config


def read_tensors(folder: Path, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
    """Every tensor of a folder's safetensors files, cast to ``dtype``. Pickled weights are never opened."""
    files = sorted(folder.glob("*.safetensors"))
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            wanted = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PairError(f"{folder.name}/{index.name} is damaged ({error!r}); fetch it again.") from error
        missing = sorted(name for name in wanted if not (folder / name).is_file())
        if missing:
            raise PairError(
                f"{folder.name}: the index names {', '.join(missing)}, which is missing; fetch it again."
            )
        files = sorted(folder / name for name in wanted)
    if not files:
        raise PairError(
            f"{folder.name}: no .safetensors file here; other weight formats can run code and are not opened."
        )
    tensors: dict[str, Tensor] = {}
    for path in files:
        try:
            with safe_open(path, framework="pt", device=str(device)) as handle:
                for key in handle.keys():  # noqa: SIM118 (not a dict)
                    tensors[key] = handle.get_tensor(key).to(dtype)
        except (SafetensorError, OSError) as error:
            raise PairError(f"{folder.name}/{path.name} cannot be read ({error}); fetch it again.") from error
    return tensors


def check_tensors(found: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]], what: str) -> None:
    """Raise PairError for missing, unexpected or misshapen tensors: nothing stays random or is dropped (fault L03)."""
    have, want = set(found), set(expected)
    missing, extra = sorted(want - have), sorted(have - want)
    if missing or extra:
        parts = [f"{label} {', '.join(names[:6])}{' …' if len(names) > 6 else ''}" for label, names in
                 (("missing", missing), ("not expected", extra)) if names]  # fmt: skip
        raise PairError(f"{what}: the weights do not fit the config: {'; '.join(parts)}.")
    for key, shape in expected.items():
        if tuple(found[key].shape) != shape:
            raise PairError(
                f"{what}: {key} has shape {tuple(found[key].shape)}, config.json asks for {shape}."
            )


def load_target(folder: Path, feature_layers: list[int], device: torch.device, dtype: torch.dtype) -> Target:
    """A Llama or Qwen3 checkpoint folder as a Target."""
    raw = read_config(folder)
    if raw.get("auto_map"):
        raise PairError(
            f"{folder.name}: config.json names code to run (auto_map), which is never executed here."
        )
    config = ModelConfig.from_dict(raw, folder.name)
    tensors = read_tensors(folder, device, dtype)
    ignorable = {k for k in tensors if k.endswith("rotary_emb.inv_freq")}
    if config.tie_word_embeddings:
        ignorable.add(
            "lm_head.weight"
        )  # tied: the embedding is the head, whatever else the file repeats (L09)
    tensors = {k: v for k, v in tensors.items() if k not in ignorable}
    check_tensors(tensors, Target.weight_shapes(config), folder.name)
    return Target(config, tensors, feature_layers, raw.get("_name_or_path") or folder.name)


def load_drafter(folder: Path, config: DrafterConfig, target: Target) -> Drafter:
    """A DFlash or Domino checkpoint folder as a Drafter for ``target``."""
    Drafter.check(config, target, folder.name)
    tensors = read_tensors(folder, target.device, target.dtype)
    shapes = Drafter.weight_shapes(config)
    check_tensors(tensors, shapes, folder.name)
    return Drafter(config, tensors, target, folder.name)
