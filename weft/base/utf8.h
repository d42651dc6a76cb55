#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace weft {

/// Where a text stops being UTF-8.
std::optional<size_t> first_not_utf8(std::string_view text);

}  // namespace weft
