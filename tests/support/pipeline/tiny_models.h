#pragma once

#include <ostream>

#include <gtest/gtest.h>

namespace weft {

/// A family's fixture with sizes that leave plans drawn at random something to divide.
struct TinyModel {
  const char* name;
  const char* fixture;
  const char* sizes;  ///< JSON that goes over the fixture's configuration
};

inline void PrintTo(const TinyModel& model, std::ostream* out) {
  *out << model.name;
}

inline constexpr TinyModel kTinyOmni = {
    "Omni", "qwen2_5_omni",
    R"({"text_config": {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2},
        "vision_config": {"out_hidden_size": 64}, "audio_config": {"output_dim": 64}})"};

/// Without rotation a bias of keys has no gradient but rounding, of which AdamW makes steps: these have none.
inline constexpr TinyModel kTinyTiles = {"Tiles", "internvl", R"({"vision_config": {"attention_bias": false}})"};

inline constexpr TinyModel kTinyWindows = {
    "Windows", "qwen2_5_vl", R"({"text_config": {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2},
                                 "vision_config": {"num_heads": 8, "hidden_size": 32, "out_hidden_size": 64}})"};
/// Layers of the vision encoder whose rows enter layers of the llm.
inline constexpr TinyModel kTinyBranches = {
    "Branches", "qwen3_vl_untied",
    R"({"text_config": {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2},
        "vision_config": {"out_hidden_size": 32, "depth": 4, "deepstack_visual_indexes": [2, 0, 1]}})"};
inline constexpr TinyModel kTinyVision = {"Vision", "qwen2_vl_untied",
                                          R"({"vision_config": {"num_heads": 4, "embed_dim": 16}})"};
inline constexpr TinyModel kTinyText = {"Text", "llama_tied", "{}"};
inline constexpr TinyModel kTinyDropout = {
    "Dropout", "gpt2", R"({"n_embd": 32, "n_head": 8, "embd_pdrop": 0.2, "attn_pdrop": 0.3, "resid_pdrop": 0.1})"};

/// Sound of which elements are dropped everywhere, inside of MLPs too.
inline constexpr TinyModel kTinyDroppedSound = {
    "DroppedSound", "qwen2_5_omni",
    R"({"text_config": {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2},
        "vision_config": {"out_hidden_size": 64},
        "audio_config": {"output_dim": 64, "dropout": 0.1, "attention_dropout": 0.2, "activation_dropout": 0.3}})"};

/// Experts in all layers, in some of them, and behind a vision encoder.
inline constexpr TinyModel kTinyExperts = {
    "Experts", "qwen3_moe_norm", R"({"num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4})"};
inline constexpr TinyModel kTinyMixedExperts = {
    "MixedExperts", "qwen3_moe_mixed",
    R"({"num_local_experts": 6, "num_attention_heads": 4, "num_key_value_heads": 2})"};
inline constexpr TinyModel kTinyMediaExperts = {
    "MediaExperts", "qwen3_vl_moe", R"({"text_config": {"num_attention_heads": 4, "num_key_value_heads": 2}})"};

inline auto tiny_models() {
  return testing::Values(kTinyOmni, kTinyWindows, kTinyBranches, kTinyVision, kTinyTiles,
                         TinyModel{"Experts", "qwen3_moe_norm", "{}"}, kTinyText, kTinyDropout);
}

/// Of every family one, and of those with experts all kinds: whose layers have strategies.
inline auto layer_models() {
  return testing::Values(kTinyText, TinyModel{"Biases", "llama_bias", R"({"num_hidden_layers": 4})"},
                         TinyModel{"KeyBiases", "qwen2_tied", "{}"}, TinyModel{"HeadNorms", "qwen3", "{}"},
                         kTinyDropout, kTinyVision, kTinyWindows, kTinyBranches, kTinyTiles, kTinyOmni,
                         kTinyDroppedSound, kTinyExperts, kTinyMixedExperts, kTinyMediaExperts);
}

}  // namespace weft
