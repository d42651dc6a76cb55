#include "weft/families/parts/text_config.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/families/parts/limits.h"
#include "weft/families/parts/llm_numbers.h"
#include "weft/families/parts/module_builder.h"
#include "weft/program/name_weights.h"
#include "weft/program/text_ends.h"

namespace weft {
namespace {

constexpr IntegerRange kPaddingRange{-1, int64_t{1} << 31};
constexpr NumberRange kDeviationRange{0, 1e3};

int64_t read_size(Fields& config, const char* key, const std::optional<TextSizes>& defaults,
                  int64_t TextSizes::*fallback, IntegerRange range) {
  return defaults ? config.integer_or(key, *defaults.*fallback, range) : config.integer(key, range);
}

bool reads_window(Fields& config) {
  return config.flag_or("use_sliding_window", false) && !config.is_null("sliding_window");
}

const WeightTable& text_weight_table() {
  static const WeightTable table = {
      {"embedding", {{"embed_tokens"}}},
      {"attention.norm", {{"input_layernorm"}}},
      {"attention.qkv", {{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}}},
      {"attention.q_norm", {{"self_attn.q_norm"}}},
      {"attention.k_norm", {{"self_attn.k_norm"}}},
      {"attention.out", {{"self_attn.o_proj"}}},
      {"mlp.norm", {{"post_attention_layernorm"}}},
      {"moe.router", {{"mlp.gate"}}},
      {"mlp.gate_up", {{"mlp.gate_proj", "mlp.up_proj"}}},
      {"mlp.down", {{"mlp.down_proj"}}},
      {"norm", {{"model.norm"}}},
      {"logits", {{"lm_head"}}},
  };
  return table;
}

/// Experts' matrices have a number each.
const WeightTable& expert_table() {
  static const WeightTable table = [] {
    WeightTable experts = text_weight_table();
    for (NamedOp& named : experts) {
      if (named.op == "mlp.gate_up") named.weights.names = {"mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj"};
      if (named.op == "mlp.down") named.weights.names = {"mlp.experts.{}.down_proj"};
    }
    return experts;
  }();
  return table;
}

}  // namespace

TextConfig read_text_sizes(Fields& config, const std::optional<TextSizes>& defaults) {
  TextConfig text;
  text.width = read_size(config, "hidden_size", defaults, &TextSizes::width, kWidthRange);
  text.vocabulary = read_size(config, "vocab_size", defaults, &TextSizes::vocabulary, kVocabularyRange);
  text.num_layers = read_size(config, "num_hidden_layers", defaults, &TextSizes::layers, kLayerRange);
  text.heads = {.heads = read_size(config, "num_attention_heads", defaults, &TextSizes::heads, kHeadRange),
                .mask = Mask::kCausal,
                .dropout = config.number_or("attention_dropout", 0, kProbabilityRange)};
  text.deviation = config.number_or("initializer_range", 0.02, kDeviationRange);
  text.padding_id = config.integer_or("pad_token_id", -1, kPaddingRange);
  if (text.padding_id >= text.vocabulary)
    config.complain("pad_token_id", fmt::format("is {}, but vocab_size is {}", text.padding_id, text.vocabulary));
  return text;
}

int64_t derived_head_dim(Fields& config, const TextConfig& text) {
  check_heads_divide(config, "num_attention_heads", text.heads.heads, "hidden_size", text.width);
  const int64_t head_dim = text.width / text.heads.heads;
  check_rotary_dim(config, "num_attention_heads", head_dim);
  return head_dim;
}

int64_t read_head_dim(Fields& config, const TextConfig& text) {
  if (!config.has("head_dim")) return derived_head_dim(config, text);
  const int64_t head_dim = config.integer("head_dim", kHeadDimRange);
  check_rotary_dim(config, "head_dim", head_dim);
  return head_dim;
}

void read_kv_heads(Fields& config, TextConfig& text, int64_t fallback) {
  const int64_t heads = text.heads.heads;
  const bool as_many_as_heads = config.is_null("num_key_value_heads") || fallback == 0;
  text.heads.kv_heads = config.integer_or("num_key_value_heads", as_many_as_heads ? heads : fallback, kHeadRange);
  if (heads % text.heads.kv_heads != 0) {
    const bool is_default = !config.has("num_key_value_heads");
    config.complain("num_key_value_heads", fmt::format("is {}{}, which does not divide num_attention_heads {}",
                                                       text.heads.kv_heads, is_default ? " by default" : "", heads));
  }
}

MoeConfig read_moe(Fields& config, int64_t num_layers, const std::optional<MoeConfig>& defaults) {
  const auto size = [&](const char* key, int64_t MoeConfig::*fallback, IntegerRange range) {
    return defaults ? config.integer_or(key, *defaults.*fallback, range) : config.integer(key, range);
  };
  // Old files say num_experts, new ones num_local_experts. None means a dense model.
  const char* experts_key = config.has("num_local_experts") ? "num_local_experts" : "num_experts";
  MoeConfig moe{.experts = size(experts_key, &MoeConfig::experts, {0, kExpertRange.max}),
                .experts_per_token = size("num_experts_per_tok", &MoeConfig::experts_per_token, kExpertRange),
                .intermediate = size("moe_intermediate_size", &MoeConfig::intermediate, kIntermediateRange),
                .sparse_step = config.integer_or("decoder_sparse_step", 1, kLayerRange),
                .is_dense = layer_flags(config.integers_or_empty("mlp_only_layers", kLayerIndexRange), num_layers)};
  if (const int64_t old = config.integer_or("num_experts", moe.experts, {0, kExpertRange.max}); old != moe.experts) {
    config.complain("num_experts", fmt::format("is {}, but num_local_experts is {}", old, moe.experts),
                    "They are two names of one number. Leave one out.");
  }
  if (moe.experts > 0 && moe.experts_per_token > moe.experts) {
    config.complain("num_experts_per_tok",
                    fmt::format("is {}, but there are only {} experts", moe.experts_per_token, moe.experts));
  }
  return moe;
}

std::vector<int64_t> read_window(Fields& config, int64_t num_layers) {
  const bool slides = reads_window(config);
  const int64_t window = config.integer_or("sliding_window", 4096, kWindowRange);
  return std::vector<int64_t>(static_cast<size_t>(num_layers), slides ? window : 0);
}

std::vector<int64_t> read_windows_by_layer(Fields& config, int64_t num_layers, int64_t default_first_layer) {
  std::vector<int64_t> windows(static_cast<size_t>(num_layers), 0);
  const bool slides = reads_window(config);
  const int64_t window = config.integer_or("sliding_window", 4096, kWindowRange);
  const int64_t first = config.integer_or("max_window_layers", default_first_layer, {0, kLayerRange.max});
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

void read_intermediate(Fields& config, TextConfig& text, const std::optional<TextSizes>& defaults) {
  for (int64_t layer = 0; layer < text.num_layers && text.intermediate == 0; ++layer) {
    if (!text.has_experts(layer))
      text.intermediate =
          read_size(config, "intermediate_size", defaults, &TextSizes::intermediate, kIntermediateRange);
  }
}

Module make_text_module(const TextConfig& text, bool is_tied, const std::string& prefix) {
  const int64_t q_width = text.heads.heads * text.heads.head_dim;
  const int64_t kv_width = text.heads.kv_heads * text.heads.head_dim;
  TransformerBlockShape shape{
      .width = text.width,
      .epsilon = text.norm_epsilon,
      .attention = {.attention = text.heads,
                    .q_bias = text.has_qkv_bias ? q_width : 0,
                    .k_bias = text.has_qkv_bias ? kv_width : 0,
                    .v_bias = text.has_qkv_bias ? kv_width : 0,
                    .out_bias = text.has_out_bias ? text.width : 0,
                    .norms_heads = text.norms_heads},
      .mlp = {.has_bias = text.has_mlp_bias},
      .dropout = {.in_attention = text.heads.dropout},
  };
  ModuleBuilder builder;
  for (int64_t layer = 0; layer < text.num_layers; ++layer) {
    const bool is_sparse = text.has_experts(layer);
    const int64_t window = text.windows.empty() ? 0 : text.windows[static_cast<size_t>(layer)];
    shape.name = std::string(is_sparse ? "moe layer" : "layer") + (window > 0 ? ", sliding window" : "");
    shape.attention.attention.mask = window > 0 ? Mask::kSliding : Mask::kCausal;
    shape.attention.attention.window = window;
    shape.mlp.intermediate = is_sparse ? text.moe.intermediate : text.intermediate;
    shape.mlp.experts = is_sparse ? text.moe.experts : 0;
    shape.mlp.experts_per_token = is_sparse ? text.moe.experts_per_token : 0;
    builder.add_layer(shape);
  }
  Module module = builder.take();
  module.kind = ModuleKind::kLlm;
  module.width = text.width;
  module.output_width = text.width;
  module.entry = make_embedding(text.vocabulary, text.width, text.padding_id);
  module.exit =
      make_head(text.vocabulary, text.width, make_norm("norm", NormKind::kRms, text.width, text.norm_epsilon), is_tied);
  module.network = "decoder";
  module.paths = {.entry = prefix + "model.", .layer = prefix + "model.layers.{}.", .exit = prefix};
  module.deviation = text.deviation;
  name_weights(module, text_weight_table());
  for (Block& kind : module.distinct_layers) {
    if (find_op(kind, "moe.router") != nullptr) name_weights(kind, expert_table());
  }
  return module;
}

}  // namespace weft
