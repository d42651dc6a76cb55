"""How long steps wait for their samples, at the pace of a step on a GPU.

    python3 -m venv env && env/bin/pip install numpy pillow
    scripts/build weft weft_data_wait
    env/bin/python bench/data_wait.py [--threads 4] [--step-ms 535] [--steps 20] [--photo 1280] [--pack] [--only-write DIR]

Writes conversations of 4,096 tokens, a JPEG photograph of 4,096 patches in each, and a model that takes in what Qwen2-VL
does but computes next to nothing; plans it for one rank with four samples a step, and runs weft_data_wait, whose steps
sleep. Preparing has the machine's cores for itself then, as beside a GPU. With --pack conversations are short, their
photographs have a quarter of the patches, and rows of 4,096 tokens are packed. With --only-write files and plan are left in a folder, for a machine to
which only weft_data_wait is brought; what to run there is printed.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKENS = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]


def photograph(side, seed):
    random = np.random.default_rng(seed)
    small = random.uniform(0, 255, (side // 16, side // 16, 3)).astype(np.uint8)
    smooth = np.asarray(Image.fromarray(small).resize((side, side), Image.BICUBIC), dtype=np.float64)
    return Image.fromarray(np.clip(smooth + random.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8))


def write_model(folder):
    folder.mkdir()
    tokenizer = json.loads((ROOT / "tests/parity/text/qwen2_form/tokenizer.json").read_text())
    first = 1 + max([*tokenizer["model"]["vocab"].values(), *(t["id"] for t in tokenizer["added_tokens"])])
    ids = {token: first + i for i, token in enumerate(TOKENS)}
    tokenizer["added_tokens"] += [dict(tokenizer["added_tokens"][0], id=i, content=token) for token, i in ids.items()]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "chat_template.jinja").write_text((ROOT / "tests/parity/text/templates/vision_parts.jinja").read_text())
    pixels = 4096 * 14 * 14
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 3136, "max_pixels": pixels})
    )
    config = json.loads((ROOT / "tests/parity/fixtures/qwen2_vl_tied/config.json").read_text())
    config["text_config"].update(vocab_size=first + len(TOKENS), max_position_embeddings=16384)
    config["vision_config"].update(patch_size=14, temporal_patch_size=2)
    for key, token in (("image_token_id", "<|image_pad|>"), ("video_token_id", "<|video_pad|>"),
                       ("vision_start_token_id", "<|vision_start|>"), ("vision_end_token_id", "<|vision_end|>")):
        config[key] = ids[token]
    (folder / "config.json").write_text(json.dumps(config))


def write_files(folder, arguments):
    write_model(folder / "model")
    words = (ROOT / "docs/design/media.md").read_text().split()
    lines = []
    for i in range(64 if arguments.pack else 16):
        side = arguments.photo // 2 if arguments.pack else arguments.photo
        photograph(side, i).save(folder / f"{i}.jpg", quality=90)
        text = " ".join((words[i * 50 :] + words * 8)[: 40 + 15 * (i % 10) if arguments.pack else 4000])
        lines.append(json.dumps({"messages": [{"role": "user", "content": "<image>What is this?"},
                                              {"role": "assistant", "content": text}], "images": [f"{i}.jpg"]}))
    (folder / "chats.jsonl").write_text("\n".join(lines))
    pack = "pack: true\nimage_max_pixels: 200704\n" if arguments.pack else ""
    (folder / "data.yaml").write_text("sets: [{file: chats.jsonl}]\ncutoff_tokens: 4096\n" + pack)
    weft = f"{arguments.build}/weft"
    run = lambda command: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    run([weft, "describe", "--data", folder / "data.yaml", "--model", folder / "model", "--global-batch", "4",
         "--out", folder / "workload.json"])
    run([weft, "plan", "--model", folder / "model", "--workload", folder / "workload.json", "--cluster", "local_cpu",
         "--nodes", "1", "--devices-per-node", "1", "--out", folder / "plan.json"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--step-ms", type=float, default=535)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--photo", type=int, default=1280, help="pixels of a photograph's side")
    parser.add_argument("--pack", action="store_true", help="short conversations in packed rows")
    parser.add_argument("--only-write", metavar="DIR", help="a new folder for the files; nothing is measured")
    arguments = parser.parse_args()
    settings = [str(arguments.threads), str(arguments.step_ms), str(arguments.steps)]
    if arguments.only_write:
        folder = pathlib.Path(arguments.only_write)
        folder.mkdir(parents=True)
        write_files(folder, arguments)
        print(f"weft_data_wait {folder.name}/plan.json {folder.name}/data.yaml {folder.name}/model {' '.join(settings)}")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_files(folder, arguments)
        subprocess.run([f"{arguments.build}/bench/weft_data_wait", folder / "plan.json", folder / "data.yaml", folder / "model",
                        *settings], check=True)


if __name__ == "__main__":
    main()
