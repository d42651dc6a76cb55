#include "weft/families/parts/llm_numbers.h"
#include "weft/families/parts/module_builder.h"

namespace weft {
namespace {

void read_llama(Fields& config, DeclaredModel& model) {
  model.has_tied_embeddings = config.flag_or("tie_word_embeddings", false);
  TextConfig text = read_text_sizes(config);
  // Even where head_dim is given.
  check_heads_divide(config, "num_attention_heads", text.heads.heads, "hidden_size", text.width);
  text.heads.head_dim = read_head_dim(config, text);
  read_kv_heads(config, text, 0);
  text.has_qkv_bias = text.has_out_bias = config.flag_or("attention_bias", false);
  text.has_mlp_bias = config.flag_or("mlp_bias", false);
  read_intermediate(config, text);
  model.numbers.llm = read_text_numbers(config, {.max_positions = 2048}, text);
  model.numbers.files.unused_endings = {"rotary_emb.inv_freq"};
  model.modules.push_back(make_text_module(text, model.has_tied_embeddings));
}

}  // namespace

std::vector<Family> llama_families() {
  return {{"llama", read_llama}};
}

}  // namespace weft
