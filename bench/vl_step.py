"""Hugging Face's Qwen2-VL on PyTorch, eager and compiled, all bf16, on one GPU: what weft_vl_step is compared with.

  python3 bench/vl_step.py [2b|7b|tiny] [eager|compile] [--adapters RANK] [--weft build/bench/weft_vl_step]

Same shapes: 4 x 4,096 tokens (7B: 2 x 4,096), one image of 4,096 patches a sample, labels on all tokens. With adapters
all linear layers of the llm have PEFT's, of type bf16, and the rest is frozen. With --weft that program runs first, and
every line of ours ends with how many times as long as its step this one takes. The tiny model runs without a GPU, too.
"""
import argparse
import re
import statistics
import subprocess
import time

import torch
from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

SIZES = {
    "2b": dict(samples=4, hidden_size=1536, intermediate_size=8960, num_attention_heads=12, num_key_value_heads=2, tied=True),
    "7b": dict(samples=2, hidden_size=3584, intermediate_size=18944, num_attention_heads=28, num_key_value_heads=4, tied=False),
    "tiny": dict(samples=2, hidden_size=128, intermediate_size=256, num_attention_heads=4, num_key_value_heads=2, tied=True),
}
LINEARS = "q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def shape_of(size):
    """Tokens a sample, patches along an image's side, and the numbers of tokens that stand for media."""
    if size == "tiny":
        return dict(tokens=256, side=16, vocabulary=512, image=505, start=502, end=503)
    return dict(tokens=4096, side=64, vocabulary=151936 if SIZES[size]["tied"] else 152064, image=151655, start=151652,
                end=151653)


def make_model(size, use_cache=False):
    numbers, shape = dict(SIZES[size]), shape_of(size)
    tied = numbers.pop("tied")
    numbers.pop("samples")
    is_tiny = size == "tiny"
    text = dict(numbers, num_hidden_layers=2 if is_tiny else 28, vocab_size=shape["vocabulary"],
                max_position_embeddings=4096 if is_tiny else 32768, rope_theta=1e6, tie_word_embeddings=tied,
                use_cache=use_cache, rope_scaling={"type": "mrope", "mrope_section": [4, 6, 6] if is_tiny else [16, 24, 24]})
    vision = dict(depth=2 if is_tiny else 32, embed_dim=64 if is_tiny else 1280, hidden_size=numbers["hidden_size"],
                  num_heads=4 if is_tiny else 16, mlp_ratio=4, patch_size=14, spatial_merge_size=2, temporal_patch_size=2)
    config = Qwen2VLConfig(text_config=text, vision_config=vision, image_token_id=shape["image"],
                           video_token_id=shape["image"] + 1, vision_start_token_id=shape["start"],
                           vision_end_token_id=shape["end"], tie_word_embeddings=tied)
    config._attn_implementation = "sdpa"
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(DEVICE):
        model = Qwen2VLForConditionalGeneration(config)
    torch.set_default_dtype(torch.float32)
    return config, model


def make_batch(size, samples, tokens):
    shape = shape_of(size)
    side, merged = shape["side"], shape["side"] ** 2 // 4
    ids = torch.randint(0, shape["vocabulary"] * 9 // 10, (samples, tokens), device=DEVICE)
    ids[:, 10] = shape["start"]
    ids[:, 11:11 + merged] = shape["image"]
    ids[:, 11 + merged] = shape["end"]
    pixels = torch.randn(samples * side * side, 3 * 2 * 14 * 14, device=DEVICE, dtype=torch.bfloat16)
    grids = torch.tensor([[1, side, side]] * samples, device=DEVICE)
    return dict(input_ids=ids, pixel_values=pixels, image_grid_thw=grids, attention_mask=torch.ones_like(ids),
                mm_token_type_ids=(ids == shape["image"]).int())


def with_adapters(model, rank):
    from peft import LoraConfig, get_peft_model
    config = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0,
                        target_modules=rf".*language_model.*\.({LINEARS})", bias="none")
    # Its default makes adapters of a bf16 model fp32, and their products with them: slower.
    return get_peft_model(model, config, autocast_adapter_dtype=False)


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def model_flops(size, config, model, count, patches):
    text = sum(p.numel() for n, p in model.named_parameters() if "visual" not in n and "embed_tokens" not in n)
    if SIZES[size]["tied"]:
        text += config.text_config.vocab_size * config.text_config.hidden_size
    vision = sum(p.numel() for n, p in model.named_parameters() if "visual" in n)
    layers, depth, width = config.text_config.num_hidden_layers, config.vision_config.depth, config.vision_config.embed_dim
    side, tokens = shape_of(size)["side"], shape_of(size)["tokens"]
    flops = 6 * text * count + 6 * layers * config.text_config.hidden_size * tokens * count
    return flops + 6 * vision * patches + 12 * depth * width * side * side * patches


def run(size, way, rank, weft_ms, steps=8, warm=4):
    config, model = make_model(size)
    samples, tokens, side = SIZES[size]["samples"], shape_of(size)["tokens"], shape_of(size)["side"]
    batch = make_batch(size, samples, tokens)
    batch["labels"] = batch["input_ids"].clone()
    if rank:
        model = with_adapters(model, rank)
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=DEVICE == "cuda")
    forward = torch.compile(model) if way == "compile" else model
    both, rest = [], []
    for step in range(warm + steps):
        if step == warm and DEVICE == "cuda":
            torch.cuda.reset_peak_memory_stats()
        synchronize()
        t0 = time.perf_counter()
        out = forward(**batch)
        out.loss.backward()
        synchronize()
        t1 = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        synchronize()
        t2 = time.perf_counter()
        if step >= warm:
            both.append((t1 - t0) * 1e3)
            rest.append((t2 - t1) * 1e3)
    count = samples * tokens
    fb, o = statistics.median(both), statistics.median(rest)
    peak = torch.cuda.max_memory_allocated() / 2**30 if DEVICE == "cuda" else float("nan")
    rates = f"tok/s {count / (fb + o) * 1e3:.0f}"
    if not rank:
        flops = model_flops(size, config, model, count, samples * side * side)
        rates += f", model TFLOP/s {flops / (fb + o) / 1e9:.0f} (fwdbwd only {flops / fb / 1e9:.0f})"
    name = f"{way} {size}" + (f" lora {rank} ({sum(p.numel() for p in trained):,} trained)" if rank else "")
    ratio = f", {fb / weft_ms[0]:.2f} x weft's fwdbwd, {(fb + o) / weft_ms[1]:.2f} x its step" if weft_ms else ""
    print(f"{name}: fwdbwd {fb:.1f} ms, optimizer {o:.1f} ms, {rates}, peak {peak:.1f} GiB, loss {out.loss.item():.3f}"
          f"{ratio}", flush=True)


def run_weft(program, size, rank, steps=8):
    """Forward with backward, and the step, in milliseconds."""
    command = [program, "--case", f"{size}-bf16", "--steps", str(steps)]
    line = subprocess.run(command + (["--adapters", str(rank)] if rank else []), capture_output=True, text=True, check=True)
    print(line.stdout, end="", flush=True)
    found = re.search(r"fwdbwd ([\d.]+) ms,.* rest of the step ([\d.]+) ms", line.stdout)
    return (float(found[1]), float(found[1]) + float(found[2])) if found else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="2b|7b|tiny|eager|compile")
    parser.add_argument("--adapters", type=int, default=0, metavar="RANK")
    parser.add_argument("--weft", metavar="PROGRAM")
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    sizes = [name for name in options.names if name in SIZES] or ["2b", "7b"]
    ways = [name for name in options.names if name not in SIZES] or ["eager", "compile"]
    if wrong := set(ways) - {"eager", "compile"}:
        parser.error(f"'{wrong.pop()}' is none of {', '.join(SIZES)}, eager and compile")
    for size in sizes:
        weft_ms = run_weft(options.weft, size, options.adapters, options.steps) if options.weft else None
        for way in ways:
            run(size, way, options.adapters, weft_ms, options.steps)
            torch._dynamo.reset()
            if DEVICE == "cuda":
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
