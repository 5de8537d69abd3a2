"""Tokens as people and tables see them: a visible label, a lossless JSON string, hex."""

from __future__ import annotations

import json
from unicodedata import category

_VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}
#: Characters that show nothing although their category is a letter, mark or symbol (joiners, fillers,
#: variation selectors, the blank braille cell), and the signs that the visible form itself uses.
_ALSO_SPELLED_OUT = frozenset(
    (
        *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, 0x3164, 0xFFA0),
        *(*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), *map(ord, "␣⏎⇥␍⟨⟩")),
    )
)


def token_text(data: bytes) -> str:
    """A token as a label: nothing invisible, nothing that two different tokens could share.

    Space ␣, newline ⏎, tab ⇥, carriage return ␍. Control, zero-width, bidi, private-use and unassigned
    characters, other spaces, a combining mark with nothing to sit on, and the signs used here are spelled out
    as ⟨U+200B⟩. Bytes that form no character (a token may be half of one) are shown as ⟨F0 9F⟩. Not escaped
    for HTML.
    """
    shown: list[str] = []
    stray: list[str] = []
    for char in data.decode("utf-8", "surrogateescape"):
        code = ord(char)
        if 0xDC80 <= code <= 0xDCFF:  # surrogateescape's stand-in for one byte
            stray.append(f"{code - 0xDC00:02X}")
            continue
        if stray:
            shown.append(f"⟨{' '.join(stray)}⟩")
            stray = []
        kind = category(char)
        if char in _VISIBLE:
            shown.append(_VISIBLE[char])
        elif kind[0] in "CZ" or code in _ALSO_SPELLED_OUT or (not shown and kind in ("Mn", "Me")):
            shown.append(f"⟨U+{code:04X}⟩")
        else:
            shown.append(char)
    if stray:
        shown.append(f"⟨{' '.join(stray)}⟩")
    return "".join(shown)


def token_escaped(data: bytes) -> str:
    """Any bytes as a JSON string in ASCII, its quotes included. Lossless: ``token_unescaped`` reads it back.

    UTF-8 is decoded; a byte XY that is part of no character becomes the lone surrogate ``\\udcXY`` (Python's
    surrogateescape), so ``json.loads(cell).encode("utf-8", "surrogateescape")`` gives the bytes back.
    """
    return json.dumps(data.decode("utf-8", "surrogateescape"))


def token_unescaped(cell: str) -> bytes:
    """The bytes that ``token_escaped`` wrote. Raises ValueError for anything else."""
    return json.loads(cell).encode("utf-8", "surrogateescape")


def token_hex(data: bytes) -> str:
    """Bytes as ``x`` and lower-case hex digits; the ``x`` keeps readers from taking 1e05 for a number."""
    return "x" + data.hex()
