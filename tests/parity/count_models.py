"""Counts parameters and FLOPs with Hugging Face's own implementation, for weft/spec to be compared with.

Makes configurations of every family that Weft reads, with awkward sizes, in the old flat and the new nested form, builds
each model, counts its parameters, runs it once under PyTorch's FLOP counter, and writes configurations and counts to
model_counts.json beside this file. Attention is the unfused kind, which computes every pair, masked or not; images are
whole windows, because a window at an image's edge depends on more than the number of patches.

    python -m venv env && env/bin/pip install torch==2.11.0 transformers==5.17.0
    env/bin/python tests/parity/count_models.py [--seed 1] [--cases 6] [--out FILE]
"""

import argparse
import copy
import json
import pathlib
import random

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.models.qwen2_5_omni.configuration_qwen2_5_omni import Qwen2_5OmniThinkerConfig
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import Qwen2_5OmniThinkerForConditionalGeneration
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLForConditionalGeneration
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl_moe.modeling_qwen3_vl_moe import Qwen3VLMoeForConditionalGeneration

TEXT_FAMILIES = ("llama", "qwen2", "qwen3", "qwen3_moe")
VISION_FAMILIES = ("qwen2_vl", "qwen2_5_vl")
STACKED_FAMILIES = {"qwen3_vl": Qwen3VLForConditionalGeneration, "qwen3_vl_moe": Qwen3VLMoeForConditionalGeneration}


def text_fields(rng, family):
    kv_heads = rng.choice([1, 2, 3, 5])
    heads = kv_heads * rng.choice([1, 2, 4, 7])
    head_dim = rng.choice([8, 16, 24])
    fields = {
        "vocab_size": rng.randrange(50, 2000),
        "hidden_size": heads * head_dim,
        "intermediate_size": rng.randrange(16, 500),
        "num_hidden_layers": rng.randrange(1, 9),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
    }
    if family in ("llama", "qwen3", "qwen3_moe"):
        fields["attention_bias"] = rng.random() < 0.5
        if rng.random() < 0.6:
            fields["head_dim"] = rng.choice([8, 32, 48])
    if family == "llama":
        fields["mlp_bias"] = rng.random() < 0.5
    if family == "llama" and rng.random() < 0.3:
        del fields["num_key_value_heads"]
    elif family != "qwen3_moe" and rng.random() < 0.2:
        fields["num_key_value_heads"] = None
    if family == "qwen3_moe":
        layers = fields["num_hidden_layers"]
        fields |= {
            "moe_intermediate_size": rng.randrange(8, 100),
            "num_experts": rng.choice([4, 7, 16]),
            "num_experts_per_tok": rng.choice([1, 2, 4]),
            "decoder_sparse_step": rng.choice([1, 1, 2, 3]),
            "mlp_only_layers": sorted(rng.sample(range(2 * layers), rng.randrange(0, layers))),
        }
    return fields


def gpt2_fields(rng):
    heads = rng.choice([1, 2, 3, 5, 8])
    fields = {
        "vocab_size": rng.randrange(50, 2000),
        "n_positions": rng.randrange(64, 300),
        "n_embd": heads * rng.choice([8, 16, 24]),
        "n_layer": rng.randrange(1, 9),
        "n_head": heads,
    }
    if rng.random() < 0.5:
        fields["n_inner"] = rng.choice([None, rng.randrange(16, 500)])
    if rng.random() < 0.3:
        fields |= {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    return fields


def mrope_text_fields(rng, is_new_form):
    fields = text_fields(rng, "qwen2")
    section = fields["hidden_size"] // fields["num_attention_heads"] // 2
    third = section // 3
    section = {"mrope_section": [section - 2 * third, third, third]}
    if is_new_form:
        return fields | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, **section}}
    return fields | {"rope_scaling": {"type": "mrope", **section}}


def vision_fields(rng, family, llm_width):
    heads = rng.choice([2, 3, 4])
    width = heads * rng.choice([8, 16, 20])
    fields = {
        "depth": rng.randrange(1, 12),
        "num_heads": heads,
        "in_channels": rng.choice([1, 3]),
        "patch_size": rng.choice([7, 14, 16]),
        "spatial_merge_size": rng.choice([1, 2, 3]),
        "temporal_patch_size": rng.choice([1, 2]),
    }
    if family == "qwen2_vl":
        return fields | {"embed_dim": width, "hidden_size": llm_width, "mlp_ratio": rng.choice([2, 3, 4])}
    indexes = sorted(rng.sample(range(2 * fields["depth"]), rng.randrange(0, fields["depth"] + 1)))
    return fields | {
        "hidden_size": width,
        "out_hidden_size": llm_width,
        "intermediate_size": rng.randrange(16, 300),
        "window_size": fields["patch_size"] * fields["spatial_merge_size"] * rng.choice([1, 2, 4]),
        "fullatt_block_indexes": indexes,
    }


def audio_fields(rng, llm_width):
    heads = rng.choice([2, 4, 5])
    return {
        "num_mel_bins": rng.choice([16, 80, 128]),
        "encoder_layers": rng.randrange(1, 9),
        "encoder_attention_heads": heads,
        "encoder_ffn_dim": rng.randrange(16, 300),
        "d_model": heads * rng.choice([8, 16, 20]),
        "n_window": rng.choice([10, 50, 100]),
        "output_dim": llm_width,
        "max_source_positions": 1500,
    }


def tie(rng, where):
    """Some files tie at the root, older ones inside text_config, some say nothing."""
    config = {}
    if rng.random() < 0.7:
        config["tie_word_embeddings"] = rng.random() < 0.5
    if where is not None and rng.random() < 0.5:
        where["tie_word_embeddings"] = rng.random() < 0.5
    return config


def make_config(rng, family, form):
    if family == "gpt2":
        return {"model_type": family, **gpt2_fields(rng), **tie(rng, None)}
    if family in TEXT_FAMILIES:
        return {"model_type": family, **text_fields(rng, family), **tie(rng, None)}
    text = mrope_text_fields(rng, is_new_form=form != "flat")
    if family in VISION_FAMILIES:
        vision = vision_fields(rng, family, text["hidden_size"])
        if form == "flat":
            return {"model_type": family, **text, "vision_config": vision, **tie(rng, None)}
        return {"model_type": family, **tie(rng, text), "text_config": text, "vision_config": vision}
    config = {
        "model_type": "qwen2_5_omni_thinker",
        **tie(rng, text),
        "text_config": text,
        "vision_config": vision_fields(rng, "qwen2_5_vl", text["hidden_size"]),
        "audio_config": audio_fields(rng, text["hidden_size"]),
    }
    return {"model_type": "qwen2_5_omni", "thinker_config": config} if form == "whole" else config


def build(config):
    config = copy.deepcopy(config)
    family = config.pop("model_type")
    if family == "qwen2_5_omni":
        config = config["thinker_config"]
        family = config.pop("model_type")
    config |= {"attn_implementation": "eager"}
    if family == "qwen2_5_omni_thinker":
        return Qwen2_5OmniThinkerForConditionalGeneration(Qwen2_5OmniThinkerConfig(**config))
    if family in ("qwen3_moe", "qwen3_vl_moe"):
        config |= {"experts_implementation": "eager"}
    loaded = AutoConfig.for_model(family, **config)
    if family == "internvl":
        return AutoModelForImageTextToText.from_config(loaded)
    if family == "qwen2_vl":
        return Qwen2VLForConditionalGeneration(loaded)
    if family == "qwen2_5_vl":
        return Qwen2_5_VLForConditionalGeneration(loaded)
    if family in STACKED_FAMILIES:
        return STACKED_FAMILIES[family](loaded)
    return AutoModelForCausalLM.from_config(loaded)


def count(model):
    model.tie_weights()
    counts = {"vision": 0, "audio": 0, "llm": 0}
    for name, parameter in model.named_parameters():  # lists a tied weight once
        module = "vision" if any(part in name for part in ("visual", "vision_tower", "multi_modal_projector")) else "audio" if "audio_tower" in name else "llm"
        counts[module] += parameter.numel()
    counts = {module: number for module, number in counts.items() if number > 0}
    return counts | {"total": sum(counts.values())}


def flops_of(run, with_backward=False):
    """Without the product that makes rotary angles: no model of FLOPs counts it."""
    with torch.set_grad_enabled(with_backward), FlopCounterMode(display=False) as counter:
        output = run()
        if with_backward:
            tensor = next(getattr(output, name) for name in ("logits", "pooler_output", "last_hidden_state")
                          if getattr(output, name, None) is not None)
            sum(t.sum() for t in (tensor, *(getattr(output, "deepstack_features", None) or ()))).backward()
    counts = {name: sum(by_op.values()) for name, by_op in counter.get_flop_counts().items()}
    return counts["Global"] - sum(number for name, number in counts.items() if "rotary" in name.rsplit(".", 1)[-1])


def frozen_llm_flops(model, tokens, width):
    """Forward and backward through a language model whose weights stay, to embeddings that are trained."""
    model.requires_grad_(False)
    embeddings = torch.randn(1, tokens, width, requires_grad=True)
    flops = flops_of(lambda: model(inputs_embeds=embeddings), with_backward=True)
    model.requires_grad_(True)
    return flops


def run_once(rng, model):
    """One sequence of text, and where the model has encoders some images and a clip, each module by itself."""
    text = getattr(model.config, "text_config", model.config)
    tokens = rng.randrange(1, 60)
    case = {"tokens": tokens}
    runs = {"llm": lambda: model(input_ids=torch.randint(0, text.vocab_size, (1, tokens)))}
    vision = getattr(model.config, "vision_config", None)
    if hasattr(model.config, "image_seq_length"):
        tiles = rng.randrange(1, 4)
        case["patches"] = [tiles * (vision.image_size[0] // vision.patch_size[0]) ** 2]
        pixels = torch.randn(tiles, vision.num_channels, *vision.image_size)
        runs["vision"] = lambda: model.model.get_image_features(
            pixels, vision_feature_layer=model.config.vision_feature_layer, vision_feature_select_strategy="default")
    elif vision is not None:
        side = vision.spatial_merge_size
        if hasattr(vision, "window_size"):
            side *= vision.window_size // vision.spatial_merge_size // vision.patch_size
        grids = [(1, side * rng.randrange(1, 4), side * rng.randrange(1, 4)) for _ in range(rng.randrange(1, 4))]
        case["patches"] = [h * w for _, h, w in grids]
        pixels = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
        tower = model.model.visual if hasattr(model.model, "visual") else model.visual
        runs["vision"] = lambda: tower(torch.randn(sum(case["patches"]), pixels), grid_thw=torch.tensor(grids))
    audio = getattr(model.config, "audio_config", None)
    if audio is not None:
        # Whole windows: a shorter one is padded to full length before the convolutions, which Weft does not do.
        frames = 2 * audio.n_window * rng.randrange(1, 4)
        case["mel_frames"] = frames
        lengths = torch.tensor([frames])
        runs["audio"] = lambda: model.audio_tower(
            torch.randn(audio.num_mel_bins, frames), feature_lens=lengths, aftercnn_lens=(lengths - 1) // 2 + 1)
    return case | {
        "forward_flops": {module: flops_of(run) for module, run in runs.items()},
        "training_flops": {module: flops_of(run, with_backward=True) for module, run in runs.items()},
        "frozen_llm_flops": frozen_llm_flops(model, tokens, text.hidden_size),
    }


# Configurations as they are found: sizes left out where they equal the defaults, names of another program's fields.
FOUND = [
    {"model_type": "qwen2_vl", "vision_config": {"in_chans": 3, "model_type": "qwen2_vl", "spatial_patch_size": 14},
     "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28, "num_hidden_layers": 28,
     "num_key_value_heads": 4, "vocab_size": 152064},
    {"model_type": "qwen2_vl", "text_config": {}, "vision_config": {"hidden_size": 8192}},
    {"model_type": "qwen2_vl", "text_config": {"hidden_size": 3584, "num_attention_heads": 32}, "vision_config": {}},
    {"model_type": "qwen2_vl", "text_config": {"hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": None},
     "vision_config": {"in_chans": 1}},
    {"model_type": "qwen2_5_vl", "hidden_size": 5120, "intermediate_size": 27648, "num_attention_heads": 40,
     "num_hidden_layers": 64, "num_key_value_heads": 8, "vocab_size": 152064,
     "vision_config": {"hidden_size": 1280, "intermediate_size": 3456, "out_hidden_size": 5120}},
    {"model_type": "qwen2_5_vl", "text_config": {"hidden_size": 3584, "num_attention_heads": 32}, "vision_config": {"depth": 4}},
    {"model_type": "qwen2_5_omni_thinker", "text_config": {}, "vision_config": {"hidden_size": 1280}, "audio_config": {}},
    {"model_type": "qwen2", "vocab_size": 1000, "hidden_size": 640, "intermediate_size": 100, "num_hidden_layers": 2,
     "num_attention_heads": 64},
    {"model_type": "qwen3", "vocab_size": 1000, "hidden_size": 640, "intermediate_size": 100, "num_hidden_layers": 2,
     "num_attention_heads": 64},
    {"model_type": "qwen3_moe", "vocab_size": 1000, "hidden_size": 640, "num_hidden_layers": 2, "num_attention_heads": 8,
     "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 30},
    {"model_type": "qwen3_moe", "vocab_size": 1000, "hidden_size": 640, "intermediate_size": 100, "num_hidden_layers": 2,
     "num_attention_heads": 8, "num_experts": 0, "num_experts_per_tok": 2, "moe_intermediate_size": 30},
    {"model_type": "qwen2", "vocab_size": 1000, "hidden_size": 640, "intermediate_size": 100, "num_hidden_layers": 2,
     "num_attention_heads": 12, "num_key_value_heads": 3, "head_dim": 30},
]


def internvl_fields(rng):
    text = text_fields(rng, "qwen2")
    heads = rng.choice([2, 3, 4])
    merge, units, patch = rng.choice([1, 2, 4]), rng.choice([1, 2, 3]), rng.choice([7, 14])
    vision = {
        "hidden_size": heads * rng.choice([8, 15, 20]),
        "num_attention_heads": heads,
        "num_hidden_layers": rng.randrange(1, 9),
        "intermediate_size": rng.randrange(16, 300),
        "num_channels": rng.choice([1, 3]),
        "patch_size": rng.choice([patch, [patch, patch]]),
        "image_size": [patch * merge * units] * 2,
        "attention_bias": rng.random() < 0.5,
        "use_qk_norm": rng.random() < 0.5,
        "norm_type": rng.choice(["layer_norm", "rms_norm"]),
        "use_mean_pooling": rng.random() < 0.5,
        "use_absolute_position_embeddings": rng.random() < 0.8,
    }
    return {"text_config": {"model_type": "qwen2", **text}, "vision_config": vision, "downsample_ratio": 1 / merge,
            "image_seq_length": units * units, **tie(rng, None)}


def internvl_cases(options):
    rng = random.Random(f"internvl {options.seed}")
    cases = []
    for _ in range(options.cases):
        config = {"model_type": "internvl", **internvl_fields(rng)}
        model = build(config)
        cases.append({"config": config, "parameters": count(model), "run": run_once(rng, model)})
    for config in ({"vision_config": {}, "text_config": {"model_type": "qwen2"}},
                   {"vision_config": {"hidden_size": 3200, "num_attention_heads": 25, "num_hidden_layers": 45, "intermediate_size": 12800,
                                      "use_qk_norm": True, "norm_type": "rms_norm"},
                    "text_config": {"model_type": "qwen2", "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80,
                                    "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 151674},
                    "tie_word_embeddings": False}):
        config = {"model_type": "internvl", **config}
        with torch.device("meta"):
            cases.append({"config": config, "parameters": count(build(config))})
    return cases


def gpt2_cases(options):
    rng = random.Random(f"gpt2 {options.seed}")
    cases = []
    for _ in range(options.cases):
        config = make_config(rng, "gpt2", "flat")
        model = build(config)
        cases.append({"config": config, "parameters": count(model), "run": run_once(rng, model)})
    for size in ({}, {"n_embd": 1024, "n_layer": 24, "n_head": 16}, {"n_embd": 1280, "n_layer": 36, "n_head": 20},
                 {"n_embd": 1600, "n_layer": 48, "n_head": 25}):
        with torch.device("meta"):
            cases.append({"config": {"model_type": "gpt2", **size}, "parameters": count(build({"model_type": "gpt2", **size}))})
    return cases


def stacked_config(rng, family):
    text = text_fields(rng, "qwen3_moe" if family == "qwen3_vl_moe" else "qwen3")
    head_dim = text.setdefault("head_dim", rng.choice([8, 16]))
    third = head_dim // 6
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6, "mrope_interleaved": True,
                               "mrope_section": [head_dim // 2 - 2 * third, third, third]}
    vision = vision_fields(rng, "qwen2_5_vl", text["hidden_size"])
    for name in ("window_size", "fullatt_block_indexes"):
        del vision[name]
    most = min(vision["depth"], text["num_hidden_layers"])
    vision |= {"num_position_embeddings": rng.randrange(1, 12) ** 2,
               "deepstack_visual_indexes": rng.sample(range(vision["depth"]), rng.randrange(0, most + 1))}
    return {"model_type": family, **tie(rng, None), "text_config": text, "vision_config": vision}


def stacked_cases(options):
    rng = random.Random(f"stacked {options.seed}")
    cases = []
    for family in STACKED_FAMILIES:
        for _ in range(options.cases):
            config = stacked_config(rng, family)
            model = build(config)
            cases.append({"config": config, "parameters": count(model), "run": run_once(rng, model)})
    found = [{"model_type": "qwen3_vl", "text_config": {}, "vision_config": {"out_hidden_size": 4096}},
             {"model_type": "qwen3_vl", "text_config": {"hidden_size": 3584}, "vision_config": {}}]
    folder = pathlib.Path(__file__).resolve().parents[2] / "scenarios" / "models"
    found += [json.loads((folder / f"{name}.json").read_text()) for name in ("qwen3-vl-4b", "qwen3-vl-30b-a3b")]
    for config in found:
        with torch.device("meta"):
            cases.append({"config": config, "parameters": count(build(config))})
    return cases


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--cases", type=int, default=6, help="configurations of each family and form")
    options.add_argument("--out", default=pathlib.Path(__file__).with_name("model_counts.json"))
    options = options.parse_args()
    rng = random.Random(options.seed)
    forms = [(family, "flat") for family in TEXT_FAMILIES]
    forms += [(family, form) for family in VISION_FAMILIES for form in ("flat", "nested")]
    forms += [("qwen2_5_omni", "thinker"), ("qwen2_5_omni", "whole")]
    cases = []
    for family, form in forms:
        for _ in range(options.cases):
            config = make_config(rng, family, form)
            model = build(config)
            cases.append({"config": config, "parameters": count(model), "run": run_once(rng, model)})
    for config in FOUND:
        with torch.device("meta"):
            cases.append({"config": config, "parameters": count(build(config))})
    # Drawn apart, so that the cases above stay what they were before these families were read.
    cases += gpt2_cases(options) + internvl_cases(options) + stacked_cases(options)
    lines = ",\n".join(" " + json.dumps(case) for case in cases)
    with open(options.out, "w") as out:
        out.write('{"counted_with": "transformers 5.17.0, tied weights once, unfused attention", "cases": [\n' + lines + "\n]}\n")
    print(f"{len(cases)} configurations")


if __name__ == "__main__":
    main()
