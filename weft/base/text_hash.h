#pragma once

#include <cstdint>
#include <string_view>

namespace weft {

/// FNV-1a of bytes: against damage, not against malice.
inline uint64_t text_hash(std::string_view bytes) {
  uint64_t hash = 14695981039346656037u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  return hash;
}

}  // namespace weft
