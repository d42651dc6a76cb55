#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"

namespace weft {

/// Megatron-LM's text for which stage holds what: "Et*5|(t*11|)*6,t*9L". E is the embedding, t a decoder layer, L the
/// loss; stages are in the order of the data, chunk by chunk. layers is [rank][chunk].
std::string megatron_layout(const std::vector<std::vector<int64_t>>& layers);

/// The inverse: how many decoder layers each stage has. The error's problem says what is wrong.
Result<std::vector<int64_t>> parse_megatron_layout(std::string_view text);

/// Whether every chunk holds the same number of layers; that is what Megatron-LM does without a layout.
bool is_even(const std::vector<std::vector<int64_t>>& layers);

}  // namespace weft
