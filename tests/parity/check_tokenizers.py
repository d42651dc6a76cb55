"""Compares Weft's tokenizer with Hugging Face's on random texts and on files, token for token.

    python3 -m venv env && env/bin/pip install tokenizers==0.23.3 dashscope litellm
    scripts/build release weft_tokenize
    env/bin/python tests/parity/check_tokenizers.py build/tests/weft_tokenize --texts 1000000 [--files FOLDER]
"""

import argparse
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from tokenizer_files import Texts, tokenizers

ROOT = Path(__file__).resolve().parent.parent.parent


def ask(program, folder, texts):
    """Tokens and decoded text of each, from Weft."""
    data = b"".join(struct.pack("<I", len(t)) + t for t in texts)
    answer = subprocess.run([program, folder], input=data, stdout=subprocess.PIPE, check=True).stdout
    at = 0
    for _ in texts:
        (count,) = struct.unpack_from("<I", answer, at)
        ids = list(struct.unpack_from(f"<{count}q", answer, at + 4))
        at += 4 + 8 * count
        (size,) = struct.unpack_from("<I", answer, at)
        yield ids, answer[at + 4 : at + 4 + size].decode()
        at += 4 + size


def compare(program, name, tokenizer, texts):
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(f"{folder}/tokenizer.json")
        wrong = tokens = 0
        for text, (ids, decoded) in zip(texts, ask(program, folder, texts)):
            expected = tokenizer.encode(text.decode(errors="replace"), add_special_tokens=False).ids
            tokens += len(expected)
            back = tokenizer.decode(expected, skip_special_tokens=False)
            if ids != expected or decoded != back:
                wrong += 1
                if wrong <= 3:
                    print(f"{name}: {text!r}\n  expected {expected}\n  found    {ids}\n  {back!r}\n  {decoded!r}")
    print(f"{name}: {len(texts)} texts, {tokens} tokens, {wrong} differ")
    return wrong


def file_texts(folder):
    texts = []
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file() and path.suffix in (".py", ".md", ".h", ".cpp", ".txt", ".json", ".js", ".html", ".po"):
            data = path.read_bytes()[:200_000]
            texts += [data[i : i + 20_000] for i in range(0, len(data), 20_000)]
    return texts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", help="compare on the text files of this folder, too")
    parser.add_argument("--only")
    args = parser.parse_args()
    training = [p.read_text() for p in sorted((ROOT / "docs").rglob("*.md"))] + [" ".join(Texts.WORDS)] * 20
    texts = Texts(args.seed)
    wrong = 0
    kinds = tokenizers(training)
    if args.only:
        kinds = {args.only: kinds[args.only]}
    for name, tokenizer in kinds.items():
        for begin in range(0, args.texts, 50_000):
            wrong += compare(args.program, name, tokenizer, [texts.next() for _ in range(min(50_000, args.texts - begin))])
        if args.files:
            wrong += compare(args.program, name, tokenizer, file_texts(args.files))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
