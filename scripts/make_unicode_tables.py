"""Writes weft/data/text/unicode_tables.cpp: categories and canonical forms as the `tokenizers` library has them.

    python3 -m venv env && env/bin/pip install tokenizers==0.23.3
    env/bin/python scripts/make_unicode_tables.py

Categories are asked of its regex engine, words of its added tokens and forms of its normalizers, code point by code
point, so that the tables are of the Unicode versions that it was built with. Python's own tables are used only to find
one mark of every combining class.
"""

import sys
import unicodedata
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

OUTPUT = Path(__file__).resolve().parent.parent / "weft/data/text/unicode_tables.cpp"
POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CHUNK = 4096


def members(pattern):
    """The code points that a one-character pattern matches."""
    outside = pre_tokenizers.Split(Regex(f"[^{pattern}]"), "removed")
    found = set()
    for begin in range(0, len(POINTS), CHUNK):
        text = "".join(map(chr, POINTS[begin : begin + CHUNK]))
        for piece, _ in outside.pre_tokenize_str(text):
            found.update(map(ord, piece))
    return found


def words():
    """The code points beside which an added token is no word by itself. Another engine than that of patterns says so."""
    tokenizer = Tokenizer(models.BPE(vocab={"?": 0}, merges=[], unk_token="?"))
    tokenizer.add_tokens([AddedToken("ab", single_word=True, normalized=False)])
    token = tokenizer.token_to_id("ab")
    found = set()
    for begin in range(0, len(POINTS), CHUNK):
        points = POINTS[begin : begin + CHUNK]
        encodings = tokenizer.encode_batch([chr(c) + "ab" for c in points])
        found.update(c for c, encoding in zip(points, encodings) if token not in encoding.ids)
    return found


def ranges(points):
    """[first, last] of every run."""
    runs = []
    for c in sorted(points):
        if runs and runs[-1][1] == c - 1:
            runs[-1][1] = c
        else:
            runs.append([c, c])
    return runs


nfc, nfd, nfkc, nfkd = (form() for form in (normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD))


def is_hangul(c):
    return 0xAC00 <= c <= 0xD7A3


def decompositions(form):
    found = {}
    for c in POINTS:
        whole = form.normalize_str(chr(c))
        if whole != chr(c) and not is_hangul(c):
            found[c] = [ord(x) for x in whole]
    return found


def combining_classes():
    """The class of every mark, by how it is put in order with a known mark of each class."""

    def swaps(a, b):
        return nfd.normalize_str(a + b) == b + a and a != b

    grave = "\u0300"
    example = {unicodedata.combining(grave): grave}
    for c in POINTS:
        x = chr(c)
        k = unicodedata.combining(x)
        # The library may be of an older Unicode, in which the mark is unknown.
        if k and k not in example and (swaps(grave, x) if k < unicodedata.combining(grave) else swaps(x, grave)):
            example[k] = x
    classes = sorted(example)
    low, high = example[classes[0]], example[classes[-1]]

    found = {}
    for c in POINTS:
        x = chr(c)
        if nfd.normalize_str(x) != x or is_hangul(c) or not (swaps(x, low) or swaps(high, x)):
            continue  # a starter, for one of the lowest class goes before `high` and others after `low`
        equal = [k for k in classes if not swaps(x, example[k]) and not swaps(example[k], x)]
        if len(equal) != 1:
            sys.exit(f"U+{c:04X} has no class among those known: {equal}")
        found[c] = equal[0]
    return found


def compositions(decomposed):
    pairs = {}
    for c, parts in decomposed.items():
        if len(parts) < 2 or nfc.normalize_str(chr(c)) != chr(c):
            continue
        head = nfc.normalize_str("".join(map(chr, parts[:-1])))
        if len(head) != 1 or nfc.normalize_str(head + chr(parts[-1])) != chr(c):
            sys.exit(f"U+{c:04X} is not made of a pair")
        pairs[(ord(head), parts[-1])] = c
    return pairs


ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-"


def packed(numbers):
    """Small numbers as few letters: each letter has five bits of a number, the lowest first, and says whether more follow."""
    text = ""
    for n in numbers:
        while n >= 32:
            text += ALPHABET[32 + n % 32]
            n //= 32
        text += ALPHABET[n]
    return text


def signed(n):
    return 2 * n if n >= 0 else -2 * n - 1


def packed_ranges(points):
    """Of every run the gap before it and its length - 1."""
    numbers, end = [], 0
    for first, last in ranges(points):
        numbers += [first - end, last - first]
        end = last + 1
    return packed(numbers)


def packed_decompositions(table):
    """Of every character the gap before it, how many it becomes, and each as a difference from the one before."""
    numbers, last, last_part = [], 0, 0
    for c in sorted(table):
        numbers += [c - last, len(table[c])]
        last = c
        for part in table[c]:
            numbers.append(signed(part - last_part))
            last_part = part
    return packed(numbers)


def packed_classes(classes):
    numbers, end = [], 0
    runs = []
    for k in set(classes.values()):
        runs += [(first, last, k) for first, last in ranges(c for c in classes if classes[c] == k)]
    for first, last, k in sorted(runs):
        numbers += [first - end, last - first, k]
        end = last + 1
    return packed(numbers)


def packed_compositions(pairs):
    numbers, last, last_made = [], 0, 0
    for (a, b), c in sorted(pairs.items()):
        numbers += [a - last, b, signed(c - last_made)]
        last, last_made = a, c
    return packed(numbers)


def main():
    canonical = decompositions(nfd)
    compatible = {c: parts for c, parts in decompositions(nfkd).items() if parts != canonical.get(c)}
    tables = {
        "kLetters": packed_ranges(members(r"\p{L}")),
        "kUpperLetters": packed_ranges(members(r"\p{Lu}\p{Lt}")),
        "kLowerLetters": packed_ranges(members(r"\p{Ll}")),
        "kNumbers": packed_ranges(members(r"\p{N}")),
        "kMarks": packed_ranges(members(r"\p{M}")),
        "kSpaces": packed_ranges(members(r"\s")),
        "kWords": packed_ranges(words()),
        "kCanonical": packed_decompositions(canonical),
        "kCompatible": packed_decompositions(compatible),
        "kClasses": packed_classes(combining_classes()),
        "kCompositions": packed_compositions(compositions(canonical)),
    }
    out = [
        "// Made by scripts/make_unicode_tables.py; do not edit.",
        '#include "weft/data/text/unicode_tables.h"',
        "",
        "// clang-format off",
        "namespace weft::unicode_tables {",
        "",
    ]
    for name, text in tables.items():
        lines = [f'    "{text[i : i + 112]}"' for i in range(0, len(text), 112)]
        out += [f"const char* const {name} ="] + lines[:-1] + [lines[-1] + ";"]
    out += ["", "}  // namespace weft::unicode_tables", ""]
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text("\n".join(out))
    print(f"{OUTPUT}: {len(out)} lines")


if __name__ == "__main__":
    main()
