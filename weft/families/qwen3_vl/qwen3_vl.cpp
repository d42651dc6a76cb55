#include "weft/families/parts/limits.h"
#include "weft/families/parts/llm_numbers.h"
#include "weft/families/parts/module_builder.h"
#include "weft/families/parts/patch_encoder.h"
#include "weft/families/qwen3_vl/vision.h"

namespace weft {
namespace {

constexpr TextSizes kDenseSizes{.vocabulary = 151936, .width = 4096, .intermediate = 22016, .layers = 32, .heads = 32};
constexpr TextSizes kSparseSizes{.vocabulary = 151936, .width = 2048, .intermediate = 5632, .layers = 24, .heads = 16};
constexpr int64_t kDenseHeadDim = 128;
constexpr TextDefaults kDefaults{
    .theta = 500000, .max_positions = 128000, .has_axes = true, .sections = {24, 20, 20}, .interleaves_axes = true};

/// Experts' matrices lie in one weight, inputs before outputs; gates lie before what they gate.
const WeightTable& expert_names() {
  static const WeightTable table = {
      {"mlp.gate_up", {.names = {"mlp.experts.{}.gate_up_proj"}, .is_transposed = true}},
      {"mlp.down", {.names = {"mlp.experts.{}.down_proj"}, .is_transposed = true}},
  };
  return table;
}

void name_experts(Module& llm, WeightFiles& files) {
  for (Block& kind : llm.distinct_layers) {
    if (find_op(kind, "moe.router") != nullptr) name_weights(kind, expert_names());
  }
  for (const std::string name : {"gate_up_proj", "down_proj"})
    files.stacked.push_back({.in_files = "mlp.experts." + name, .in_model = "mlp.experts.{}." + name + ".weight"});
}

/// Names as its files have had them from the first.
void nest_names(Module& llm) {
  const std::string path = "model.language_model.";
  llm.paths = {.entry = path, .layer = path + "layers.{}.", .exit = ""};
  name_weights(llm.exit, {{"norm", {{path + "norm"}}}});
}

void finish_text(Fields& config, const TextSizes& sizes, TextConfig& text, DeclaredModel& model) {
  text.norms_heads = true;
  text.has_qkv_bias = text.has_out_bias = config.flag_or("attention_bias", false);
  read_intermediate(config, text, sizes);
  model.numbers.llm = read_text_numbers(config, kDefaults, text);
}

TextConfig read_dense_text(Fields& config, DeclaredModel& model) {
  TextConfig text = read_text_sizes(config, kDenseSizes);
  text.heads.head_dim = config.integer_or("head_dim", kDenseHeadDim, kHeadDimRange);
  check_rotary_dim(config, "head_dim", text.heads.head_dim);
  read_kv_heads(config, text, kDenseSizes.heads);
  finish_text(config, kDenseSizes, text, model);
  return text;
}

TextConfig read_sparse_text(Fields& config, DeclaredModel& model) {
  TextConfig text = read_text_sizes(config, kSparseSizes);
  text.heads.head_dim = read_head_dim(config, text);
  read_kv_heads(config, text, kSparseSizes.heads);
  text.moe = read_moe(config, text.num_layers,
                      MoeConfig{.experts = 60, .experts_per_token = 4, .intermediate = 1408, .is_dense = {}});
  finish_text(config, kSparseSizes, text, model);
  model.numbers.llm.normalizes_expert_weights = true;  // whatever the configuration says
  return text;
}

void read_model(Fields& config, TextConfig (*read_text)(Fields&, DeclaredModel&), DeclaredModel& model) {
  model.has_tied_embeddings = config.flag_or("tie_word_embeddings", false);
  Fields text_config = config.object("text_config");
  Fields vision = config.object("vision_config");
  const TextConfig text = read_text(text_config, model);
  model.modules.push_back(read_stacked_patch_encoder(vision, text.width, text.num_layers, "model.visual.", model));
  model.modules.push_back(make_text_module(text, model.has_tied_embeddings));
  nest_names(model.modules.back());
  model.numbers.media = read_media_rules(config, TimeRule::kApart, *model.numbers.vision);
  model.numbers.video_text = {
      .caption = "<{seconds} seconds>", .before = "<|vision_start|>", .after = "<|vision_end|>"};
  model.numbers.files.unused_endings = {"rotary_emb.inv_freq"};
  if (text.moe.experts > 0) name_experts(model.modules.back(), model.numbers.files);
}

}  // namespace

std::vector<Family> qwen3_vl_families() {
  return {{"qwen3_vl", [](Fields& config, DeclaredModel& model) { read_model(config, read_dense_text, model); }},
          {"qwen3_vl_moe", [](Fields& config, DeclaredModel& model) { read_model(config, read_sparse_text, model); }}};
}

}  // namespace weft
