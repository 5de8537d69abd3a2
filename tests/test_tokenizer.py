"""The tokenizer: ids against an independent byte-level BPE, exact bytes, chat prompts, end ids, streaming."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as FastTokenizer
from transformers import PreTrainedTokenizerFast

from dominotree.default_pair import ensure
from dominotree.errors import PairError, PromptError
from dominotree.tokenizer import StreamDecoder, Tokenizer

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)

L16_STRINGS = [
    "",
    " ",
    "Hello, world!",
    "1234",
    "In 2026 there were 1,234,567.89 of them",
    "a1b22c333",
    " 7 8  9",
    "x = 10**6 - 0x1F",
    "½ ² ٣٤ Ⅷ 四",
    "it's we'll I'D they've 'sup 'tis",
    "你好,世界。今天是星期三",
    "日本語のテキスト、カタカナ",
    "한국어 문장입니다",
    "🙂",
    "family 👨‍👩‍👧‍👦 and flag 🇨🇭!",
    "naïve café, coöperate, Straße",
    "e\u0301 (combining) and \u00a0 no-break\u2003em space",
    "line one\nline two\n\n\nline five\n",
    "tabs\tand  double   triple    spaces",
    "  leading and trailing  ",
    "\r\nwindows\r\nlines",
    "def f(x: int) -> str:\n    return f'{x!r}'  # noqa\n",
    "for(int i=0;i<10;++i){a[i]+=b[i]*2;}",
    '{"key": [1, 2.5e-3, null], "s": "\\u00e9\\n"}',
    "https://example.org/a_b?c=d&e=%20f#g",
    "<|im_start|>user\nHi<|im_end|>\n",
    "before<|endoftext|>after <empty_output> <|im_end|",
    "<|im_end|><|im_end|> <repo_name>x<file_sep>",
    "Привет, мир! Γειά σου · שלום · مرحبا",
    "∑ᵢ xᵢ² ≤ √(a²+b²) → ∞",
]


@pytest.fixture(scope="session")
def folder() -> Path:
    return ensure(progress=False).target_dir


@pytest.fixture(scope="session")
def tok(folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(folder)


class PlainBPE:
    """GPT-2's byte-pair encoding in its plainest form, digits alone, from a vocabulary and ranked merges."""

    gpt2 = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")

    def __init__(self, folder: Path) -> None:
        data = json.loads((folder / "tokenizer.json").read_text("utf-8"))
        self.vocab: dict[str, int] = data["model"]["vocab"]
        self.rank = {tuple(pair): i for i, pair in enumerate(data["model"]["merges"])}
        self.special: list[str] = [token["content"] for token in data["added_tokens"]]
        shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
        rest = iter(range(256, 512))
        self.char = {b: chr(b) if b in shown else chr(next(rest)) for b in range(256)}

    def ids(self, text: str) -> list[int]:
        out = []
        for part in regex.split("(" + "|".join(map(regex.escape, self.special)) + ")", text):
            if part in self.special:
                out.append(self.vocab[part])
                continue
            for stretch in regex.findall(r"\p{N}|\P{N}+", part):
                for word in self.gpt2.findall(stretch):
                    out += [self.vocab[p] for p in self.merge([self.char[b] for b in word.encode()])]
        return out

    def merge(self, parts: list[str]) -> list[str]:
        while True:
            ranked = [(self.rank[pair], i) for i, pair in enumerate(pairwise(parts)) if pair in self.rank]
            if not ranked:
                return parts
            _, i = min(ranked)
            parts = [*parts[:i], parts[i] + parts[i + 1], *parts[i + 2 :]]


@pytest.fixture(scope="session")
def plain(folder: Path) -> PlainBPE:
    return PlainBPE(folder)


def test_L16_there_are_thirty_strings() -> None:
    assert len(set(L16_STRINGS)) == 30


@pytest.mark.pair
@pytest.mark.parametrize("text", L16_STRINGS)
def test_L16_ids_equal_an_independent_bpe_and_come_back(tok: Tokenizer, plain: PlainBPE, text: str) -> None:
    ids = tok.encode(text)
    assert ids == plain.ids(text)
    assert tok.decode(ids) == text


@pytest.mark.pair
def test_L16_digits_are_split_singly(tok: Tokenizer) -> None:
    assert [tok.token_bytes(i) for i in tok.encode("1234")] == [b"1", b"2", b"3", b"4"]
    assert [tok.token_bytes(i) for i in tok.encode("a 12 b")] == [b"a", b" ", b"1", b"2", b" b"]


@pytest.mark.pair
def test_L16_chat_prompt_ids_of_an_independent_implementation(tok: Tokenizer) -> None:
    # Ids by an independent implementation, with the template's default system text.
    prompt = "A car uses 6 liters of fuel per 100 km. How much fuel does it need for a trip of 450 km?"
    user = [
        49,
        1076,
        2925,
        216,
        38,
        30380,
        282,
        3977,
        567,
        216,
        33,
        32,
        32,
        6381,
        30,
        1073,
        1083,
        3977,
        1072,
        357,
    ]
    user += [737, 327, 253, 7022, 282, 216, 36, 37, 32, 6381, 47]
    system = [
        1,
        9690,
        198,
        2683,
        359,
        253,
        5356,
        5646,
        11173,
        3365,
        3511,
        308,
        34519,
        28,
        7018,
        411,
        407,
        19712,
    ]
    system += [8182, 2, 198, 1, 4093, 198]
    assert tok.encode_chat(prompt) == [*system, *user, 2, 198, 1, 520, 9531, 198]


@pytest.mark.pair
def test_L16_both_end_ids(tok: Tokenizer) -> None:
    assert tok.stop_ids == {0, 2}
    assert (tok.decode([0]), tok.decode([2])) == ("<|endoftext|>", "<|im_end|>")


@pytest.mark.pair
def test_system_text_replaces_the_default(tok: Tokenizer) -> None:
    text = tok.decode(tok.encode_chat("Hi", system="Be brief."))
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.pair
def test_U31_text_of_any_ids_equals_the_library_decoder(tok: Tokenizer) -> None:
    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.integers(0, 49_151), max_size=30))
    def check(ids: list[int]) -> None:
        assert tok.decode(ids) == tok.hf.decode(ids, skip_special_tokens=False)

    check()
    assert tok.decode([1, 520, 9531, 198, 2]) == "<|im_start|>assistant\n<|im_end|>"


@pytest.mark.pair
def test_every_token_has_bytes_and_byte_tokens_are_exact(tok: Tokenizer, plain: PlainBPE) -> None:
    assert len(tok) == 49_152
    assert all(tok.token_bytes(i) for i in range(len(tok)))
    single = {b: plain.vocab[c] for b, c in plain.char.items() if c in plain.vocab}
    assert len(single) == 235
    assert all(tok.token_bytes(i) == bytes([b]) for b, i in single.items())


@pytest.mark.pair
def test_ids_without_a_token(tok: Tokenizer) -> None:
    assert tok.token_bytes(49_152) == b""
    with pytest.raises(ValueError, match="-1"):
        tok.token_bytes(-1)


# -- streaming -----------------------------------------------------------------------------------------------


def emoji_ids(tok: Tokenizer) -> list[int]:
    """🙂 as four single-byte tokens."""
    by_bytes = {tok.token_bytes(i): i for i in range(17, len(tok)) if len(tok.token_bytes(i)) == 1}
    return [by_bytes[bytes([b])] for b in "🙂".encode()]


@pytest.mark.pair
def test_U10_first_piece_holds_no_prompt_text(tok: Tokenizer) -> None:
    emoji = emoji_ids(tok)
    stream = StreamDecoder(tok, [*tok.encode("the prompt "), *emoji[:2]])
    assert stream.feed([emoji[2]]) == ""
    assert stream.feed([emoji[3], *tok.encode(" yes")]) == "🙂 yes"
    assert stream.flush() == ""


@pytest.mark.pair
def test_U10_a_complete_prompt_leaves_nothing_behind(tok: Tokenizer) -> None:
    stream = StreamDecoder(tok, tok.encode("ends with 🙂"))
    assert stream.feed(tok.encode("new")) == "new"


@pytest.mark.pair
def test_half_characters_wait(tok: Tokenizer) -> None:
    stream = StreamDecoder(tok)
    assert [stream.feed([i]) for i in emoji_ids(tok)] == ["", "", "", "🙂"]
    stream.feed(emoji_ids(tok)[:3])
    assert stream.flush() == "�"


@pytest.mark.pair
def test_U31_streamed_pieces_are_the_decoded_text(tok: Tokenizer) -> None:
    emoji = emoji_ids(tok)

    @settings(max_examples=200, deadline=None)
    @given(
        st.lists(st.lists(st.one_of(st.sampled_from(emoji), st.integers(0, 49_151)), max_size=5), max_size=8)
    )
    def check(rounds: list[list[int]]) -> None:
        stream = StreamDecoder(tok)
        text = "".join([*map(stream.feed, rounds), stream.flush()])
        assert text == tok.decode([i for ids in rounds for i in ids])

    check()


# -- any other tokenizer -------------------------------------------------------------------------------------


def byte_level(extra: list[AddedToken], post: bool = False) -> FastTokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    fast = FastTokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_tokens(extra)
    if post:
        fast.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", fast.token_to_id("<s>"))]
        )
    return fast


def save(fast: FastTokenizer, folder: Path, template: str | None, **names: str) -> Path:
    hf = PreTrainedTokenizerFast(tokenizer_object=fast, **names)
    hf.chat_template = template
    hf.save_pretrained(folder)
    return folder


def special(*texts: str) -> list[AddedToken]:
    return [AddedToken(text, special=True, normalized=False) for text in texts]


def test_L18_one_start_token(tmp_path: Path) -> None:
    template = "<s>{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    save(byte_level(special("<s>", "</s>"), post=True), tmp_path, template, bos_token="<s>", eos_token="</s>")
    tok = Tokenizer.from_folder(tmp_path)
    start = tok.hf.bos_token_id
    assert tok.hf.encode("x")[0] == start, "this tokenizer must add a start token by itself"
    ids = tok.encode_chat("hello")
    assert ids[0] == start and ids.count(start) == 1
    messages = [{"role": "user", "content": "hello"}]
    assert ids == list(tok.hf.apply_chat_template(messages, return_dict=False))
    assert tok.encode("x") == tok.hf.encode("x")[1:]


def test_L18_no_template_keeps_the_one_start_token(tmp_path: Path) -> None:
    save(byte_level(special("<s>", "</s>"), post=True), tmp_path, None, bos_token="<s>", eos_token="</s>")
    tok = Tokenizer.from_folder(tmp_path)
    assert tok.decode(tok.encode_chat("hello")) == "<s>hello"
    assert tok.stop_ids == {tok.hf.eos_token_id}


def test_thinking_is_off_and_all_end_ids_are_found(tmp_path: Path) -> None:
    extra = [
        *special("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|stop|>"),
        AddedToken("<think>", special=False),
    ]
    fast = byte_level(extra)
    save(fast, tmp_path, CHATML, eos_token="<|endoftext|>")
    (tmp_path / "generation_config.json").write_text(
        json.dumps({"eos_token_id": [fast.token_to_id("<|stop|>")]})
    )
    tok = Tokenizer.from_folder(tmp_path)
    assert tok.decode(tok.encode_chat("Hi")).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert tok.stop_ids == {fast.token_to_id(t) for t in ("<|endoftext|>", "<|im_end|>", "<|stop|>")}
    assert [tok.token_bytes(i) for i in tok.encode("<think>")] == [b"<think>"]


def test_template_without_system_role_is_one_sentence(tmp_path: Path) -> None:
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}x"
    save(byte_level(special("</s>")), tmp_path, template, eos_token="</s>")
    with pytest.raises(PromptError, match=r"system and user .*no system role.*leave the system text out"):
        Tokenizer.from_folder(tmp_path).encode_chat("Hi", system="Be brief.")


def test_sentencepiece_style_bytes(tmp_path: Path) -> None:
    vocab = {"<unk>": 0, "</s>": 1, **{f"<0x{b:02X}>": 2 + b for b in range(256)}}
    vocab |= {t: 258 + i for i, t in enumerate(["▁", "h", "i", "▁h", "▁hi", "é"])}
    merges = [("▁", "h"), ("▁h", "i")]
    fast = FastTokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>"))
    fast.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    fast.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    fast.add_special_tokens(special("</s>"))
    save(fast, tmp_path, None, eos_token="</s>")
    tok = Tokenizer.from_folder(tmp_path)
    ids = tok.encode("hi hié\n🙂")
    assert tok.bytes_of(ids) == " hi hié\n🙂".encode()
    assert tok.token_bytes(vocab["<0x0A>"]) == b"\n"
    assert tok.token_bytes(vocab["▁hi"]) == b" hi"
    assert tok.token_bytes(vocab["</s>"]) == b"</s>"


def test_other_kinds_of_tokenizer_are_refused(tmp_path: Path) -> None:
    fast = FastTokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    fast.decoder = decoders.WordPiece()
    save(fast, tmp_path, None)
    with pytest.raises(PairError, match="neither byte-level BPE nor sentencepiece-style"):
        Tokenizer.from_folder(tmp_path)


def test_missing_folder_and_empty_folder_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PairError, match=r"nowhere does not exist"):
        Tokenizer.from_folder(tmp_path / "nowhere")
    with pytest.raises(PairError, match=f"tokenizer of {tmp_path} cannot be loaded"):
        Tokenizer.from_folder(tmp_path)


def test_broken_generation_config_is_one_sentence(tmp_path: Path) -> None:
    save(byte_level(special("</s>")), tmp_path, None, eos_token="</s>")
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(PairError, match=f"tokenizer of {tmp_path} cannot be loaded"):
        Tokenizer.from_folder(tmp_path)


def test_S09_no_code_of_a_checkpoint_is_run(tmp_path: Path) -> None:
    save(byte_level(special("</s>")), tmp_path, None, eos_token="</s>")
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config |= {
        "tokenizer_class": "EvilTokenizer",
        "auto_map": {"AutoTokenizer": [None, "evil.EvilTokenizer"]},
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    sentinel = tmp_path / "was_here"
    (tmp_path / "evil.py").write_text(f"open({str(sentinel)!r}, 'w')\nclass EvilTokenizer: pass\n")
    try:
        Tokenizer.from_folder(tmp_path)
    except PairError as error:
        assert str(tmp_path) in str(error)
    assert not sentinel.exists()
