"""Tokenizers to compare with: real vocabularies that PyPI packages carry, and small ones that are trained here.

Needs tokenizers==0.23.3, and dashscope and litellm for the real ones.
"""

import base64
import importlib.util
import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN3_5 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_SPECIAL = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>",
]  # fmt: skip


def package_file(package, path):
    return Path(importlib.util.find_spec(package).origin).parent / path


def split_then_bytes(pattern):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def byte_characters():
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table, extra = {b: chr(b) for b in visible}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(0x100 + extra)
            extra += 1
    return table


def qwen():
    """Qwen's vocabulary as dashscope has it: tokens by rank, from which the merges follow."""
    lines = package_file("dashscope", "resources/qwen.tiktoken").read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}
    letters = byte_characters()

    def written(token):
        return "".join(letters[b] for b in token)

    def halves(token):
        """The two tokens that are merged last: the token's own merge is taken out of the ranking."""
        parts = [bytes([b]) for b in token]
        while len(parts) > 2:
            pairs = [ranks.get(a + b, len(ranks)) for a, b in zip(parts, parts[1:])]
            best = min(range(len(pairs)), key=pairs.__getitem__)
            if pairs[best] >= ranks[token]:
                break
            parts[best : best + 2] = [parts[best] + parts[best + 1]]
        return parts

    merges = []
    for token in sorted(ranks, key=ranks.get):
        if len(token) > 1:
            parts = halves(token)
            if len(parts) == 2:
                merges.append(tuple(map(written, parts)))
    tokenizer = Tokenizer(models.BPE({written(t): r for t, r in ranks.items()}, merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = split_then_bytes(QWEN2)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in QWEN_SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in ("<tool_call>", "</tool_call>")])
    return tokenizer


def claude():
    """The vocabulary that litellm carries; its form is NFKC, its split GPT-2's."""
    return Tokenizer.from_file(
        str(package_file("litellm", "litellm_core_utils/tokenizers/anthropic_tokenizer.json"))
    )


def trained(texts, pattern, size, normalizer=None, ignore_merges=False, added=()):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.normalizer = normalizer
    if pattern is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    else:
        tokenizer.pre_tokenizer = split_then_bytes(pattern)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    for token in added:
        tokenizer.add_special_tokens([token]) if token.special else tokenizer.add_tokens([token])
    return tokenizer


def awkward_added():
    """Tokens with every flag."""
    return [
        AddedToken("<|a|>", special=True, normalized=False),
        AddedToken("<|ab|>", special=True, normalized=False),
        AddedToken("<left>", special=True, normalized=False, lstrip=True),
        AddedToken("<right>", special=False, normalized=False, rstrip=True),
        AddedToken("word", special=False, normalized=False, single_word=True),
        AddedToken("caf\u0065\u0301", special=False, normalized=True),
        AddedToken("\u212b", special=False, normalized=True),
        AddedToken("<both>", special=True, normalized=True, lstrip=True, rstrip=True),
    ]


def llama3_like(texts, size):
    tokenizer = trained(texts, LLAMA3, size, ignore_merges=True, added=[AddedToken("<|begin|>", special=True)])
    begin = tokenizer.token_to_id("<|begin|>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", pair="<|begin|> $A $B", special_tokens=[("<|begin|>", begin)]
    )
    return tokenizer


def tokenizers(texts, size=2000, real=True):
    """Name and tokenizer of every kind."""
    found = {"qwen": qwen(), "claude": claude()} if real else {}
    found["qwen2_form"] = trained(texts, QWEN2, size, normalizers.NFC(), added=awkward_added())
    found["qwen3_5_form"] = trained(texts, QWEN3_5, size, normalizers.NFC())
    found["llama3_form"] = llama3_like(texts, size)
    found["gpt2_form"] = trained(texts, None, size)
    found["gpt4o_form"] = trained(texts, GPT4O, size)
    return found


class Texts:
    """Random texts that are hard to split: scripts, marks, blanks, digits, apostrophes, code, emoji and broken UTF-8."""

    WORDS = (
        "the of and don't it's WE'LL I'm they've he'd x_y camelCase HTTPServer 'S 'Re 'ſ '\u017fa word sword café cafe\u0301 "
        "naïve Ångström \u212bngström 你好世界 今天天气很好 日本語テキスト 한국어 \u1112\u1161\u11ab\u1100\u1173\u11af русский العربية हिन्दी ไทย Ελληνικά "
        "<|a|> <|ab|> <left> <right> <both> <|im_start|> <|im_end|> <|image_pad|> <tool_call> <EOT> <|begin|> 1 12 123 1234 12345 ½ ٣٤ Ⅷ ² 3.14 1,000"
    ).split(" ")
    PIECES = [
        " ", "  ", "    ", "\t", "\n", "\r\n", "\n\n", " \n", "\u00a0", "\u3000", "\u2028", "\u200b", "\u180e", "\x85", "\x00", "\x1c",
        ".", ",", "!?", "...", "(", ")", "{", "}", "==", "->", "//", "/*", "*/", "#", "\"", "'", "''", "-", "—", "…", "、", "。",
        "👍", "👨‍👩‍👧‍👦", "🇩🇪", "❤️", "✅", "\u0301", "\u0323\u0307", "\u0307\u0323", "\u0345\u0300", "\u3099", "か\u3099", "ﬁ", "①", "ｱﾞ",
        "def f(x):\n    return x + 1\n", "for (int i = 0; i < n; ++i) {", "<div class=\"a\">", "\\frac{1}{2}", "https://a.b/c?d=e&f=%20",
    ]  # fmt: skip

    def __init__(self, seed):
        self.random = random.Random(seed)

    def character(self):
        r = self.random
        while True:
            c = r.choice([0x80, 0x250, 0x600, 0x1000, 0x3000, 0xA000, 0x10000, 0x20000, 0x110000])
            code = r.randrange(c)
            if not 0xD800 <= code <= 0xDFFF:
                return chr(code)

    def next(self):
        """Bytes, which need not be UTF-8."""
        r = self.random
        kind = r.random()
        parts = []
        for _ in range(r.choice([1, 2, 3, 5, 8, 20, 60])):
            x = r.random()
            if kind < 0.2 or x < 0.1:
                parts.append(self.character())
            elif x < 0.5:
                parts.append(r.choice(self.WORDS))
            elif x < 0.75:
                parts.append(" ")
            else:
                parts.append(r.choice(self.PIECES))
        data = "".join(parts).encode()
        if kind > 0.95:
            data = bytearray(data)
            for _ in range(r.choice([1, 1, 2, 5])):
                data[r.randrange(len(data))] = r.randrange(256)
            data = bytes(data)
        return data
