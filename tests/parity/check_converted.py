"""Has transformers load what `weft convert` writes: check_converted.py [--weft build/weft] [--only NAME]

Every fixture's model, with a tokenizer, a chat template, settings of generation and of its processor beside it, becomes a checkpoint
of a plan for several ranks, and that a Hugging Face folder of several files. Hugging Face's own code then loads the folder as it is, by its
name alone: weights must be the fixture's to the last bit, logits and losses the fixture's within 1e-5, and what goes with the weights as it
was. bfloat16 and the folder of a run that trained go the same way.

    python -m venv env && env/bin/pip install torch==2.11.0 torchvision==0.26.0 transformers==5.17.0 safetensors==0.8.0
    env/bin/python tests/parity/check_converted.py
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer, GenerationConfig

from fixture_configs import CASES
from fixture_reference import evaluate, load_model
from make_fixtures import INPUTS, difference

HERE = pathlib.Path(__file__).resolve().parent
WORKLOAD = "global_batch_samples: 8\ntext_tokens: 16\nprecision: fp32\noptimizer: adamw\n"
MEDIA = "images_per_sample: 1\npatches_per_image: 16\n"
TEXT = "Größe: 3 × 4 = 12\n\tdef f(x): return x"
# The processor of Qwen2-VL with other numbers than its own defaults.
PROCESSOR = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
             "min_pixels": 3136, "max_pixels": 50176, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.25]}


def weft(arguments, *words):
    done = subprocess.run([arguments.weft, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"weft {' '.join(map(str, words))}\n{done.stderr}")
    return done.stdout


def add_companions(folder):
    shutil.copy(HERE / "text/qwen2_form/tokenizer.json", folder)
    shutil.copy(HERE / "text/templates/chatml_tools.jinja", folder / "chat_template.jinja")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 0.37, "top_k": 11}))
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))


def check_companions(folder, source):
    tokenizer, original = (AutoTokenizer.from_pretrained(path) for path in (folder, source))
    assert tokenizer(TEXT).input_ids == original(TEXT).input_ids
    chat = [{"role": "user", "content": "Hi"}]
    assert tokenizer.chat_template and tokenizer.apply_chat_template(chat, tokenize=False) == original.apply_chat_template(
        chat, tokenize=False)
    generation = GenerationConfig.from_pretrained(folder)
    assert (generation.temperature, generation.top_k) == (0.37, 11)
    assert list(AutoImageProcessor.from_pretrained(folder).image_mean) == PROCESSOR["image_mean"]


def check_weights(folder, source, dtype=None):
    read = lambda path: {k: v for file in path.glob("model*.safetensors") for k, v in load_file(file).items()}
    found, expected = read(folder), read(source)
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    for name, weight in expected.items():
        weight = weight.to(dtype) if dtype else weight
        assert found[name].dtype == weight.dtype and torch.equal(found[name], weight), name


def check_logits(folder, fixture):
    """The largest difference from the fixture."""
    model = load_model(folder, AutoConfig.from_pretrained(folder))
    worst = 0.0
    for case in CASES[fixture.name]:
        stored = load_file(fixture / f"{case}.safetensors")
        facts = json.loads((fixture / f"{case}.json").read_text())
        found, _ = evaluate(model, {k: v for k, v in stored.items() if k in INPUTS}, facts)
        worst = max(worst, *(difference(found[key], stored[key]) for key in ("logits", "loss")))
    return worst


def make_plan(arguments, model, folder):
    """For two ranks, by tensor parallelism where the heads allow it and by a pipeline else."""
    workload = WORKLOAD + (MEDIA if "vision_config" in json.loads((model / "config.json").read_text()) else "")
    (folder / "workload.yaml").write_text(workload)
    tree = HERE.parent.parent
    cluster = (tree / "scenarios/clusters/local_cpu.yaml").read_text().replace("devices_per_node: 8", "devices_per_node: 2")
    (folder / "cluster.yaml").write_text(cluster)
    problem = ""
    for degrees in ("{tp: 2, pp: 1, cp: 1, dp: 1}", "{tp: 1, pp: 2, cp: 1, dp: 1}"):
        (folder / "space.yaml").write_text(f"mbs: 2\nllm: {degrees}\n")
        done = subprocess.run([arguments.weft, "plan", "--model", str(model), "--cluster", str(folder / "cluster.yaml"),
                               "--workload", str(folder / "workload.yaml"), "--space", str(folder / "space.yaml"), "--out",
                               str(folder / "plan.json")], capture_output=True, text=True)
        if done.returncode == 0:
            return folder / "plan.json", degrees
        problem = done.stderr
    sys.exit(problem)


def check_fixture(arguments, fixture, folder):
    model = folder / "model"
    shutil.copytree(fixture, model, ignore=shutil.ignore_patterns(*(f"{case}.*" for case in CASES[fixture.name])))
    add_companions(model)
    plan, degrees = make_plan(arguments, model, folder)
    weft(arguments, "convert", "--from", model, "--to", folder / "checkpoint", "--plan", plan)
    weft(arguments, "convert", "--from", folder / "checkpoint", "--to", folder / "back", "--shard-size", 0.00002)
    config = json.loads((folder / "back/config.json").read_text())
    assert config["architectures"] == json.loads((fixture / "config.json").read_text())["architectures"]
    files = len(list((folder / "back").glob("model-*.safetensors")))
    check_weights(folder / "back", fixture)
    check_companions(folder / "back", model)
    worst = check_logits(folder / "back", fixture)
    assert worst <= 1e-5, f"logits differ by {worst}"
    weft(arguments, "convert", "--from", folder / "checkpoint", "--to", folder / "half", "--dtype", "bf16")
    check_weights(folder / "half", fixture, torch.bfloat16)
    assert load_model(folder / "half", AutoConfig.from_pretrained(folder / "half"), "auto").dtype == torch.bfloat16
    # A run that began with it, whose weights have moved.
    (folder / "train.yaml").write_text(f"steps: 1\nweights: {model}\noptimizer: {{learning_rate: 1.0e-3}}\n"
                                       "checkpoints: {interval_steps: 1}\n")
    weft(arguments, "train", "--plan", plan, "--config", folder / "train.yaml", "--run", folder / "run")
    weft(arguments, "convert", "--from", folder / "run", "--to", folder / "trained")
    check_companions(folder / "trained", model)
    moved = check_logits(folder / "trained", fixture)
    assert 1e-5 < moved < 10, f"a step changes logits by {moved}"
    print(f"{fixture.name}: {degrees}, {files} files, logits within {worst:.1e}; after a step they differ by {moved:.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default=str(HERE.parent.parent / "build/weft"))
    parser.add_argument("--only")
    arguments = parser.parse_args()
    for fixture in sorted((HERE / "fixtures").iterdir()):
        if fixture.name not in CASES or arguments.only not in (None, fixture.name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            check_fixture(arguments, fixture, pathlib.Path(folder))


if __name__ == "__main__":
    main()
