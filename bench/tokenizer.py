"""Megabytes a second of processor time on one thread: Weft's tokenizer beside Hugging Face's, with the same vocabulary and text.

    python3 -m venv env && env/bin/pip install tokenizers==0.23.3 dashscope litellm
    scripts/build release weft_tokenizer_bench
    env/bin/python bench/tokenizer.py build/bench/weft_tokenizer_bench FILE...

Files should be large and of different kinds: prose, code, Chinese. Rounds of both alternate.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/parity"))
from tokenizer_files import claude, qwen  # noqa: E402

PART = 20_000


def hugging_face(tokenizer, data):
    parts = [data[i : i + PART].decode(errors="replace") for i in range(0, len(data), PART)]
    begin = time.process_time()
    tokens = sum(len(tokenizer.encode(part, add_special_tokens=False).ids) for part in parts)
    return len(data) * 1e-6 / (time.process_time() - begin), tokens


def main():
    program, files = sys.argv[1], sys.argv[2:]
    for name, make in (("qwen", qwen), ("claude", claude)):
        tokenizer = make()
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save(f"{folder}/tokenizer.json")
            for file in files:
                data = Path(file).read_bytes()
                for _ in range(2):
                    ours = subprocess.run([program, folder, file], capture_output=True, text=True, check=True).stdout.strip()
                    rate, tokens = hugging_face(tokenizer, data)
                    print(f"{name}, {Path(file).name}: Weft {ours}; tokenizers {rate:.1f} MB/s, {tokens} tokens", flush=True)


if __name__ == "__main__":
    main()
