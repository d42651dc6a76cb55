"""Has the safetensors library and transformers judge weight files: check_safetensors.py COPY_PROGRAM [FILES] [SEED]

Random tensors of every type are saved by the library, and by hand in another order and with another padding; Weft reads the
latter and must write the former, byte for byte. Then folders of tiny models as transformers saves them, whole and sharded,
are copied and must be the same, index included. Files with one byte changed in the header must be refused by Weft where the library
refuses them. Metadata has one key here: the library orders several at random.

    python -m venv env && env/bin/pip install torch transformers safetensors numpy
    cmake --build build --target weft_copy_weights
    env/bin/python tests/parity/check_safetensors.py build/tests/weft_copy_weights
"""

import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import safetensors
import torch
from safetensors.torch import save
from transformers import LlamaConfig, LlamaForCausalLM

TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
         torch.uint8, torch.bool, torch.uint16, torch.uint32, torch.uint64, torch.complex64, torch.float8_e4m3fn,
         torch.float8_e5m2, torch.float8_e8m0fnu, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float4_e2m1fn_x2]
LETTERS = "abzAZ019._-/\"\\\n\t\x01\x1f\x7f é\u2028😀"


def random_tensors(rng):
    tensors = {}
    for _ in range(rng.randint(0, 12)):
        kind = rng.choice(TYPES)
        shape = [rng.randint(0, 4) for _ in range(rng.randint(0, 3))] + [rng.randint(1, 4)]
        raw = torch.tensor([rng.randint(0, 1 if kind == torch.bool else 255)
                            for _ in range(torch.Size(shape).numel() * kind.itemsize)], dtype=torch.uint8)
        tensors["".join(rng.choices(LETTERS, k=rng.randint(1, 12)))] = raw.view(kind).reshape(shape)
    return tensors


def split(file):
    length = struct.unpack("<Q", file[:8])[0]
    return json.loads(file[8:8 + length]), file[8 + length:]


def shuffled(file, rng):
    """The same tensors in another order, with other white space."""
    header, data = split(file)
    items = list(header.items())
    rng.shuffle(items)
    rows, moved = {}, b""
    for name, row in items:
        if name != "__metadata__":
            begin, end = row["data_offsets"]
            row = row | {"data_offsets": [len(moved), len(moved) + end - begin]}
            moved += data[begin:end]
        rows[name] = row
    text = json.dumps(rows, indent=rng.choice([None, 1]), ensure_ascii=rng.random() < 0.5).encode() + b" " * rng.randint(0, 9)
    return struct.pack("<Q", len(text)) + text + moved


def copy(program, source, target):
    target.mkdir(exist_ok=True)
    return subprocess.run([program, str(source), str(target)], capture_output=True, text=True)


def check_files(program, rng, count, folder):
    num_refused = 0
    for i in range(count):
        tensors = random_tensors(rng)
        metadata = rng.choice([None, {"format": "pt"}, {}]) if tensors else rng.choice([None, {"a": "é"}])
        expected = save(tensors, metadata)
        source = folder / "in.safetensors"
        source.write_bytes(shuffled(expected, rng))
        done = copy(program, source, folder / "out")
        if done.returncode != 0 or (folder / "out" / source.name).read_bytes() != expected:
            kept = pathlib.Path("different.safetensors")
            kept.write_bytes(expected)
            sys.exit(f"file {i} differs: {done.stdout} the library's is in {kept}")

        damaged = bytearray(expected)
        damaged[rng.randrange(min(len(damaged), 8 + struct.unpack('<Q', expected[:8])[0]))] ^= 1 << rng.randrange(8)
        source.write_bytes(damaged)
        try:
            safetensors.deserialize(bytes(damaged))
        except Exception:
            num_refused += 1
            if copy(program, source, folder / "out").returncode != 2:
                sys.exit(f"file {i} is refused by the library only: {bytes(damaged)}")
    print(f"{count} files are the library's, byte for byte; of as many damaged ones {num_refused} are refused by both")


def check_folders(program, folder):
    settings = dict(vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                    num_key_value_heads=1)
    num_files = 0
    for kind in (torch.float32, torch.bfloat16):
        for tied in (False, True):
            for size in ("1GB", "3KB", "9KB"):
                name = f"{str(kind)[6:]}-{tied}-{size}"
                model = LlamaForCausalLM(LlamaConfig(tie_word_embeddings=tied, **settings)).to(kind)
                model.save_pretrained(folder / name, max_shard_size=size)
                done = copy(program, folder / name, folder / (name + "-copy"))
                if done.returncode != 0:
                    sys.exit(f"{name}: {done.stdout}")
                saved = {p.name: p.read_bytes() for p in (folder / name).glob("model*")}
                copied = {p.name: p.read_bytes() for p in (folder / (name + "-copy")).iterdir()}
                if saved != copied:
                    sys.exit(f"{name}: {sorted(saved)} and {sorted(copied)} differ")
                num_files += len(saved)
    print(f"12 folders with {num_files} files are transformers', byte for byte")


def main(program, count=1000, seed=1):
    with tempfile.TemporaryDirectory() as folder:
        check_files(program, random.Random(int(seed)), int(count), pathlib.Path(folder))
        check_folders(program, pathlib.Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
