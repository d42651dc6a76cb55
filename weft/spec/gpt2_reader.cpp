#include "weft/spec/limits.h"
#include "weft/spec/llm_reader.h"
#include "weft/spec/module_builder.h"
#include "weft/spec/transformer_block.h"

namespace weft {
namespace {

constexpr IntegerRange kPositionRange{1, 1 << 26};
constexpr NumberRange kProbabilityRange{0, 1};

Block make_gpt2_embedding(int64_t vocabulary, int64_t positions, int64_t width, bool has_dropout) {
  return {
      .name = "embedding",
      .ops = {
          {.name = "embedding", .shape = Lookup{.entries = vocabulary, .width = width}, .split = TensorSplit::kColumn},
          {.name = "positions", .shape = Lookup{.entries = positions, .width = width}},
          {.name = "embedding.sum",
           .shape = Pointwise{
               .elements_in = 2 * width, .elements_out = width, .dropped = has_dropout ? width : 0, .is_sum = true}}}};
}

}  // namespace

Module read_gpt2(Fields& config, bool has_tied_embeddings) {
  const int64_t vocabulary = config.integer_or("vocab_size", 50257, kVocabularyRange);
  const int64_t positions = config.integer_or("n_positions", 1024, kPositionRange);
  const int64_t width = config.integer_or("n_embd", 768, kWidthRange);
  const int64_t num_layers = config.integer_or("n_layer", 12, kLayerRange);
  const int64_t heads = config.integer_or("n_head", 12, kHeadRange);
  check_heads_divide(config, "n_head", heads, "n_embd", width);
  const bool drops_embeddings = config.number_or("embd_pdrop", 0.1, kProbabilityRange) > 0;
  const TransformerBlockShape shape{
      .name = "layer",
      .width = width,
      .norm = NormKind::kLayer,
      .attention = {.attention = {.heads = heads, .kv_heads = heads, .head_dim = width / heads, .mask = Mask::kCausal},
                    .q_bias = width,
                    .k_bias = width,
                    .v_bias = width,
                    .out_bias = width,
                    .has_rotary = false},
      .mlp = {.intermediate = config.integer_or("n_inner", 4 * width, kIntermediateRange),
              .is_gated = false,
              .has_bias = true},
      .dropout = {.in_attention = config.number_or("attn_pdrop", 0.1, kProbabilityRange) > 0,
                  .in_sums = config.number_or("resid_pdrop", 0.1, kProbabilityRange) > 0},
  };
  ModuleBuilder builder;
  for (int64_t layer = 0; layer < num_layers; ++layer) builder.add_layer(shape);
  Module module = builder.take();
  module.kind = ModuleKind::kLlm;
  module.width = width;
  module.output_width = width;
  module.entry = make_gpt2_embedding(vocabulary, positions, width, drops_embeddings);
  module.exit = make_head(vocabulary, width, NormKind::kLayer, has_tied_embeddings);
  return module;
}

}  // namespace weft
