#include "weft/spec/llm_reader.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "weft/spec/limits.h"
#include "weft/spec/module_builder.h"
#include "weft/spec/transformer_block.h"

namespace weft {
namespace {

struct MoeConfig {
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  int64_t intermediate = 0;
  int64_t sparse_step = 1;
  std::vector<bool> is_dense;  // layers that have no experts whatever the step

  bool is_sparse(int64_t layer) const {
    return experts > 0 && (layer + 1) % sparse_step == 0 && !is_dense[static_cast<size_t>(layer)];
  }
};

MoeConfig read_moe(Fields& config, int64_t num_layers) {
  // Old files say num_experts, new ones num_local_experts. None means a dense model.
  const char* experts_key = config.has("num_local_experts") ? "num_local_experts" : "num_experts";
  MoeConfig moe{.experts = config.integer(experts_key, {0, kExpertRange.max}),
                .experts_per_token = config.integer("num_experts_per_tok", kExpertRange),
                .intermediate = config.integer("moe_intermediate_size", kIntermediateRange),
                .sparse_step = config.integer_or("decoder_sparse_step", 1, kLayerRange),
                .is_dense = layer_flags(config.integers_or_empty("mlp_only_layers", kLayerIndexRange), num_layers)};
  if (moe.experts > 0 && moe.experts_per_token > moe.experts) {
    config.complain("num_experts_per_tok",
                    fmt::format("is {}, but there are only {} experts", moe.experts_per_token, moe.experts));
  }
  return moe;
}

Attention read_heads(Fields& config, const LlmFamily& family, int64_t heads, int64_t width) {
  Attention attention{.heads = heads, .mask = Mask::kCausal};
  const bool is_given = family.reads_head_dim && config.has("head_dim");
  const bool is_derived = !is_given && family.default_head_dim == 0;
  if (is_derived || family.heads_divide_width)
    check_heads_divide(config, "num_attention_heads", heads, "hidden_size", width);
  attention.head_dim = is_given     ? config.integer("head_dim", kHeadDimRange)
                       : is_derived ? width / heads
                                    : family.default_head_dim;
  check_rotary_dim(config, is_given ? "head_dim" : "num_attention_heads", attention.head_dim);

  const bool as_many_as_heads = config.is_null("num_key_value_heads") || family.default_kv_heads == 0;
  attention.kv_heads =
      config.integer_or("num_key_value_heads", as_many_as_heads ? heads : family.default_kv_heads, kHeadRange);
  if (heads % attention.kv_heads != 0) {
    const bool is_default = !config.has("num_key_value_heads");
    config.complain("num_key_value_heads", fmt::format("is {}{}, which does not divide num_attention_heads {}",
                                                       attention.kv_heads, is_default ? " by default" : "", heads));
  }
  return attention;
}

/// The window of each layer, 0 for none.
std::vector<int64_t> read_windows(Fields& config, const LlmFamily& family, int64_t num_layers) {
  std::vector<int64_t> windows(static_cast<size_t>(num_layers), 0);
  const bool slides = config.flag_or("use_sliding_window", false) && !config.is_null("sliding_window");
  const int64_t window = config.integer_or("sliding_window", 4096, kWindowRange);
  if (!family.slides_per_layer) {
    if (slides) std::fill(windows.begin(), windows.end(), window);
    return windows;
  }
  const int64_t first = config.integer_or("max_window_layers", family.default_window_layers, {0, kLayerRange.max});
  const std::vector<std::string> types = config.texts_or_empty("layer_types");
  if (!types.empty() && types.size() != windows.size()) {
    config.complain("layer_types",
                    fmt::format("has {} entries, but num_hidden_layers is {}", types.size(), num_layers));
    return windows;
  }
  for (size_t layer = 0; layer < windows.size(); ++layer) {
    bool is_sliding = slides && static_cast<int64_t>(layer) >= first;
    if (!types.empty()) {
      is_sliding = types[layer] == "sliding_attention";
      if (!is_sliding && types[layer] != "full_attention") {
        config.complain("layer_types",
                        fmt::format("has {} at position {}, full_attention or sliding_attention is needed",
                                    describe_value(Json(types[layer])), layer));
      }
    }
    if (is_sliding) windows[layer] = window;
  }
  return windows;
}

Block make_embedding(int64_t vocabulary, int64_t width) {
  return {.name = "embedding",
          .ops = {{.name = "embedding",
                   .shape = Lookup{.entries = vocabulary, .width = width},
                   .split = TensorSplit::kColumn}}};
}

}  // namespace

Block make_head(int64_t vocabulary, int64_t width, NormKind norm, bool is_tied) {
  return {.name = "head",
          .ops = {make_norm("norm", norm, width),
                  {.name = "logits",
                   .shape = Matmul{.in = width, .out = vocabulary, .is_tied = is_tied},
                   .split = TensorSplit::kColumn,
                   .saved = {.whole = width}},
                  {.name = "loss",
                   .shape = CrossEntropy{.classes = vocabulary},
                   .split = TensorSplit::kInside,
                   .saved = {.divided = vocabulary, .whole_fp32 = 1},
                   .has_whole_rows = true}}};
}

Module read_llm(Fields& config, const LlmFamily& family, bool has_tied_embeddings) {
  const auto size = [&](const char* key, int64_t LlmSizes::*fallback, IntegerRange range) {
    return family.default_sizes ? config.integer_or(key, *family.default_sizes.*fallback, range)
                                : config.integer(key, range);
  };
  const int64_t width = size("hidden_size", &LlmSizes::width, kWidthRange);
  const int64_t vocabulary = size("vocab_size", &LlmSizes::vocabulary, kVocabularyRange);
  const int64_t num_layers = size("num_hidden_layers", &LlmSizes::layers, kLayerRange);
  const Attention heads = read_heads(config, family, size("num_attention_heads", &LlmSizes::heads, kHeadRange), width);
  const int64_t q_width = heads.heads * heads.head_dim;
  const int64_t kv_width = heads.kv_heads * heads.head_dim;
  const bool all_biased = family.reads_attention_bias && config.flag_or("attention_bias", false);
  const bool qkv_biased = all_biased || family.has_qkv_bias;
  const MoeConfig moe = family.is_moe ? read_moe(config, num_layers) : MoeConfig{};

  TransformerBlockShape shape{
      .width = width,
      .attention = {.attention = heads,
                    .q_bias = qkv_biased ? q_width : 0,
                    .k_bias = qkv_biased ? kv_width : 0,
                    .v_bias = qkv_biased ? kv_width : 0,
                    .out_bias = all_biased ? width : 0,
                    .norms_heads = family.norms_heads},
      .mlp = {.has_bias = family.reads_mlp_bias && config.flag_or("mlp_bias", false)},
  };
  int64_t dense_intermediate = 0;  // asked for when the first dense layer needs it
  const std::vector<int64_t> windows = family.can_slide ? read_windows(config, family, num_layers)
                                                        : std::vector<int64_t>(static_cast<size_t>(num_layers), 0);

  ModuleBuilder builder;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const bool is_sparse = family.is_moe && moe.is_sparse(layer);
    if (!is_sparse && dense_intermediate == 0) {
      dense_intermediate = size("intermediate_size", &LlmSizes::intermediate, kIntermediateRange);
    }
    const int64_t window = windows[static_cast<size_t>(layer)];
    shape.name = std::string(is_sparse ? "moe layer" : "layer") + (window > 0 ? ", sliding window" : "");
    shape.attention.attention.mask = window > 0 ? Mask::kSliding : Mask::kCausal;
    shape.attention.attention.window = window;
    shape.mlp.intermediate = is_sparse ? moe.intermediate : dense_intermediate;
    shape.mlp.experts = is_sparse ? moe.experts : 0;
    shape.mlp.experts_per_token = is_sparse ? moe.experts_per_token : 0;
    builder.add_layer(shape);
  }
  Module module = builder.take();
  module.kind = ModuleKind::kLlm;
  module.width = width;
  module.output_width = width;
  module.entry = make_embedding(vocabulary, width);
  module.exit = make_head(vocabulary, width, NormKind::kRms, has_tied_embeddings);
  return module;
}

}  // namespace weft
