#include "weft/families/parts/llm_numbers.h"

namespace weft {
namespace {

void read_qwen2(Fields& config, DeclaredModel& model) {
  model.has_tied_embeddings = config.flag_or("tie_word_embeddings", false);
  TextConfig text = read_text_sizes(config);
  text.heads.head_dim = read_head_dim(config, text);
  read_kv_heads(config, text, 32);
  text.has_qkv_bias = true;
  text.windows = read_windows_by_layer(config, text.num_layers, 28);
  read_intermediate(config, text);
  model.numbers.llm = read_text_numbers(config, {}, text);
  model.numbers.files.unused_endings = {"rotary_emb.inv_freq"};
  model.modules.push_back(make_text_module(text, model.has_tied_embeddings));
}

}  // namespace

std::vector<Family> qwen2_families() {
  return {{"qwen2", read_qwen2}};
}

}  // namespace weft
