"""The prompt set: generate, de-duplicate, keep clear of the evaluation prompts, tokenise, split, save.

A prompt set is one ``.npz``: ``ids`` uint16 [n] (chat template applied, all prompts behind each other), ``offsets`` int64
[P + 1], ``kind`` uint8 [P] (index into ``KINDS``), ``split`` uint8 [P] (0 train, 1 dev) and ``report`` (JSON text).
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from dominotree.train import prompts as P

KINDS = ("math", "code", "chat")
#: A prompt is too close to an evaluation prompt when they share this many words in a row, or this share of all words.
NGRAM, SHARED_WORDS = 8, 0.75


@dataclass
class PromptSettings:
    """How many prompts of each kind, and where optional sources are."""

    math: int = 105_000
    reasoning_gym_per_task: int = 1_100
    code: int = 130_000
    chat: int = 235_000
    dev_per_kind: int = 32
    max_tokens: int = 224
    seed: int = 0
    wordnet: str | None = None


@dataclass
class PromptSet:
    """Tokenised prompts. ``prompt(i)`` gives uint16 ids."""

    ids: np.ndarray
    offsets: np.ndarray
    kind: np.ndarray
    split: np.ndarray
    report: dict = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.kind)

    def prompt(self, index: int) -> np.ndarray:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def save(self, path: Path) -> None:
        np.savez_compressed(
            path,
            ids=self.ids,
            offsets=self.offsets,
            kind=self.kind,
            split=self.split,
            report=json.dumps(self.report),
        )

    @classmethod
    def load(cls, path: Path) -> PromptSet:
        with np.load(path) as z:
            return cls(z["ids"], z["offsets"], z["kind"], z["split"], json.loads(str(z["report"])))


def words(text: str) -> list[str]:
    """Lower-case words and numbers; punctuation and layout do not make two texts different."""
    return re.findall(r"[a-z]+|\d+", text.lower())


class OverlapCheck:
    """Finds prompts that repeat an evaluation prompt: an n-gram of ``NGRAM`` words, or most of its words.

    The second rule is the Jaccard overlap of the word sets, at least ``SHARED_WORDS``. Numbers count as words.
    """

    def __init__(self, evaluation: Sequence[str]) -> None:
        self.sets = [frozenset(words(t)) for t in evaluation]
        self.grams: dict[tuple[str, ...], int] = {}
        self.by_word: dict[str, list[int]] = defaultdict(list)
        self.rejected: Counter[str] = Counter()
        for number, text in enumerate(evaluation):
            w = words(text)
            for i in range(max(len(w) - NGRAM + 1, 1)):
                self.grams[tuple(w[i : i + NGRAM])] = number
            for word in self.sets[number]:
                self.by_word[word].append(number)
        self.lengths = sorted({len(gram) for gram in self.grams})  # shorter ones are whole prompts

    def hit(self, text: str) -> int | None:
        """Number of the evaluation prompt that ``text`` is too close to, or None."""
        w = words(text)
        for length in self.lengths:
            for i in range(len(w) - length + 1):
                found = self.grams.get(tuple(w[i : i + length]))
                if found is not None:
                    self.rejected["n-gram"] += 1
                    return found
        mine = frozenset(w)
        shared: Counter[int] = Counter()
        for word in mine:
            for number in self.by_word.get(word, ()):
                shared[number] += 1
        for number, count in shared.items():
            if count / len(mine | self.sets[number]) >= SHARED_WORDS:
                self.rejected["words"] += 1
                return number
        return None


#: Openings that many prompts share by nature; their n-grams say nothing about a copy.
COMMON_OPENINGS = ("Complete the following Python function:\n\n```python\nfrom typing import List\n\n\n", "Complete the following Python function:\n\n```python\n",
                   "Translate the following sentence into French: ")  # fmt: skip


def without_opening(text: str) -> str:
    for opening in COMMON_OPENINGS:
        if text.startswith(opening):
            return text[len(opening) :]
    return text


def take(
    source: Iterator[str], count: int | None, seen: set[str], check: OverlapCheck, r: random.Random
) -> list[str]:
    """Up to ``count`` prompts that are new (case and spaces apart) and clear of the evaluation prompts."""
    kept: list[str] = []
    tries = 0
    for text in source:
        tries += 1
        if count is not None and tries > 6 * count + 1000:
            break  # the templates are exhausted
        text = P.vary(r, text.strip())
        key = re.sub(r"\s+", " ", text.lower()).strip(" .?")
        if key in seen:
            continue
        seen.add(key)
        if check.hit(without_opening(text)) is not None:
            continue
        kept.append(text)
        if count is not None and len(kept) >= count:
            break
    return kept


def make_prompts(settings: PromptSettings, evaluation: Sequence[str]) -> tuple[list[tuple[str, str]], dict]:
    """(kind, prompt) in random order, and a report of sources and of what the overlap check removed."""
    r = random.Random(settings.seed)
    check = OverlapCheck([without_opening(t) for t in evaluation])
    seen: set[str] = set()
    wordnet_words, sentences = P.read_wordnet(Path(settings.wordnet)) if settings.wordnet else ([], [])
    r.shuffle(sentences)
    sentences = sentences[:20_000] + P.builtin_sentences(r)
    docstrings = P.docstring_functions(P.DOCSTRING_PACKAGES)
    made: list[tuple[str, str]] = []
    for kind, part in (
        ("math", take(P.reasoning_gym_prompts(r, settings.reasoning_gym_per_task), None, seen, check, r)),
        ("math", take(P.math_prompts(r), settings.math, seen, check, r)),
        ("code", take(P.code_prompts(r, docstrings), settings.code, seen, check, r)),
        ("chat", take(P.chat_prompts(r, wordnet_words, sentences), settings.chat, seen, check, r)),
    ):
        made += [(kind, text) for text in part]
    r.shuffle(made)
    counts = Counter(kind for kind, _ in made)
    report = {
        "settings": asdict(settings) | {"wordnet": bool(settings.wordnet)}, "prompts": dict(counts), "docstrings": len(docstrings),
        "wordnet_words": len(wordnet_words), "sentences": len(sentences), "evaluation_prompts": len(evaluation),
        "overlap_rule": {"ngram": NGRAM, "shared_words": SHARED_WORDS}, "rejected_as_too_close": dict(check.rejected),
    }  # fmt: skip
    return made, report


def tokenise(
    made: Iterable[tuple[str, str]], tokenizer: object, settings: PromptSettings, report: dict
) -> PromptSet:
    """Apply the chat template; prompts over ``max_tokens`` are dropped. The first ``dev_per_kind`` of a kind are dev."""
    rows, kinds, split = [], [], []
    dev: Counter[str] = Counter()
    dropped = 0
    for kind, text in made:
        ids = tokenizer.encode_chat(text)  # type: ignore[attr-defined]
        if len(ids) > settings.max_tokens:
            dropped += 1
            continue
        rows.append(np.asarray(ids, dtype=np.uint16))
        kinds.append(KINDS.index(kind))
        split.append(int(dev[kind] < settings.dev_per_kind))
        dev[kind] += 1
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    ids = np.concatenate(rows)
    report = report | {
        "too_long": dropped,
        "kept": len(rows),
        "tokens": len(ids),
        "sha256": hashlib.sha256(ids.tobytes()).hexdigest(),
    }
    return PromptSet(ids, offsets, np.asarray(kinds, np.uint8), np.asarray(split, np.uint8), report)


def read_evaluation(path: Path) -> list[dict]:
    """Lines {"kind", "prompt"} of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
