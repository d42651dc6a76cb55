"""Configurations of the tiny models of make_fixtures.py: every family, sizes drawn from awkward ranges."""

import random

from transformers import (
    GPT2Config,
    InternVLConfig,
    LlamaConfig,
    Qwen2_5_VLConfig,
    Qwen2Config,
    Qwen2VLConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLConfig
from transformers.models.qwen3_vl_moe.configuration_qwen3_vl_moe import Qwen3VLMoeConfig
from transformers.models.qwen2_5_omni.configuration_qwen2_5_omni import Qwen2_5OmniThinkerConfig

TEXT_CASES = ("packed", "single")
VISION_CASES = ("mixed", "video", "text")

CASES = {
    "gpt2": TEXT_CASES,
    "gpt2_untied": ("packed",),
    "llama_tied": TEXT_CASES,
    "llama_scaled": TEXT_CASES,
    "llama_bias": ("packed",),
    "qwen2_tied": TEXT_CASES,
    "qwen2_sharded": ("packed",),
    "qwen3": TEXT_CASES,
    "qwen3_moe_norm": TEXT_CASES,
    "qwen3_moe_mixed": ("packed",),
    "qwen2_vl_tied": VISION_CASES,
    "qwen2_vl_untied": ("mixed",),
    "qwen2_5_vl": VISION_CASES,
    "qwen2_5_omni": ("mixed", "audio", "audio_in_video", "text"),
    "qwen3_vl_tied": VISION_CASES,
    "qwen3_vl_untied": ("mixed",),
    # Few rows, so that no choice of an expert is close.
    "qwen3_vl_moe": ("images", "video", "text"),
    "qwen3_vl_moe_fresh": ("images",),
    "internvl": ("tiles", "text"),
    "internvl_norms": ("tiles",),
}
# The case of a fixture that is also computed in double precision.
DOUBLE = {
    "gpt2": "single",
    "llama_tied": "single",
    "llama_scaled": "single",
    "qwen2_tied": "single",
    "qwen3": "single",
    "qwen3_moe_norm": "single",
    "qwen2_vl_tied": "video",
    "qwen2_5_vl": "video",
    "qwen2_5_omni": "audio_in_video",
    "qwen3_vl_tied": "video",
    "qwen3_vl_moe": "video",
    "internvl": "tiles",
    "internvl_norms": "tiles",
}
SHARDED = {"qwen2_sharded": "12KB"}
# Experts lie in the files as transformers 5 writes them of a model that it made itself.
FRESH = ("qwen3_vl_moe_fresh",)
TRAINED = "qwen2_vl_train"


def text_sizes(rng, shapes=((4, 2, 6), (6, 2, 6), (4, 2, 8), (3, 1, 10), (3, 1, 8), (2, 1, 14))):
    heads, kv_heads, head_dim = rng.choice(shapes)
    return {
        "vocab_size": rng.randrange(83, 128),
        "hidden_size": heads * head_dim,
        "intermediate_size": rng.randrange(29, 50),
        "num_hidden_layers": rng.choice([2, 2, 3]),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 512,
        "rms_norm_eps": rng.choice([1e-5, 1e-6, 3e-4]),
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def theta(rng):
    return rng.choice([1e4, 5e5, 1e6])


def gpt2(rng, tied):
    """Without dropout, which is there in training alone."""
    heads, head_dim = rng.choice([(4, 6), (6, 4), (4, 8), (3, 10)])
    return GPT2Config(vocab_size=rng.randrange(83, 128), n_positions=rng.choice([96, 128]), n_embd=heads * head_dim,
                      n_layer=rng.choice([2, 3]), n_head=heads, n_inner=None if tied else rng.randrange(29, 50),
                      layer_norm_epsilon=rng.choice([1e-5, 3e-4]), activation_function="gelu_new" if tied else "gelu",
                      resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2,
                      tie_word_embeddings=tied)


def llama_tied(rng):
    return LlamaConfig(**text_sizes(rng), rope_parameters={"rope_type": "default", "rope_theta": theta(rng)},
                       tie_word_embeddings=True)


def llama_scaled(rng):
    # A short original context puts the three ranges of wavelengths (kept, smoothed, divided) inside the few there are.
    rope = {"rope_type": "llama3", "rope_theta": theta(rng), "factor": rng.choice([4.0, 8.0]), "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": rng.choice([48, 96])}
    return LlamaConfig(**text_sizes(rng, ((2, 1, 16), (2, 2, 12), (3, 1, 12))), rope_parameters=rope, tie_word_embeddings=False)


def llama_bias(rng):
    return LlamaConfig(**text_sizes(rng), head_dim=rng.choice([4, 14]), attention_bias=True, mlp_bias=True,
                       rope_parameters={"rope_type": "default", "rope_theta": theta(rng)}, tie_word_embeddings=False)


def qwen2(rng, tied):
    return Qwen2Config(**text_sizes(rng), rope_parameters={"rope_type": "default", "rope_theta": theta(rng)},
                       tie_word_embeddings=tied)


def qwen3(rng):
    return Qwen3Config(**text_sizes(rng), head_dim=rng.choice([4, 12, 14]), tie_word_embeddings=rng.random() < 0.5,
                       rope_parameters={"rope_type": "default", "rope_theta": theta(rng)})


def qwen3_moe(rng, mixed):
    sizes = text_sizes(rng)
    sizes["num_hidden_layers"] = 4 if mixed else 2
    fields = {
        "head_dim": rng.choice([4, 12]),
        "moe_intermediate_size": rng.randrange(7, 14),
        "num_experts": rng.choice([5, 6, 7]) if mixed else 8,
        "num_experts_per_tok": rng.choice([2, 3]),
        "norm_topk_prob": not mixed,
        "decoder_sparse_step": 2 if mixed else 1,
        "mlp_only_layers": [3] if mixed else [],
        "router_aux_loss_coef": 0.0,
        "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta(rng)},
    }
    return Qwen3MoeConfig(**sizes, **fields)


def mrope_text(rng):
    sizes = text_sizes(rng, ((4, 2, 8), (3, 1, 8), (3, 1, 12), (2, 1, 12)))
    sizes["num_hidden_layers"] = 2
    half = sizes["hidden_size"] // sizes["num_attention_heads"] // 2
    section = {4: [1, 1, 2], 6: [1, 2, 3]}[half]
    rng.shuffle(section)
    sizes["rope_parameters"] = {"rope_type": "default", "rope_theta": theta(rng), "mrope_section": section}
    return sizes


def special_tokens(rng, vocab, names):
    return dict(zip(names, rng.sample(range(3, vocab), len(names))))


VISION_TOKENS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")


def vision_sizes(rng):
    heads, head_dim = rng.choice([(2, 8), (3, 4), (4, 4), (1, 12)])
    return heads * head_dim, {
        "depth": rng.choice([2, 3]),
        "num_heads": heads,
        "in_channels": 3,
        "patch_size": rng.choice([2, 3]),
        "spatial_merge_size": 2,
        "temporal_patch_size": rng.choice([1, 2, 2]),
    }


def qwen2_vl(rng, tied):
    text = mrope_text(rng)
    width, vision = vision_sizes(rng)
    vision |= {"embed_dim": width, "hidden_size": text["hidden_size"], "mlp_ratio": rng.choice([2, 3])}
    return Qwen2VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=tied,
                         **special_tokens(rng, text["vocab_size"], VISION_TOKENS))


def windowed_vision(rng, llm_width):
    width, vision = vision_sizes(rng)
    vision["depth"] = 3
    window = vision["patch_size"] * vision["spatial_merge_size"] * rng.choice([2, 3])
    return vision | {"hidden_size": width, "out_hidden_size": llm_width, "intermediate_size": rng.randrange(19, 34),
                     "window_size": window + rng.randrange(vision["patch_size"]),
                     "fullatt_block_indexes": [rng.choice([0, 1, 2])]}


def qwen2_5_vl(rng):
    text = mrope_text(rng)
    vision = windowed_vision(rng, text["hidden_size"]) | {"tokens_per_second": rng.choice([2, 3])}
    return Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=rng.random() < 0.5,
                            **special_tokens(rng, text["vocab_size"], VISION_TOKENS))


def qwen2_5_omni(rng):
    text = mrope_text(rng)
    text["tie_word_embeddings"] = False
    heads, head_dim = rng.choice([(2, 8), (3, 6), (2, 6)])
    audio = {"num_mel_bins": rng.choice([9, 11]), "encoder_layers": 2, "encoder_attention_heads": heads,
             "encoder_ffn_dim": rng.randrange(19, 34), "d_model": heads * head_dim, "max_source_positions": 40,
             "n_window": rng.choice([5, 6, 7]), "output_dim": text["hidden_size"]}
    names = ("image_token_index", "video_token_index", "audio_token_index", "vision_start_token_id", "vision_end_token_id",
             "audio_start_token_id", "audio_end_token_id")
    return Qwen2_5OmniThinkerConfig(text_config=text, vision_config=windowed_vision(rng, text["hidden_size"]),
                                    audio_config=audio, position_id_per_seconds=rng.choice([3, 4, 5]), seconds_per_chunk=2,
                                    tie_word_embeddings=False, **special_tokens(rng, text["vocab_size"], names))


def deepstack_vision(rng, llm_width, llm_layers):
    """Layers with mergers of their own, listed in any order: rows follow the layers, mergers the list."""
    width, vision = vision_sizes(rng)
    vision["depth"] = rng.choice([3, 4])
    layers = rng.sample(range(vision["depth"]), rng.randrange(1, llm_layers + 1))
    return vision | {"hidden_size": width, "out_hidden_size": llm_width, "intermediate_size": rng.randrange(19, 34),
                     "num_position_embeddings": rng.choice([3, 4, 5]) ** 2, "deepstack_visual_indexes": layers}


def interleaved_text(rng):
    sizes = text_sizes(rng, ((4, 2, 8), (3, 1, 8), (3, 1, 12), (2, 1, 12)))
    sizes["num_hidden_layers"] = rng.choice([2, 3])
    sizes["head_dim"] = rng.choice([8, 12])
    section = {4: [2, 1, 1], 6: [2, 2, 2]}[sizes["head_dim"] // 2]
    sizes["rope_parameters"] = {"rope_type": "default", "rope_theta": theta(rng), "mrope_section": section,
                                "mrope_interleaved": True}
    return sizes


def qwen3_vl(rng, tied):
    text = interleaved_text(rng)
    if not tied:
        text["attention_bias"] = True
    return Qwen3VLConfig(text_config=text, vision_config=deepstack_vision(rng, text["hidden_size"], text["num_hidden_layers"]),
                         tie_word_embeddings=tied, **special_tokens(rng, text["vocab_size"], VISION_TOKENS))


def qwen3_vl_moe(rng, is_square=False):
    """Experts may have a square matrix, whose shape does not say which way it lies."""
    text = interleaved_text(rng)
    text |= {"moe_intermediate_size": rng.randrange(7, 14), "num_experts": 8, "num_experts_per_tok": rng.choice([2, 3]),
             "decoder_sparse_step": 1, "mlp_only_layers": [], "router_aux_loss_coef": 0.0}
    if is_square:
        text["moe_intermediate_size"] = text["hidden_size"] // 2
    return Qwen3VLMoeConfig(text_config=text, vision_config=deepstack_vision(rng, text["hidden_size"], text["num_hidden_layers"]),
                            tie_word_embeddings=False, **special_tokens(rng, text["vocab_size"], VISION_TOKENS))


def internvl(rng, is_large):
    """The large tower has root-mean-square norms, and norms of queries and keys."""
    text = text_sizes(rng)
    text |= {"num_hidden_layers": 2, "rope_parameters": {"rope_type": "default", "rope_theta": theta(rng)},
             "model_type": "qwen2"}
    heads, head_dim = rng.choice([(2, 8), (3, 4), (4, 6), (2, 5)])
    merge, patch, units = rng.choice([2, 2, 4] if is_large else [2]), rng.choice([2, 3]), rng.choice([2, 3])
    layers = rng.choice([2, 3])
    vision = {"hidden_size": heads * head_dim, "num_attention_heads": heads, "num_hidden_layers": layers,
              "intermediate_size": rng.randrange(19, 34), "patch_size": [patch, patch],
              "image_size": [patch * merge * units] * 2, "layer_norm_eps": rng.choice([1e-6, 3e-4]),
              "layer_scale_init_value": 0.1, "attention_bias": not is_large, "use_qk_norm": is_large,
              "norm_type": "rms_norm" if is_large else "layer_norm", "use_mean_pooling": True,
              "use_absolute_position_embeddings": True}
    fields = {"downsample_ratio": 1 / merge, "image_seq_length": units * units, "image_token_id": rng.randrange(3, text["vocab_size"]),
              "projector_hidden_act": "gelu", "vision_feature_layer": -1}
    if not is_large:
        vision["use_mean_pooling"] = rng.random() < 0.5
    return InternVLConfig(text_config=text, vision_config=vision, tie_word_embeddings=is_large, **fields)


MAKERS = {
    "gpt2": lambda rng: gpt2(rng, True),
    "gpt2_untied": lambda rng: gpt2(rng, False),
    "llama_tied": llama_tied,
    "llama_scaled": llama_scaled,
    "llama_bias": llama_bias,
    "qwen2_tied": lambda rng: qwen2(rng, True),
    "qwen2_sharded": lambda rng: qwen2(rng, False),
    "qwen3": qwen3,
    "qwen3_moe_norm": lambda rng: qwen3_moe(rng, False),
    "qwen3_moe_mixed": lambda rng: qwen3_moe(rng, True),
    "qwen2_vl_tied": lambda rng: qwen2_vl(rng, True),
    "qwen2_vl_untied": lambda rng: qwen2_vl(rng, False),
    "qwen2_vl_train": lambda rng: qwen2_vl(rng, True),
    "qwen2_5_vl": qwen2_5_vl,
    "qwen2_5_omni": qwen2_5_omni,
    "qwen3_vl_tied": lambda rng: qwen3_vl(rng, True),
    "qwen3_vl_untied": lambda rng: qwen3_vl(rng, False),
    "qwen3_vl_moe": qwen3_vl_moe,
    "qwen3_vl_moe_fresh": lambda rng: qwen3_vl_moe(rng, True),
    "internvl": lambda rng: internvl(rng, False),
    "internvl_norms": lambda rng: internvl(rng, True),
}


def make_config(seed, name):
    return MAKERS[name](random.Random(f"{seed}/{name}/config"))
