#pragma once

#include <string>

namespace weft {

/// One reason why a plan is not legal: the field's path, and a sentence with the arithmetic.
struct Violation {
  std::string field;
  std::string message;

  bool operator==(const Violation&) const = default;
};

}  // namespace weft
