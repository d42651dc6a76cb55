#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

/// "1 device", "8 devices", "4 microbatches".
inline std::string counted(int64_t count, std::string_view noun) {
  const char* ending = count == 1 ? "" : noun.ends_with("ch") ? "es" : "s";
  return std::to_string(count) + " " + std::string(noun) + ending;
}

}  // namespace weft
