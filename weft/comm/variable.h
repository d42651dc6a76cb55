#pragma once

#include <cstdlib>

namespace weft {

/// An environment variable's text; null where it is unset or empty.
inline const char* variable_text(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? nullptr : text;
}

}  // namespace weft
