#pragma once

#include <map>
#include <string>

#include "weft/base/fields.h"
#include "weft/program/transformer_block.h"

namespace weft {

/// Collects a module's layers; those of one name are one kind.
class ModuleBuilder {
 public:
  void add_layer(const TransformerBlockShape& shape);
  Module take() { return std::move(module_); }

 private:
  Module module_;
  std::map<std::string, size_t> kinds_;
};

/// For each layer whether it is listed; indices past the last layer are ignored.
std::vector<bool> layer_flags(const std::vector<int64_t>& listed, int64_t num_layers);

// Checks that readers of different modules share. Each complains about `heads_key` in the configuration.
void check_heads_divide(Fields& config, std::string_view heads_key, int64_t heads, std::string_view width_key,
                        int64_t width);
void check_rotary_dim(Fields& config, std::string_view heads_key, int64_t head_dim);

}  // namespace weft
