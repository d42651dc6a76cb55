"""Hugging Face's Qwen2-VL on PyTorch, eager and compiled, all bf16, on one GPU: what weft_vl_step is compared with.

  python3 bench/vl_step.py [2b|7b] [eager|compile]

Same shapes: 4 x 4,096 tokens (7B: 2 x 4,096), one image of 4,096 patches a sample, labels on all tokens.
"""
import statistics
import sys
import time

import torch
from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

SIDE = 64
SIZES = {
    "2b": dict(samples=4, hidden_size=1536, intermediate_size=8960, num_attention_heads=12, num_key_value_heads=2, tied=True),
    "7b": dict(samples=2, hidden_size=3584, intermediate_size=18944, num_attention_heads=28, num_key_value_heads=4, tied=False),
}
IMAGE, START, END = 151655, 151652, 151653


def make_model(size):
    numbers = dict(SIZES[size])
    tied = numbers.pop("tied")
    numbers.pop("samples")
    text = dict(numbers, num_hidden_layers=28, vocab_size=151936 if tied else 152064, max_position_embeddings=32768,
                rope_theta=1e6, tie_word_embeddings=tied, use_cache=False,
                rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]})
    vision = dict(depth=32, embed_dim=1280, hidden_size=numbers["hidden_size"], num_heads=16, mlp_ratio=4, patch_size=14,
                  spatial_merge_size=2, temporal_patch_size=2)
    config = Qwen2VLConfig(text_config=text, vision_config=vision, image_token_id=IMAGE, vision_start_token_id=START,
                           vision_end_token_id=END, tie_word_embeddings=tied)
    config._attn_implementation = "sdpa"
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Qwen2VLForConditionalGeneration(config)
    torch.set_default_dtype(torch.float32)
    return config, model.train()


def make_batch(samples, tokens):
    merged = SIDE * SIDE // 4
    ids = torch.randint(0, 150000, (samples, tokens), device="cuda")
    ids[:, 10] = START
    ids[:, 11:11 + merged] = IMAGE
    ids[:, 11 + merged] = END
    pixels = torch.randn(samples * SIDE * SIDE, 3 * 2 * 14 * 14, device="cuda", dtype=torch.bfloat16)
    grids = torch.tensor([[1, SIDE, SIDE]] * samples, device="cuda")
    return dict(input_ids=ids, labels=ids.clone(), pixel_values=pixels, image_grid_thw=grids,
                attention_mask=torch.ones_like(ids), mm_token_type_ids=(ids == IMAGE).int())


def run(size, way, steps=8, warm=4):
    config, model = make_model(size)
    samples, tokens = SIZES[size]["samples"], 4096
    batch = make_batch(samples, tokens)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    forward = torch.compile(model) if way == "compile" else model
    both, rest = [], []
    for step in range(warm + steps):
        if step == warm:
            torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
        t0 = time.perf_counter()
        out = forward(**batch)
        out.loss.backward()
        torch.cuda.synchronize()
        t1 = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        t2 = time.perf_counter()
        if step >= warm:
            both.append((t1 - t0) * 1e3)
            rest.append((t2 - t1) * 1e3)
    text = sum(p.numel() for n, p in model.named_parameters() if "visual" not in n and "embed_tokens" not in n)
    if SIZES[size]["tied"]:
        text += config.text_config.vocab_size * config.text_config.hidden_size
    vision = sum(p.numel() for n, p in model.named_parameters() if "visual" in n)
    count, patches = samples * tokens, samples * SIDE * SIDE
    flops = 6 * text * count + 6 * 28 * config.text_config.hidden_size * tokens * count
    flops += 6 * vision * patches + 12 * 32 * 1280 * SIDE * SIDE * patches
    fb, o = statistics.median(both), statistics.median(rest)
    peak = torch.cuda.max_memory_allocated() / 2**30
    print(f"{way} {size}: fwdbwd {fb:.1f} ms, optimizer {o:.1f} ms, tok/s {count / (fb + o) * 1e3:.0f}, "
          f"model TFLOP/s {flops / (fb + o) / 1e9:.0f} (fwdbwd only {flops / fb / 1e9:.0f}), peak {peak:.1f} GiB, "
          f"loss {out.loss.item():.3f}", flush=True)


if __name__ == "__main__":
    sizes = [a for a in sys.argv[1:] if a in SIZES] or list(SIZES)
    ways = [a for a in sys.argv[1:] if a in ("eager", "compile")] or ["eager", "compile"]
    for size in sizes:
        for way in ways:
            run(size, way)
            torch._dynamo.reset()
            torch.cuda.empty_cache()
