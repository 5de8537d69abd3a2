"""Settings from YAML files: the keys are the fields of the dataclasses, nothing else is accepted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import yaml

CONFIGS = Path(__file__).resolve().parent / "configs"
T = TypeVar("T")


def build(kind: type[T], values: Mapping[str, Any]) -> T:
    """An instance of the dataclass ``kind``; nested mappings fill nested dataclasses. ValueError names an unknown key."""
    known = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ValueError(f"{kind.__name__} has no setting {', '.join(unknown)}; it has {', '.join(known)}")
    hints = get_type_hints(kind)
    ready: dict[str, Any] = {}
    for name, value in values.items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
            value = build(hint, value)  # type: ignore[arg-type]
        elif isinstance(value, list):
            value = tuple(value)
        elif hint is float and isinstance(value, (int, str)):
            value = float(value)  # YAML reads 1e-3 as text
        ready[name] = value
    return kind(**ready)


def load(kind: type[T], where: str | Path | None, overrides: Sequence[str] = ()) -> T:
    """Read a YAML file (a path, or the name of one in ``configs``) and apply ``key=value`` or ``shape.key=value``."""
    values: dict[str, Any] = {}
    if where is not None:
        path = Path(where)
        if not path.is_file():
            path = CONFIGS / f"{where}.yaml"
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    for item in overrides:
        key, _, text = item.partition("=")
        place = values
        *parents, last = key.split(".")
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = yaml.safe_load(text)
    return build(kind, values)
