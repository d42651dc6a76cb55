"""How much memory a run needs until its first step and in its steps: start_memory.py [PROGRAM [ZERO ...]]

Trains a Llama with 486 MiB of fp32 weights on four thread ranks of one process, dp 4, with each ZeRO stage: with fresh weights, with
weights from a folder, and going on from a checkpoint. Prints the most resident memory of the process before the first step begins, in
the steps, and after them (a run with checkpoints saves one then), and how long the start takes. Mapped files count as far as they are in the process's tables.
"""

import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 2816,
         "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 12000,
         "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
         "tie_word_embeddings": False, "torch_dtype": "float32"}
WORKLOAD = "global_batch_samples: 4\ntext_tokens: {values: [32], weights: [1]}\nprecision: fp32\noptimizer: adamw\n"
STEPS = 3


def write_weights(folder):
    """A folder of such a model's weights, all of one small value."""
    width, hidden, vocabulary = MODEL["hidden_size"], MODEL["intermediate_size"], MODEL["vocab_size"]
    shapes = {"model.embed_tokens.weight": [vocabulary, width], "model.norm.weight": [width], "lm_head.weight": [vocabulary, width]}
    for layer in range(MODEL["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        shapes |= {f"{name}self_attn.{part}_proj.weight": [width, width] for part in "qkvo"}
        shapes |= {f"{name}mlp.{part}_proj.weight": [hidden, width] for part in ("gate", "up")}
        shapes |= {f"{name}{part}_layernorm.weight": [width] for part in ("input", "post_attention")}
        shapes[f"{name}mlp.down_proj.weight"] = [width, hidden]
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MODEL))
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for shape in shapes.values():
            file.write(struct.pack("<f", 0.01) * math.prod(shape))


def resident_gib(process):
    """Memory of the process's own, and pages of mapped files."""
    found = {}
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("RssAnon", "RssFile"):
            found[name] = int(value.split()[0]) / 2**20
    return found.get("RssAnon", 0.0), found.get("RssFile", 0.0)


def watch(command, metrics):
    """Samples of (seconds, own GiB, mapped GiB), when the first step began and when the last was written down."""
    start = time.time()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    samples, began, stepped = [], None, None
    before = metrics.read_text().count("\n") if metrics.exists() else 0
    while process.poll() is None:
        try:
            samples.append((time.time(), *resident_gib(process)))
        except (FileNotFoundError, ProcessLookupError):
            break
        if stepped is None and metrics.exists():
            lines = metrics.read_text().split("\n")[:-1]
            if began is None and len(lines) > before:
                began = time.time() - json.loads(lines[before])["step_ms"] / 1e3
            if len(lines) == before + STEPS:
                stepped = time.time()
        time.sleep(0.005)
    output = process.communicate()[0]
    if process.returncode != 0 or stepped is None:
        sys.exit(f"{command}\n{output}")
    return samples, start, began, stepped


def report(name, samples, start, began, stepped):
    # What samples see of the moment in which the first step begins is neither.
    for part, index in (("own", 1), ("own and mapped", None)):
        size = lambda sample: sample[index] if index else sample[1] + sample[2]
        starting = max(size(s) for s in samples if s[0] < began - 0.02)
        stepping = max(size(s) for s in samples if began + 0.02 < s[0] < stepped)
        ending = max((size(s) for s in samples if s[0] > stepped), default=0)
        print(f"{name}: {part}: {starting:.2f} GiB until the first step, {stepping:.2f} GiB in {STEPS} steps, {ending:.2f} GiB after them")
    print(f"{name}: {began - start:.2f} s until the first step", flush=True)


def main(program=ROOT / "build" / "weft", *zeros):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "model.json").write_text(json.dumps(MODEL))
        (folder / "workload.yaml").write_text(WORKLOAD)
        cluster = (ROOT / "scenarios" / "clusters" / "local_cpu.yaml").read_text()
        cluster = cluster.replace("devices_per_node: 8", "devices_per_node: 4").replace(" memory_gib: 2", " memory_gib: 8")
        (folder / "cluster.yaml").write_text(cluster)
        write_weights(folder / "weights")
        config = {"steps": STEPS, "seed": 1, "threads_per_rank": 1, "optimizer": {"learning_rate": 1e-4}}
        saving = {**config, "steps": 1, "checkpoints": {"interval_steps": 1}}
        going_on = {**saving, "steps": 1 + STEPS, "checkpoints": {"interval_steps": 1000}}
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "saving.json").write_text(json.dumps(saving))
        (folder / "going_on.json").write_text(json.dumps(going_on))
        (folder / "loading.json").write_text(json.dumps({**config, "weights": str(folder / "weights")}))
        for zero in [int(zero) for zero in zeros] or (3, 2, 1, 0):
            (folder / "space.yaml").write_text(f"llm: {{tp: 1, pp: 1, dp: 4, cp: 1, zero: {zero}}}\nschedule: [1f1b]\n")
            subprocess.run([program, "plan", "--model", folder / "model.json", "--cluster", folder / "cluster.yaml",
                            "--workload", folder / "workload.yaml", "--space", folder / "space.yaml",
                            "--out", folder / f"plan{zero}.json"], check=True, stdout=subprocess.DEVNULL)
            train = [program, "train", "--plan", folder / f"plan{zero}.json"]

            def measure(name, arguments, run):
                report(f"ZeRO {zero}, {name}", *watch([*train, *arguments], run / "metrics.jsonl"))

            fresh = folder / f"fresh{zero}"
            measure("fresh weights", ["--config", folder / "config.json", "--run", fresh], fresh)
            if zero == 3:
                saved = folder / "saved"
                subprocess.run([*train, "--config", folder / "saving.json", "--run", saved], check=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                measure("a checkpoint", ["--config", folder / "going_on.json", "--resume", saved], saved)
            loaded = folder / f"loaded{zero}"
            measure("weights of a folder", ["--config", folder / "loading.json", "--run", loaded], loaded)


if __name__ == "__main__":
    main(*sys.argv[1:])
