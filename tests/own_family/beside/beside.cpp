// A family whose layers are its own: attention and MLP stand beside each other, and a learned gate decides how much of
// both is added to rows.
#include <array>

#include "weft/families/family_library.h"
#include "weft/families/parts/llm_numbers.h"
#include "weft/families/parts/module_builder.h"
#include "weft/program/name_weights.h"

namespace {

using namespace weft;

/// One more operator, with a weight of its own: priced, divided and saved like all others.
void add_gate(Block& layer, int64_t width) {
  layer.layer = "beside";
  layer.ops.push_back(
      {.name = "gate",
       .shape = Pointwise{.elements_in = width, .elements_out = width, .scales = width, .fresh_scale = 0.5},
       .saved = {.whole = width}});
  name_weights(layer, {{"gate", {.names = {"gate"}, .are_bare = true}}});
}

void read_beside(Fields& config, DeclaredModel& model) {
  static const std::array<std::string, 2> kinds = {"beside", "in turn"};
  model.has_tied_embeddings = config.flag_or("tie_word_embeddings", false);
  TextConfig text = read_text_sizes(config);
  text.heads.head_dim = read_head_dim(config, text);
  read_kv_heads(config, text, 0);
  read_intermediate(config, text);
  model.numbers.llm = read_text_numbers(config, {.max_positions = 2048}, text);
  model.modules.push_back(make_text_module(text, model.has_tied_embeddings));
  for (Block& layer : model.modules.back().distinct_layers) {
    if (config.choice_or("layers", 0, kinds) == 0) {
      add_gate(layer, text.width);
    } else {
      layer.layer = "in turn";
    }
  }
}

std::vector<Family> beside_families() {
  return {{"beside", read_beside}};
}

}  // namespace

WEFT_FAMILY_LIBRARY(beside_families)
