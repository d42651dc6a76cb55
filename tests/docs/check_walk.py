"""Takes the walk of docs/manual/fine-tune.md with a tiny model: check_walk.py ROOT PROGRAM [--keep DIR] [--transformers]

Every command of the page runs as it stands there, every configuration is used as it stands but for numbers of steps, which
are made small. Then what the page says must be true: runs by threads and by mpirun have the same losses, a model folder
and an adapter's folder are there, and both ways of predicting with adapters give the same answer. With --transformers,
which needs transformers and PEFT, the page's Python lines run, too, and their logits are compared.
"""

import argparse
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

PAGE = "docs/manual/fine-tune.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
# Numbers of the page that a tiny data set is too small for.
SMALLER = {"interval_steps: 50": "interval_steps: 2", "warmup_steps: 20": "warmup_steps: 1"}
NUM_BLOCKS = {"": 6, "yaml": 3, "python": 2}
SAMPLES = 64


class Walk:
    def __init__(self, root, program, folder):
        self.root, self.program, self.folder = root, program, folder

    def run(self, command):
        """What a command of the page prints."""
        words = shlex.split(command, comments=True)
        words = [str(self.program) if word == "weft" else word for word in words]
        if words[0] == "mpirun":
            words[0] = str(self.root / "scripts/mpirun")
        print(f"$ {command}", flush=True)
        ran = subprocess.run(words, cwd=self.folder, capture_output=True, text=True)
        if ran.returncode != 0:
            sys.exit(f"exits with {ran.returncode}: {ran.stdout}{ran.stderr}")
        return ran.stdout

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def make_data(self):
        """Conversations about pictures, some of them apart, and a model for them with weights."""
        demo = self.folder / "demo"
        subprocess.run([sys.executable, self.root / "scripts/make_demo_data.py", demo, "--samples", str(SAMPLES)], check=True)
        records = [line for line in (demo / "chats.jsonl").read_text().splitlines() if "images" in json.loads(line)]
        shutil.copytree(demo / "media", self.folder / "media")
        self.write("chats.jsonl", "\n".join(records[:40]) + "\n")
        self.write("unseen.jsonl", "\n".join(records[40:]) + "\n")
        shutil.copy(self.folder / json.loads(records[0])["images"][0], self.folder / "cat.png")
        config = json.loads((demo / "model/config.json").read_text())
        del config["audio_config"]
        config = {key.replace("_token_index", "_token_id"): value for key, value in config.items()
                  if not key.startswith("audio") and key not in ("position_id_per_seconds", "seconds_per_chunk")}
        config |= {"model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"], "dtype": "float32"}
        (demo / "model/config.json").write_text(json.dumps(config))
        self.write("base.yaml", "steps: 2\nseed: 3\ndata: {model: demo/model, sets: [{file: chats.jsonl}]}\n"
                   "optimizer: {learning_rate: 1.0e-3}\ncheckpoints: {interval_steps: 2}\n")
        self.run("weft describe --data chats.jsonl --model demo/model --global-batch 8 --out base.json")
        self.run("weft plan --model demo/model --cluster local_cpu --devices-per-node 1 --workload base.json --out base-plan.json")
        self.run("weft train --plan base-plan.json --config base.yaml --run base")
        (self.folder / "models").mkdir()
        self.run("weft convert --from base --to models/base")

    def compute_in_fp32(self, workload):
        """So that answers by adapters and by merged weights are the same: frozen weights are held as a plan computes."""
        path = self.folder / workload
        path.write_text(json.dumps(json.loads(path.read_text()) | {"precision": "fp32"}))

    def losses(self, run):
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["loss"] for line in lines if "loss" in json.loads(line)]


def require(holds, what):
    if not holds:
        sys.exit(what)


def check_same_losses(walk, run, other):
    ours, theirs = walk.losses(run), walk.losses(other)
    require(len(ours) > 2 and len(ours) == len(theirs), f"{run} has {len(ours)} steps, {other} {len(theirs)}")
    worst = max(abs(a - b) / abs(a) for a, b in zip(ours, theirs))
    require(worst < 1e-5, f"losses of {run} and {other} differ by {worst}")


def compare_with_transformers(walk):
    """The page's Python lines, and logits of adapters loaded by PEFT against merged weights."""
    import os
    import torch
    from transformers import AutoModelForImageTextToText
    from peft import PeftModel
    os.chdir(walk.folder)
    ids = torch.arange(5, 60)[None]
    def logits(model):
        with torch.no_grad():
            return model.eval()(input_ids=ids, use_cache=False).logits
    base = AutoModelForImageTextToText.from_pretrained("models/base", dtype=torch.float32)
    plain = logits(base)
    tuned = logits(AutoModelForImageTextToText.from_pretrained("model", dtype=torch.float32))
    merged = logits(AutoModelForImageTextToText.from_pretrained("merged", dtype=torch.float32))
    adapted = logits(PeftModel.from_pretrained(base, "adapter"))
    difference = ((adapted - merged).abs().max() / merged.abs().max()).item()
    moved = ((adapted - plain).abs().max() / plain.abs().max()).item()
    print(f"adapters by PEFT against merged weights: {difference:.1e}; moved by {moved:.1e}; "
          f"fine-tuned moved by {((tuned - plain).abs().max() / plain.abs().max()).item():.1e}")
    require(difference < 1e-5 and moved > 1e-4, "PEFT does not see these adapters")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path, help="an empty folder to walk in")
    parser.add_argument("--transformers", action="store_true")
    options = parser.parse_args()
    kept = None if options.keep else tempfile.TemporaryDirectory()
    walk = Walk(options.root.resolve(), options.program.resolve(), pathlib.Path(options.keep or kept.name).resolve())
    text = (walk.root / PAGE).read_text()
    counts = {kind: 0 for kind in NUM_BLOCKS}
    for kind, _ in BLOCK.findall(text):
        counts[kind] = counts.get(kind, 0) + 1
    require(counts == NUM_BLOCKS, f"{PAGE} has blocks {counts} and not {NUM_BLOCKS}: see that this test still walks all of it")
    for usual in SMALLER:
        require(usual in text, f"{PAGE} no longer says {usual}")
    walk.make_data()
    answers = []
    for kind, block in BLOCK.findall(text):
        if kind == "yaml":
            name = re.match(r"# (\S+\.yaml)\n", block)
            require(name, f"a configuration without its name: {block}")
            for usual, small in SMALLER.items():
                block = block.replace(usual, small)
            walk.write(name[1], block)
        elif kind == "":
            for line in block.splitlines():
                printed = walk.run(line)
                if " describe " in line:
                    walk.compute_in_fp32("chats.json")
                if " predict " in line:
                    answers.append((line, printed))
    check_same_losses(walk, "tuned", "tuned-by-mpi")
    check_same_losses(walk, "adapted", "adapted-by-mpi")
    require(len(answers) == 4, f"{len(answers)} answers")
    require(answers[0][1] == answers[1][1], f"one rank says {answers[0][1]}, a plan's {answers[1][1]}")
    require(answers[2][1] == answers[3][1], f"adapters say {answers[2][1]}, merged weights {answers[3][1]}")
    for name in ("model/config.json", "model/tokenizer.json", "model/model.safetensors", "merged/model.safetensors",
                 "adapter/adapter_config.json", "adapter/adapter_model.safetensors"):
        require((walk.folder / name).exists(), f"{name} is not there")
    if options.transformers:
        compare_with_transformers(walk)
    print("the walk of the manual is true")


if __name__ == "__main__":
    main()
