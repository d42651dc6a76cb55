#!/usr/bin/env python3
"""Figures of checkpoints: converting against a plain copy, and what saving beside the next steps costs a step.

  python3 bench/checkpoint_figures.py convert --gib 4     a model of generated weights, to a model, to a checkpoint and from one: time, memory and bytes
  python3 bench/checkpoint_figures.py save --steps 40     step time with a save after every fourth step, and with none

Bytes of resuming and of changing a plan in memory are counted by build/bench/weft_reshard_bytes. Both of these print one JSON object. Run them on a quiet machine; each measurement is repeated, and the medians are compared.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

TREE = pathlib.Path(__file__).resolve().parent.parent
WEFT = TREE / "build/weft"
COPY_BYTES = 16 << 20


def write_weights(path, weights):
    """A safetensors file of bf16 numbers: names and shapes, with bytes that no file system can compress."""
    header, begin = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in weights:
        size = 2
        for dim in shape:
            size *= dim
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, begin + size]}
        begin += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    block = bytes(b if i % 2 == 0 else 0x3C for i, b in enumerate(os.urandom(COPY_BYTES)))  # small finite numbers
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        while begin > 0:
            file.write(block[: min(begin, COPY_BYTES)])
            begin -= min(begin, COPY_BYTES)


def make_model(folder, gib):
    """A Llama whose layers add up to about so many GiB in bf16."""
    hidden, middle, vocabulary = 2048, 5632, 32000
    layer = 4 * hidden * hidden + 3 * hidden * middle + 2 * hidden
    layers = max(1, round((gib * 2**30 / 2 - 2 * vocabulary * hidden) / layer))
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
              "intermediate_size": middle, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 128,
              "num_hidden_layers": layers, "vocab_size": vocabulary, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "hidden_act": "silu", "tie_word_embeddings": False, "max_position_embeddings": 4096,
              "torch_dtype": "bfloat16"}
    weights = [["model.embed_tokens.weight", [vocabulary, hidden]], ["model.norm.weight", [hidden]],
               ["lm_head.weight", [vocabulary, hidden]]]
    for i in range(layers):
        prefix = f"model.layers.{i}."
        weights += [[prefix + f"self_attn.{x}_proj.weight", [hidden, hidden]] for x in "qkvo"]
        weights += [[prefix + "mlp.gate_proj.weight", [middle, hidden]], [prefix + "mlp.up_proj.weight", [middle, hidden]],
                    [prefix + "mlp.down_proj.weight", [hidden, middle]], [prefix + "input_layernorm.weight", [hidden]],
                    [prefix + "post_attention_layernorm.weight", [hidden]]]
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    write_weights(folder / "model.safetensors", weights)


def timed(action):
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def copy(source, target):
    """All bytes through a buffer, flushed: what any converter must at least do."""
    target.mkdir()
    for file in source.iterdir():
        with open(file, "rb") as reader, open(target / file.name, "wb") as writer:
            while chunk := reader.read(COPY_BYTES):
                writer.write(chunk)
            writer.flush()
            os.fsync(writer.fileno())


def plan_of_two(model, folder):
    """A plan whose checkpoints have two files, each with half of most weights."""
    workload, space, plan = folder / "workload.yaml", folder / "space.yaml", folder / "plan.json"
    workload.write_text("global_batch_samples: 2\ntext_tokens: 16\nprecision: bf16\noptimizer: adamw\n")
    space.write_text("mbs: 2\nllm: {tp: 2, pp: 1, cp: 1, dp: 1}\n")
    cluster = (TREE / "scenarios/clusters/local_cpu.yaml").read_text().replace("devices_per_node: 8", "devices_per_node: 2")
    cluster = re.sub(r"(?m)^(\s*memory_gib:) [0-9.]+", r"\1 4096", cluster)  # nothing is trained
    (folder / "cluster.yaml").write_text(cluster)
    subprocess.run([str(WEFT), "plan", "--model", str(model), "--cluster", str(folder / "cluster.yaml"), "--workload",
                    str(workload), "--space", str(space), "--out", str(plan)], check=True, stdout=subprocess.DEVNULL)
    return plan


def bytes_in(folder):
    return sum(file.stat().st_size for file in folder.iterdir())


def measured(command):
    """Seconds, and the most memory that the process had."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise RuntimeError(f"{' '.join(command)} failed")
    return time.perf_counter() - began, usage.ru_maxrss * 1024


def convert(arguments):
    """Each way against a plain copy of what is read or of what is written, whichever is more."""
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = pathlib.Path(name)
        model, checkpoint, out = folder / "model", folder / "checkpoint", folder / "out"
        make_model(model, arguments.gib)
        plan = plan_of_two(model, folder)
        to_checkpoint = ["--plan", str(plan)]
        to_model = ["--shard-size", str(arguments.shard_gib)]
        subprocess.run([str(WEFT), "convert", "--from", str(model), "--to", str(checkpoint), *to_checkpoint], check=True,
                       stdout=subprocess.DEVNULL)
        results = {}
        for way, source, more in (("model_to_model", model, to_model), ("model_to_checkpoint", model, to_checkpoint),
                                  ("checkpoint_to_model", checkpoint, to_model)):
            larger = checkpoint if "checkpoint" in way and bytes_in(checkpoint) > bytes_in(model) else model
            copies, conversions, peaks = [], [], []
            for _ in range(arguments.repeats):
                copies.append(timed(lambda: copy(larger, out)))
                shutil.rmtree(out)
                seconds, peak = measured([str(WEFT), "convert", "--from", str(source), "--to", str(out), *more])
                conversions.append(seconds)
                peaks.append(peak)
                written = bytes_in(out)
                shutil.rmtree(out)
            copy_s, convert_s = statistics.median(copies), statistics.median(conversions)
            results[way] = {"bytes_read": bytes_in(source), "bytes_written": written, "copy_s": copy_s,
                            "convert_s": convert_s, "ratio": convert_s / copy_s, "peak_memory_bytes": max(peaks)}
        return {**results, "at_most": 1.5, "two_shards_bytes": int(2 * arguments.shard_gib * 2**30)}


def snapshot_bytes(plan):
    """Of all ranks together, as predicted."""
    done = subprocess.run([str(WEFT), "simulate", "--plan", str(plan), "--json"], check=True, capture_output=True, text=True)
    return int(sum(json.loads(done.stdout)["checkpoint_copy_gib"]) * 2**30)


def copy_in_memory_s(size):
    """Of so many bytes that are there, into memory that is new, by one thread."""
    source = bytearray(os.urandom(1 << 20) * (size // (1 << 20) + 1))
    return statistics.median(timed(lambda: bytes(source)) for _ in range(5))


def save(arguments):
    """By the clock from one end of a run to another's, so that what is done between steps counts: the second run has
    more steps, and the rest is the same."""
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = pathlib.Path(name)
        plan = folder / "plan.json"
        subprocess.run([str(WEFT), "plan", "--model", arguments.model, "--cluster", "local_cpu", "--workload", "tiny_vl",
                        "--space", str(TREE / "docs/manual/train_space.yaml"), "--out", str(plan)],
                       check=True, stdout=subprocess.DEVNULL)

        def seconds(steps, interval):
            config, run = folder / "train.yaml", folder / "run"
            text = f"steps: {steps}\noptimizer: {{learning_rate: 1.0e-4}}\n"
            config.write_text(text + (f"checkpoints: {{interval_steps: {interval}, keep: 1}}\n" if interval else ""))
            took = timed(lambda: subprocess.run([str(WEFT), "train", "--plan", str(plan), "--config", str(config), "--run",
                                                 str(run), "--json"], check=True, capture_output=True))
            shutil.rmtree(run)
            return took

        times = {"without_ms": [], "with_ms": []}
        for _ in range(arguments.repeats):
            for key, interval in (("without_ms", 0), ("with_ms", arguments.interval)):
                fewer = seconds(arguments.interval, interval)
                more = seconds(arguments.interval + arguments.steps, interval)
                times[key].append(1e3 * (more - fewer) / arguments.steps)
        medians = {key: statistics.median(values) for key, values in times.items()}
        size = snapshot_bytes(plan)
        return {**medians, "ratio": medians["with_ms"] / medians["without_ms"],
                "cost_per_save_ms": (medians["with_ms"] - medians["without_ms"]) * arguments.interval,
                "snapshot_bytes": size, "copy_of_them_ms": 1e3 * copy_in_memory_s(size), "all": times}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["convert", "save"])
    parser.add_argument("--gib", type=float, default=2)
    parser.add_argument("--shard-gib", type=float, default=0.5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--interval", type=int, default=4)
    parser.add_argument("--model", default="tiny-vl")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", default=None, help="where files go: on the disk that is measured")
    arguments = parser.parse_args()
    print(json.dumps({"convert": convert, "save": save}[arguments.what](arguments), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
