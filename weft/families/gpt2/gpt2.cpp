#include "weft/families/parts/limits.h"
#include "weft/families/parts/llm_numbers.h"
#include "weft/families/parts/module_builder.h"
#include "weft/program/name_weights.h"
#include "weft/program/text_ends.h"

namespace weft {
namespace {

constexpr IntegerRange kPositionRange{1, 1 << 26};

Block make_gpt2_entry(int64_t vocabulary, int64_t positions, int64_t width, double dropout) {
  Block block = make_embedding(vocabulary, width, /*padding_id=*/-1);
  block.ops.push_back({.name = "positions", .shape = Lookup{.entries = positions, .width = width}});
  block.ops.push_back({.name = "embedding.sum",
                       .shape = Pointwise{.elements_in = 2 * width,
                                          .elements_out = width,
                                          .dropped = dropout > 0 ? width : 0,
                                          .is_sum = true,
                                          .dropout = dropout}});
  return block;
}

const WeightTable& gpt2_weight_table() {
  static const WeightTable table = {
      {"embedding", {{"wte"}}},
      {"positions", {{"wpe"}}},
      {"attention.norm", {{"ln_1"}}},
      {"attention.qkv", {.names = {"attn.c_attn"}, .is_transposed = true}},
      {"attention.out", {.names = {"attn.c_proj"}, .is_transposed = true}},
      {"mlp.norm", {{"ln_2"}}},
      {"mlp.up", {.names = {"mlp.c_fc"}, .is_transposed = true}},
      {"mlp.down", {.names = {"mlp.c_proj"}, .is_transposed = true}},
      {"norm", {{"transformer.ln_f"}}},
      {"logits", {{"lm_head"}}},
  };
  return table;
}

/// Variants of attention that are not run.
void check_plain(Fields& config) {
  if (!config.flag_or("scale_attn_weights", true))
    config.complain("scale_attn_weights", "is false, but scores are always divided by the root of head_dim here");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    if (config.flag_or(key, false)) config.complain(key, "is true, which no published model of the family has");
  }
}

/// Learned positions, layer norms with biases, a plain MLP, dropout, and a configuration with names of its own.
void read_gpt2(Fields& config, DeclaredModel& model) {
  model.has_tied_embeddings = config.flag_or("tie_word_embeddings", true);
  const int64_t vocabulary = config.integer_or("vocab_size", 50257, kVocabularyRange);
  const int64_t positions = config.integer_or("n_positions", 1024, kPositionRange);
  const int64_t width = config.integer_or("n_embd", 768, kWidthRange);
  const int64_t num_layers = config.integer_or("n_layer", 12, kLayerRange);
  const int64_t heads = config.integer_or("n_head", 12, kHeadRange);
  check_heads_divide(config, "n_head", heads, "n_embd", width);
  const double dropout = config.number_or("embd_pdrop", 0.1, kProbabilityRange);
  const double epsilon = config.number_or("layer_norm_epsilon", 1e-5, {0, 1});
  const double behind = config.number_or("resid_pdrop", 0.1, kProbabilityRange);
  const TransformerBlockShape shape{
      .name = "layer",
      .width = width,
      .norm = NormKind::kLayer,
      .epsilon = epsilon,
      .attention = {.attention = {.heads = heads, .kv_heads = heads, .head_dim = width / heads, .mask = Mask::kCausal},
                    .q_bias = width,
                    .k_bias = width,
                    .v_bias = width,
                    .out_bias = width,
                    .has_rotary = false},
      .mlp = {.intermediate = config.integer_or("n_inner", 4 * width, kIntermediateRange),
              .is_gated = false,
              .has_bias = true,
              .activation = read_activation(config, "activation_function", "gelu_new")},
      .dropout = {.in_attention = config.number_or("attn_pdrop", 0.1, kProbabilityRange),
                  .behind_attention = behind,
                  .behind_mlp = behind},
  };
  ModuleBuilder builder;
  for (int64_t layer = 0; layer < num_layers; ++layer) builder.add_layer(shape);
  Module module = builder.take();
  module.kind = ModuleKind::kLlm;
  module.width = width;
  module.output_width = width;
  module.entry = make_gpt2_entry(vocabulary, positions, width, dropout);
  module.exit =
      make_head(vocabulary, width, make_norm("norm", NormKind::kLayer, width, epsilon), model.has_tied_embeddings);
  module.network = "decoder";
  module.paths = {.entry = "transformer.", .layer = "transformer.h.{}.", .exit = ""};
  module.deviation = config.number_or("initializer_range", 0.02, {0, 1e3});
  name_weights(module, gpt2_weight_table());
  model.numbers.llm.max_positions = positions;
  model.numbers.llm.end_ids = read_end_ids(config);
  // The published files have names without the outermost level, and tables of who sees whom.
  model.numbers.files = {.renamed = {{"wte.", "transformer.wte."},
                                     {"wpe.", "transformer.wpe."},
                                     {"h.", "transformer.h."},
                                     {"ln_f.", "transformer.ln_f."}},
                         .unused_beginnings = {},
                         .unused_endings = {".attn.bias", ".attn.masked_bias"}};
  check_plain(config);
  model.modules.push_back(std::move(module));
}

}  // namespace

std::vector<Family> gpt2_families() {
  return {{"gpt2", read_gpt2}};
}

}  // namespace weft
