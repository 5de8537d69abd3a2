"""Text to token ids and back, exactly: chat prompts, end ids, and the very bytes of every single token."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from dominotree.errors import PairError, PromptError

#: The two ways in which the tokens of a vocabulary spell bytes.
BYTE_LEVEL = "byte-level"  # GPT-2: each character stands for one byte
SENTENCEPIECE = "sentencepiece"  # "▁" is a space, "<0x0A>" is one byte, the rest is text


def _byte_of_character() -> dict[str, int]:
    """GPT-2's table: printable Latin-1 characters stand for themselves, the others for U+0100 onwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(hidden)}


BYTE_OF_CHARACTER = _byte_of_character()


class Tokenizer:
    """A Hugging Face tokenizer seen by the engine.

    Text is always the bytes of its tokens joined and read as UTF-8, with "�" for what is not UTF-8, so plain
    and speculative runs of equal ids show equal text, special markers included.

    Args:
        hf: the tokenizer that splits and numbers.
        stop_ids: end ids beside those that ``hf`` itself names (usually from ``generation_config.json``).

    Attributes:
        stop_ids: every id that ends the output.

    Raises:
        PairError: the vocabulary is neither byte-level nor sentencepiece-style.
    """

    def __init__(self, hf: PreTrainedTokenizerBase, stop_ids: Iterable[int] = ()) -> None:
        self.hf = hf
        self.kind = _kind(hf)
        self._added = {i: token.content for i, token in hf.added_tokens_decoder.items()}
        self._bytes: dict[int, bytes] = {}
        own = {hf.eos_token_id, _chat_end_id(hf)} - {None}
        self.stop_ids: frozenset[int] = frozenset(int(i) for i in (*stop_ids, *own))  # type: ignore[arg-type]

    @classmethod
    def from_folder(cls, path: str | Path) -> Tokenizer:
        """The tokenizer of a checkpoint folder.

        Raises:
            PairError: no folder, no tokenizer in it, or a tokenizer that would need foreign code.
        """
        if not Path(path).is_dir():
            raise PairError(
                f"The tokenizer folder {path} does not exist: give the folder of a target checkpoint."
            )
        return cls.from_pretrained(str(path))

    @classmethod
    def from_pretrained(cls, name: str) -> Tokenizer:
        """The tokenizer of a checkpoint folder or hub id. Code that comes with a checkpoint is never run.

        Raises:
            PairError: nothing there that can be loaded.
        """
        try:
            hf = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
            end_ids = _configured_end_ids(name)
        except (OSError, ValueError, KeyError, ImportError, AttributeError, TypeError) as error:
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            raise PairError(
                f"The tokenizer of {name} cannot be loaded ({reason}): give a folder with tokenizer.json "
                "or the id of a model on the hub."
            ) from error
        return cls(hf, end_ids)

    def __len__(self) -> int:
        """Number of ids that have a token; a model's padded vocabulary can be larger."""
        return len(self.hf)

    def encode(self, text: str) -> list[int]:
        """Ids of ``text``, nothing added; markers written in it, such as ``<|im_end|>``, become their ids."""
        return [int(i) for i in self.hf.encode(text, add_special_tokens=False, verbose=False)]

    def encode_chat(self, prompt: str, system: str | None = None) -> list[int]:
        """Ids of one user message in the chat template, up to where the answer starts, thinking off.

        The template alone decides about a start token, so there is one at most. A model without a template
        gets the plain text as its own tokenizer starts it.

        Raises:
            PromptError: the template refuses the messages (some have no system role).
        """
        if self.hf.chat_template is None:
            return [int(i) for i in self.hf.encode(f"{system}\n\n{prompt}" if system else prompt)]
        messages = [{"role": "user", "content": prompt}]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        try:
            text = _render(self.hf, messages, add_generation_prompt=True)
        except jinja2.TemplateError as error:
            roles = " and ".join(message["role"] for message in messages)
            raise PromptError(
                f"The chat template refuses the roles {roles} ({error}): leave the system text out."
            ) from error
        return self.encode(text)

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of one token; added tokens give their literal text, ids without a token ``b""``.

        Raises:
            ValueError: a negative id.
        """
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._spell(token_id)
        return known

    def _spell(self, token_id: int) -> bytes:
        if token_id < 0:
            raise ValueError(f"token id {token_id} is negative")
        if token_id in self._added:
            return self._added[token_id].encode()
        token = self.hf.convert_ids_to_tokens(token_id) if token_id < len(self.hf) else None
        if not isinstance(token, str):
            return b""
        if self.kind == BYTE_LEVEL:
            if all(c in BYTE_OF_CHARACTER for c in token):
                return bytes(BYTE_OF_CHARACTER[c] for c in token)
            return token.encode()
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes([int(token[3:5], 16)])
        return token.replace("▁", " ").encode()

    def bytes_of(self, ids: Iterable[int]) -> bytes:
        """The bytes of several tokens, joined."""
        return b"".join(self.token_bytes(i) for i in ids)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ``ids``, special markers kept, "�" for bytes that are not UTF-8."""
        return self.bytes_of(ids).decode("utf-8", "replace")


class StreamDecoder:
    """Text of a growing output, piece by piece, never half a character.

    The pieces and the final :meth:`flush` joined are ``tokenizer.decode`` of the output. Where the prompt
    ends within a character, the first piece begins with that character ("�" if the output does not complete
    it); no other prompt text is repeated.

        >>> stream = StreamDecoder(tokenizer, prompt_ids)
        >>> for round in run: print(stream.feed(round.committed), end="")
        >>> print(stream.flush())
    """

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int] = ()) -> None:
        self.tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        tail = b""
        for token_id in reversed(prompt_ids):  # half a character is three bytes at most
            if len(tail) >= 3:
                break
            tail = tokenizer.token_bytes(token_id) + tail
        self._decoder.decode(tail)

    def feed(self, ids: Iterable[int]) -> str:
        """The characters that ``ids`` complete; the bytes of an unfinished one wait."""
        return self._decoder.decode(self.tokenizer.bytes_of(ids))

    def flush(self) -> str:
        """What still waits when the output ends: "�" for an unfinished character, else nothing."""
        return self._decoder.decode(b"", final=True)


def _kind(hf: PreTrainedTokenizerBase) -> str:
    backend = getattr(hf, "backend_tokenizer", None)
    decoder = backend.decoder.__getstate__().decode() if backend is not None and backend.decoder else ""
    if '"ByteLevel"' in decoder:
        return BYTE_LEVEL
    if '"Metaspace"' in decoder or '"ByteFallback"' in decoder or hasattr(hf, "sp_model"):
        return SENTENCEPIECE
    raise PairError(
        f"The tokenizer {type(hf).__name__} of {hf.name_or_path or 'the target'} is neither byte-level BPE "
        "nor sentencepiece-style, so its tokens have no exact bytes: choose another target."
    )


def _render(hf: PreTrainedTokenizerBase, messages: list[dict[str, str]], add_generation_prompt: bool) -> str:
    text: Any = hf.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=add_generation_prompt, enable_thinking=False
    )
    return str(text)


def _chat_end_id(hf: PreTrainedTokenizerBase) -> int | None:
    """The added token that the chat template puts right after an assistant message, if any."""
    if hf.chat_template is None:
        return None
    answer = "an answer"
    try:
        text = _render(
            hf, [{"role": "user", "content": "x"}, {"role": "assistant", "content": answer}], False
        )
    except jinja2.TemplateError:
        return None  # such a template takes no answers, so it marks no end of one
    after = hf.encode(text.rpartition(answer)[2], add_special_tokens=False)
    return after[0] if after and after[0] in hf.added_tokens_decoder else None


def _configured_end_ids(name: str) -> list[int]:
    """``eos_token_id`` of generation_config.json and of config.json, one id or a list each."""
    from transformers.utils import cached_file

    ids: list[int] = []
    for file in ("generation_config.json", "config.json"):
        path = cached_file(
            name,
            file,
            _raise_exceptions_for_gated_repo=False,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
        if path is None:
            continue
        config = json.loads(Path(path).read_text("utf-8"))
        found = config.get("eos_token_id")
        ids += found if isinstance(found, list) else [] if found is None else [found]
    return ids
