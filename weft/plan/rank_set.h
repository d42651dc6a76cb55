#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"

namespace weft {

/// Of a plan.
inline constexpr int64_t kMostRanks = 1'000'000;

/// Ranks in a plan's short form: "0-7,16,18-19". The order is kept; it is the order of the module's mesh.
std::string ranks_to_text(const std::vector<int64_t>& ranks);

/// The inverse. The error's problem says what is wrong with the text.
Result<std::vector<int64_t>> parse_ranks(std::string_view text);

}  // namespace weft
