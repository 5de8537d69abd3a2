"""Sentences with computed numbers: templates, their fields, tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

Fields = dict[str, Any]
Spans = list[list[str]]

_UNIT = re.compile(r"(?<=\d) (?=ms|%)")  # a unit stays with its number
_MARK = re.compile(r"\[([^\]]+)\]\((\w+)\)|\{(\w+)(?::([^{}]*))?\}")


class Token(str):
    """Text of one or more tokens, visible form: shown in a box."""


def probability(p: float) -> str:
    """A probability as the player writes it: "29 %", "0.30 %", "< 0.01 %"."""
    hundredths = 100 * p
    if 0 < hundredths < 0.01:
        return "<\u00a00.01\u00a0%"
    digits = 0 if hundredths >= 10 or hundredths == 0 else 1 if hundredths >= 1 else 2
    return f"{min(hundredths, 100):.{digits}f}\u00a0%"


def shown(value: Any, form: str = "") -> str:
    """A value as text. ``form``: "p" a probability, "#noun" a count, "+%" a change, else a Python format."""
    if form == "p":
        return probability(value)
    if form.startswith("#"):
        return f"{value} {form[1:]}{'' if value == 1 else 's'}"
    if form.endswith("%") and "." not in form:
        form = f"{form[:-1]}.0%"
    return format(value, form).replace("-", "−").replace("%", "\u00a0%") if form else str(value)


def spans(template: str, fields: Fields) -> Spans:
    """A template as spans: ["text", …], ["token", …] or ["term", text, glossary key].

    ``{name:form}`` is a field (see ``shown``), ``[word](key)`` a glossary term. Raises KeyError for an unknown
    field.
    """
    out: Spans = []

    def add(text: str) -> None:
        if out and out[-1][0] == "text":
            out[-1][1] += text
        elif text:
            out.append(["text", text])

    at = 0
    for mark in _MARK.finditer(template):
        add(template[at : mark.start()])
        at = mark.end()
        if mark[1]:
            out.append(["term", mark[1], mark[2]])
        elif isinstance(fields[mark[3]], Token):
            out.append(["token", str(fields[mark[3]])])
        else:
            add(shown(fields[mark[3]], mark[4] or ""))
    add(template[at:])
    for span in out:
        span[1] = _UNIT.sub("\u00a0", span[1])
    return out


def cell(value: Any, form: str = "") -> Spans:
    return [["token", str(value)]] if isinstance(value, Token) else [["text", shown(value, form)]]


def table(
    caption: str,
    head: Sequence[str],
    rows: Sequence[Sequence[Spans]],
    marked: Sequence[int] = (),
    words: Sequence[int] = (0,),
) -> Fields:
    """A small table; ``marked``: indices of the rows that the text speaks of, ``words``: of the columns of text."""
    return {
        "caption": caption,
        "head": list(head),
        "rows": list(rows),
        "marked": list(marked),
        "words": list(words),
    }
