"""Writes tests/parity/text/FORM/tokenizer.json and tests/parity/text/tokens.json: small tokenizers of every form, and what
Hugging Face's library makes of hard texts with them.

    python3 -m venv env && env/bin/pip install tokenizers==0.23.3
    env/bin/python tests/parity/make_text_fixtures.py
"""

import json
from pathlib import Path

from tokenizer_files import Texts, tokenizers

HERE = Path(__file__).resolve().parent / "text"


def main():
    root = HERE.parent.parent.parent
    training = [p.read_text() for p in sorted((root / "docs/design").rglob("*.md"))] + [" ".join(Texts.WORDS)] * 20
    texts = Texts(11)
    data = []
    while len(data) < 90:
        text = texts.next()
        if len(text) < 300:
            data.append(text)
    answers = {}
    for name, tokenizer in tokenizers(training, size=420, real=False).items():
        (HERE / name).mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(HERE / name / "tokenizer.json"), pretty=False)
        rows = []
        for text in data:
            encoding = tokenizer.encode(text.decode(errors="replace"), add_special_tokens=False)
            with_ends = tokenizer.encode(text.decode(errors="replace")).ids
            rows.append(
                {
                    "ids": encoding.ids,
                    "with_ends": with_ends if with_ends != encoding.ids else None,
                    "text": tokenizer.decode(encoding.ids, skip_special_tokens=False),
                    "plain": tokenizer.decode(encoding.ids, skip_special_tokens=True),
                }
            )
        answers[name] = rows
    (HERE / "tokens.json").write_text(
        json.dumps({"texts_hex": [t.hex() for t in data], "forms": answers}, ensure_ascii=False) + "\n"
    )


if __name__ == "__main__":
    main()
