"""A trained drafter in the released layout: ``config.json``, ``model.safetensors`` and a model card."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file, save_file

from dominotree.train.drafter import DrafterShape, TrainDrafter


def save_released(
    model: TrainDrafter,
    folder: Path,
    num_target_layers: int,
    max_positions: int,
    dtype: torch.dtype = torch.bfloat16,
) -> None:
    """Write ``config.json`` and ``model.safetensors`` (``dtype``; feature scale folded into ``fc``)."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(model.released_tensors(dtype), folder / "model.safetensors", metadata={"format": "pt"})
    config = model.shape.released_config(num_target_layers, max_positions)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def load_released(folder: Path, device: torch.device) -> TrainDrafter:
    """A drafter folder as a ``TrainDrafter`` in float32, for evaluation or further training."""
    model = TrainDrafter(
        DrafterShape.from_released(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    )
    model.load_released(load_file(folder / "model.safetensors"))
    return model.to(device)


def versions() -> dict[str, str]:
    """Exact versions of what the recipe ran on."""
    found = {}
    for name in ("torch", "triton", "transformers", "safetensors", "numpy"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def model_card(
    title: str,
    kind: str,
    target: str,
    summary: dict[str, Any],
    table: dict[str, dict[str, float]],
    data: list[dict[str, Any]],
    settings: dict[str, Any],
) -> str:
    """The README.md of a drafter folder; every figure comes from the run's own records."""
    kinds = sorted({k for row in table.values() for k in row} - {"all"})
    lines = [
        "---", "license: apache-2.0", f"base_model: {target}", "tags: [speculative-decoding, dflash" + (", domino" if kind == "domino" else "") + "]", "---", "",
        f"# {title}", "",
        f"A {'Domino' if kind == 'domino' else 'plain DFlash'} drafter for {target}, block 16, "
        f"`shift_label` {'true' if settings['shape']['shift_label'] else 'false'}, made with `python -m dominotree.train` (docs/training.md).", "",
        "## Accepted length (τ, temperature 0, tokens per round, bonus included)", "",
        "Pooled per set, simulated along the target's own greedy texts (`assets/eval/eval_texts.json`, 128 tokens); `all` is the mean of the sets.", "",
        "| method | " + " | ".join(kinds) + " | all |", "|---|" + "---|" * (len(kinds) + 1),
    ]  # fmt: skip
    lines += [
        f"| {m} | " + " | ".join(f"{row[k]:.3f}" for k in kinds) + f" | {row['all']:.3f} |"
        for m, row in table.items()
    ]
    lines += [
        "", "## Training", "",
        f"- {summary['parameters']['total'] / 1e6:.1f} million parameters: "
        + ", ".join(f"{name} {size / 1e6:.2f}M" for name, size in summary["parameters"].items() if name != "total" and size > 10_000),
        f"- {summary['steps']:,} steps in {summary['seconds']:.0f} s: {summary['blocks']:,} blocks ({summary['blocks_per_second']:,} a second), {summary['epochs']} epochs",
        f"- {sum(d['sequences'] for d in data):,} answers of the target, {sum(d['kept_tokens'] for d in data):,} tokens, to prompts made from templates "
        f"(sha256 of the prompt ids {data[0]['prompts_sha256']}); none repeats an evaluation prompt",
        "- versions: " + ", ".join(f"{name} {version}" for name, version in versions().items()), "",
        "```yaml", yaml.safe_dump(json.loads(json.dumps(settings)), sort_keys=False).strip(), "```", "",
    ]  # fmt: skip
    return "\n".join(lines)
