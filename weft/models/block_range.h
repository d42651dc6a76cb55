#pragma once

#include <cstdint>

namespace weft {

/// The blocks of a module that somebody holds: all of them by default, or those of a pipeline stage.
struct BlockRange {
  bool has_entry = true;
  int64_t first_layer = 0;
  int64_t num_layers = -1;  ///< -1: to the last
  bool has_exit = true;

  int64_t end_layer(int64_t layers_of_module) const {
    return num_layers < 0 ? layers_of_module : first_layer + num_layers;
  }
};

}  // namespace weft
