#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/document.h"

namespace weft {

/// `model.safetensors.index.json`: which file of a folder holds which weight.
struct WeightIndex {
  std::optional<Json> metadata;                                 ///< an object, like {"total_size": 4096}; kept as it is
  std::vector<std::pair<std::string, std::string>> weight_map;  ///< weight and file

  /// The files, sorted, each once.
  std::vector<std::string> files() const;
};

Result<WeightIndex> read_weight_index(const Document& document);

/// As Hugging Face transformers writes it.
std::string to_text(const WeightIndex& index);

}  // namespace weft
