#include "weft/families/parts/module_builder.h"

#include <fmt/format.h>

namespace weft {

void ModuleBuilder::add_layer(const TransformerBlockShape& shape) {
  const auto [it, is_new] = kinds_.try_emplace(shape.name, module_.distinct_layers.size());
  if (is_new) module_.distinct_layers.push_back(make_transformer_block(shape));
  module_.layers.push_back(it->second);
}

std::vector<bool> layer_flags(const std::vector<int64_t>& listed, int64_t num_layers) {
  std::vector<bool> flags(static_cast<size_t>(num_layers), false);
  for (const int64_t layer : listed) {
    if (layer < num_layers) flags[static_cast<size_t>(layer)] = true;
  }
  return flags;
}

void check_heads_divide(Fields& config, std::string_view heads_key, int64_t heads, std::string_view width_key,
                        int64_t width) {
  if (width % heads != 0) {
    config.complain(heads_key, fmt::format("is {}, which does not divide {} {}", heads, width_key, width),
                    "Every head needs the same whole number of elements.");
  }
}

void check_rotary_dim(Fields& config, std::string_view heads_key, int64_t head_dim) {
  if (head_dim % 2 != 0) {
    config.complain(heads_key,
                    fmt::format("gives heads of {} elements; rotary embedding needs an even number", head_dim));
  }
}

}  // namespace weft
