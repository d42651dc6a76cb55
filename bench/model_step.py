"""A training step of ours beside PyTorch eager's: model_step.py [--steps N] [--threads K ...] [--only CASE ...]

Needs torch 2.11 and transformers, and the target weft_model_step. Both sides get the same weights, inputs and threads, run
forward, backward and fused AdamW in processes of their own, and step in turn, so that the machine's noise falls on both
alike. PyTorch eager is transformers' model in train mode with sdpa attention; samples of unequal length are padded to one
batch, as its users do. Memory is the most that is resident during a step, less what is resident when the libraries are
loaded and no model is there yet. Processor time is given beside the clock's: on a shared machine it is the steadier
figure. Losses are printed too: they stay together, or the sides do different work.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build" / "bench" / "weft_model_step"
IGNORED = -100
IMAGE, VIDEO, START, END = 8000, 8001, 8002, 8003
FIRST_SPECIAL = 7990
# Samples of a case: tokens of text, and images as rows and columns of patches; of internvl, tiles of 16 by 16.
CASES = {
    "llama, one sample of 768 tokens": ("llama", [(768, [])]),
    "llama, four samples of 192 tokens": ("llama", [(192, [])] * 4),
    "llama, samples of 40 to 400 tokens": ("llama", [(n, []) for n in (400, 75, 210, 40, 120)]),
    "qwen2-vl, one sample with two images": ("vl", [(400, [(24, 28), (16, 20)])]),
    "qwen2-vl, samples with and without images": ("vl", [(120, [(24, 28)]), (60, [(10, 12), (16, 20)]), (240, []), (90, [])]),
    "gpt2, one sample of 768 tokens": ("gpt2", [(768, [])]),
    "gpt2, four samples of 192 tokens": ("gpt2", [(192, [])] * 4),
    "gpt2, samples of 40 to 400 tokens": ("gpt2", [(n, []) for n in (400, 75, 210, 40, 120)]),
    "qwen3-vl, one sample with two images": ("qwen3-vl", [(400, [(24, 28), (16, 20)])]),
    "qwen3-vl, samples with and without images": ("qwen3-vl", [(120, [(24, 28)]), (60, [(10, 12), (16, 20)]), (240, []), (90, [])]),
    "qwen3-vl-moe, one sample with two images": ("qwen3-vl-moe", [(400, [(24, 28), (16, 20)])]),
    "internvl, one sample with three tiles": ("internvl", [(400, [(16, 16)] * 3)]),
    "internvl, samples with and without tiles": ("internvl", [(120, [(16, 16)] * 2), (60, [(16, 16)]), (240, []), (90, [])]),
}
TOKENS = {"image_token_id": IMAGE, "video_token_id": VIDEO, "vision_start_token_id": START, "vision_end_token_id": END}
PATCH_SIZE = {"vl": 14, "qwen3-vl": 16, "qwen3-vl-moe": 16}


def qwen3_configuration(kind, text):
    from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLConfig
    from transformers.models.qwen3_vl_moe.configuration_qwen3_vl_moe import Qwen3VLMoeConfig

    text |= {"head_dim": 64, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [12, 10, 10],
                                                 "mrope_interleaved": True}}
    vision = {"depth": 4, "hidden_size": 320, "num_heads": 4, "intermediate_size": 1280, "out_hidden_size": 512,
              "deepstack_visual_indexes": [1, 2], "num_position_embeddings": 576}
    if kind == "qwen3-vl":
        return Qwen3VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **TOKENS)
    text |= {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 352, "decoder_sparse_step": 1, "mlp_only_layers": []}
    return Qwen3VLMoeConfig(text_config=text, vision_config=vision, tie_word_embeddings=False, **TOKENS)


def internvl_configuration(text):
    from transformers import InternVLConfig

    text |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "model_type": "qwen2"}
    vision = {"hidden_size": 320, "num_attention_heads": 4, "num_hidden_layers": 4, "intermediate_size": 1280, "patch_size": [14, 14],
              "image_size": [224, 224], "attention_bias": True, "use_qk_norm": False, "norm_type": "layer_norm"}
    return InternVLConfig(text_config=text, vision_config=vision, tie_word_embeddings=False, image_token_id=IMAGE, image_seq_length=64,
                          downsample_ratio=0.5, vision_feature_layer=-1)


def configuration(kind):
    from transformers import GPT2Config, LlamaConfig, Qwen2VLConfig

    if kind == "gpt2":
        return GPT2Config(vocab_size=8192, n_embd=512, n_layer=6, n_head=8, n_positions=1024, resid_pdrop=0.0, embd_pdrop=0.0,
                          attn_pdrop=0.0, tie_word_embeddings=True)
    text = {"vocab_size": 8192, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 6, "num_attention_heads": 8,
            "num_key_value_heads": 2, "max_position_embeddings": 4096}
    if kind == "llama":
        return LlamaConfig(**text, tie_word_embeddings=False)
    text["num_hidden_layers"] = 4
    if kind.startswith("qwen3"):
        return qwen3_configuration(kind, text)
    if kind == "internvl":
        return internvl_configuration(text)
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]}
    vision = {"depth": 4, "embed_dim": 320, "num_heads": 4, "mlp_ratio": 4, "hidden_size": 512}
    return Qwen2VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **TOKENS)


def model_class(kind):
    import transformers

    names = {"llama": "LlamaForCausalLM", "gpt2": "GPT2LMHeadModel", "vl": "Qwen2VLForConditionalGeneration",
             "qwen3-vl": "Qwen3VLForConditionalGeneration", "qwen3-vl-moe": "Qwen3VLMoeForConditionalGeneration",
             "internvl": "InternVLForConditionalGeneration"}
    return getattr(transformers, names[kind])


def draw_inputs(kind, samples):
    """Packed ids and targets of all samples, with the images' patches."""
    import torch

    torch.manual_seed(7)
    ids, targets, pixels, grids = [], [], [], []
    for words, images in samples:
        sample = []
        for rows, columns in images:
            sample += [START] + [IMAGE] * (rows * columns // 4) + [END]
            if kind == "internvl":
                pixels.append(torch.randn(1, 3, 14 * rows, 14 * columns))
                continue
            grids.append((1, rows, columns))
            pixels.append(torch.randn(rows * columns, 3 * 2 * PATCH_SIZE[kind] ** 2))
        sample += torch.randint(0, FIRST_SPECIAL, (words,)).tolist()
        ids.append(sample)
        targets += [IGNORED if t >= FIRST_SPECIAL else t for t in sample[1:]] + [IGNORED]
    tensors = {"input_ids": torch.tensor([i for sample in ids for i in sample]), "targets": torch.tensor(targets),
               "lengths": torch.tensor([len(sample) for sample in ids])}
    if pixels:
        tensors["pixel_values"] = torch.cat(pixels)
    if grids:
        tensors["image_grid_thw"] = torch.tensor(grids)
    return tensors


def padded(tensors):
    """The keyword arguments of transformers' forward."""
    import torch

    lengths = tensors["lengths"].tolist()
    pad = lambda packed, value: torch.nn.utils.rnn.pad_sequence(packed.split(lengths), batch_first=True, padding_value=value)
    ids = pad(tensors["input_ids"], 0)
    labels = torch.where(ids >= FIRST_SPECIAL, IGNORED, ids)
    mask = pad(torch.ones_like(tensors["input_ids"]), 0)
    labels[mask == 0] = IGNORED
    arguments = {"input_ids": ids, "labels": labels, "attention_mask": mask, "use_cache": False}
    if "pixel_values" in tensors:
        arguments["pixel_values"] = tensors["pixel_values"]
    if "image_grid_thw" in tensors:
        arguments |= {"image_grid_thw": tensors["image_grid_thw"], "mm_token_type_ids": (ids == IMAGE).int()}
    return arguments


def status_kib(field):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])


def work(kind, folder, threads):
    """PyTorch's side: as weft_model_step, a line for every line."""
    import time

    import torch
    from safetensors.torch import load_file

    torch.set_num_threads(threads)
    cls = model_class(kind)
    torch.ones(64, 64) @ torch.ones(64, 64)
    before = status_kib("VmRSS")
    model = cls.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").train()
    inputs = padded(load_file(pathlib.Path(folder) / "inputs.safetensors"))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in sys.stdin:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        start, processor = time.perf_counter(), time.process_time()
        loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        ms = (time.perf_counter() - start) * 1e3
        processor_ms = (time.process_time() - processor) * 1e3
        print(f"{ms:.3f} {processor_ms:.3f} {loss.item():.7f} {status_kib('VmHWM') - before}", flush=True)


class Side:
    def __init__(self, command):
        self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        stderr=subprocess.DEVNULL)
        self.ms, self.processor_ms, self.losses, self.mib = [], [], [], []

    def step(self):
        print(file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"{self.process.args[0]} ended with {self.process.wait()}")
        ms, processor_ms, loss, kib = answer.split()
        self.ms.append(float(ms))
        self.processor_ms.append(float(processor_ms))
        self.losses.append(float(loss))
        self.mib.append(int(kib) / 1024)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(name, kind, folder, threads, steps):
    ours = Side([PROGRAM, folder, threads])
    theirs = Side([sys.executable, __file__, "--worker", kind, folder, threads])
    for _ in range(steps + 2):
        ours.step()
        theirs.step()
    ours.close()
    theirs.close()
    ratios = [a / b for a, b in zip(ours.ms[2:], theirs.ms[2:])]
    processor = [a / b for a, b in zip(ours.processor_ms[2:], theirs.processor_ms[2:])]
    median = statistics.median
    difference = max(abs(a - b) / b for a, b in zip(ours.losses, theirs.losses))
    print(f"{name}, {threads} threads: {median(ours.ms[2:]):.0f} ms against {median(theirs.ms[2:]):.0f}, "
          f"fastest {min(ours.ms[2:]):.0f} against {min(theirs.ms[2:]):.0f}, "
          f"time {median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f}); "
          f"processor time {median(processor):.3f} ({min(processor):.2f} to {max(processor):.2f}); "
          f"memory {max(ours.mib):.0f} MiB against {max(theirs.mib):.0f}, {max(ours.mib) / max(theirs.mib):.3f}; "
          f"losses {ours.losses[0]:.4f} to {ours.losses[-1]:.4f}, apart by {difference:.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", default=[""])
    parser.add_argument("--worker", nargs=3)
    arguments = parser.parse_args()
    if arguments.worker:
        kind, folder, threads = arguments.worker
        return work(kind, folder, int(threads))
    import torch
    from safetensors.torch import save_file

    for name, (kind, samples) in CASES.items():
        if not any(part in name for part in arguments.only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(1)
            model_class(kind)(configuration(kind)).save_pretrained(folder)
            save_file(draw_inputs(kind, samples), pathlib.Path(folder) / "inputs.safetensors")
            for threads in arguments.threads:
                compare(name, kind, folder, threads, arguments.steps)


if __name__ == "__main__":
    main()
