#include "weft/families/parts/limits.h"
#include "weft/families/parts/llm_numbers.h"
#include "weft/families/parts/module_builder.h"

namespace weft {
namespace {

void finish_qwen3(Fields& config, TextConfig& text, DeclaredModel& model) {
  text.norms_heads = true;
  text.has_qkv_bias = text.has_out_bias = config.flag_or("attention_bias", false);
  read_intermediate(config, text);
  model.numbers.llm = read_text_numbers(config, {}, text);
  model.numbers.files.unused_endings = {"rotary_emb.inv_freq"};
  model.modules.push_back(make_text_module(text, model.has_tied_embeddings));
}

void read_qwen3(Fields& config, DeclaredModel& model) {
  model.has_tied_embeddings = config.flag_or("tie_word_embeddings", false);
  TextConfig text = read_text_sizes(config);
  text.heads.head_dim = config.integer_or("head_dim", 128, kHeadDimRange);
  check_rotary_dim(config, "head_dim", text.heads.head_dim);
  read_kv_heads(config, text, 32);
  text.windows = read_windows_by_layer(config, text.num_layers, 28);
  finish_qwen3(config, text, model);
}

void read_qwen3_moe(Fields& config, DeclaredModel& model) {
  model.has_tied_embeddings = config.flag_or("tie_word_embeddings", false);
  TextConfig text = read_text_sizes(config);
  text.heads.head_dim = read_head_dim(config, text);
  read_kv_heads(config, text, 4);
  text.moe = read_moe(config, text.num_layers);
  text.windows = read_window(config, text.num_layers);
  finish_qwen3(config, text, model);
}

}  // namespace

std::vector<Family> qwen3_families() {
  return {{"qwen3", read_qwen3}, {"qwen3_moe", read_qwen3_moe}};
}

}  // namespace weft
