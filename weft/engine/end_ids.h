#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "weft/families/numbers.h"

namespace weft {

/// The tokens that end a text: eos_token_id of the folder's generation_config.json, where there is one that says, else
/// of the configuration.
Result<std::vector<int64_t>> read_end_ids(const std::filesystem::path& folder, const Model& model,
                                          const ModelNumbers& numbers);

}  // namespace weft
