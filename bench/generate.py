"""Greedy generation after one prompt with one image: weft predict and transformers' generate, in one run.

  python3 bench/generate.py [2b|7b|tiny] [--new-tokens 256] [--weft build/weft] [--folder DIR]

A random model in bf16 is saved as a Hugging Face folder, which both load. transformers runs with its own default, a
cache that grows, and with a static cache, whose decoding step it compiles. Rates are of tokens after the first, and of
the whole answer with its prompt.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
from safetensors.torch import save_file

from vl_step import DEVICE, SIZES, make_batch, make_model, synchronize

REPEATS = 3


def timed(work):
    synchronize()
    begin = time.perf_counter()
    result = work()
    synchronize()
    return time.perf_counter() - begin, result


def generate_with_transformers(model, batch, count, way):
    """Seconds for one token, seconds for all, and the tokens."""
    settings = dict(do_sample=False, eos_token_id=None, pad_token_id=0)
    if way == "static":
        settings["cache_implementation"] = "static"
    run = lambda n: model.generate(**batch, max_new_tokens=n, min_new_tokens=n, **settings)
    for _ in range(2):
        run(count)
    first = statistics.median(timed(lambda: run(1))[0] for _ in range(REPEATS))
    times = [timed(lambda: run(count)) for _ in range(REPEATS)]
    return first, statistics.median(seconds for seconds, _ in times), times[0][1][0, batch["input_ids"].shape[1]:].tolist()


def generate_with_weft(program, folder, count):
    """The same, of several equal prompts in one program, the first of which warms the machine."""
    prompt = {"prompts": [{"tensors": "prompt.safetensors"}] * (REPEATS + 1), "max_new_tokens": count}
    (folder / "prompt.json").write_text(json.dumps(prompt))
    command = [program, "predict", "--model", str(folder), "--prompt-file", str(folder / "prompt.json"), "--device", DEVICE,
               "--dtype", "bf16", "--ignore-end", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {ran.stderr}")
    report = json.loads(ran.stdout)
    times = report["prompt_ms"][1:]
    first = statistics.median(time["prefill"] for time in times) / 1e3
    whole = statistics.median(time["prefill"] + time["decode"] for time in times) / 1e3
    return first, whole, report["prompts"][-1]["tokens"]


def num_equal(ours, other):
    return next((i for i, (a, b) in enumerate(zip(ours, other)) if a != b), min(len(ours), len(other)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("size", nargs="?", default="2b", choices=list(SIZES))
    parser.add_argument("--new-tokens", type=int, default=256)
    parser.add_argument("--prompt-tokens", type=int, default=0, help="default: 1,100, tiny 80")
    parser.add_argument("--weft", default="build/weft")
    parser.add_argument("--folder", help="where the model is written; default: a folder that is deleted")
    options = parser.parse_args()
    kept = None if options.folder else tempfile.TemporaryDirectory()
    folder = pathlib.Path(options.folder or kept.name)
    torch.manual_seed(1)
    config, model = make_model(options.size, use_cache=True)
    model.eval()
    model.generation_config.eos_token_id = model.generation_config.bos_token_id = None
    model.save_pretrained(folder)
    batch = make_batch(options.size, 1, options.prompt_tokens or (80 if options.size == "tiny" else 1100))
    save_file({name: batch[name].cpu().contiguous() for name in ("input_ids", "pixel_values", "image_grid_thw")},
              str(folder / "prompt.safetensors"))
    count = options.new_tokens
    weft_first, weft_all, weft_tokens = generate_with_weft(options.weft, folder, count)
    print(f"weft {options.size}: first token after {weft_first * 1e3:.1f} ms, then "
          f"{(count - 1) / (weft_all - weft_first):.1f} tokens/s, all {count} in {weft_all * 1e3:.0f} ms", flush=True)
    for way in ("growing", "static"):
        try:
            with torch.no_grad():
                first, all_s, tokens = generate_with_transformers(model, batch, count, way)
        except Exception as problem:  # a static cache is not for every version
            print(f"transformers {way}: {type(problem).__name__}: {str(problem).splitlines()[0]}", flush=True)
            continue
        print(f"transformers {way} cache {options.size}: first token after {first * 1e3:.1f} ms, then "
              f"{(count - 1) / (all_s - first):.1f} tokens/s, all in {all_s * 1e3:.0f} ms; weft is "
              f"{(all_s - first) / (weft_all - weft_first):.2f} x as fast a token, {all_s / weft_all:.2f} x in all; "
              f"the first {num_equal(weft_tokens, tokens)} tokens are equal", flush=True)


if __name__ == "__main__":
    main()
