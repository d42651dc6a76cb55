#pragma once

#include <stdexcept>
#include <string>

namespace weft {

/// Why a template cannot be read or rendered, inside this folder only: ChatTemplate turns it into an Error.
class TemplateFault : public std::runtime_error {
 public:
  explicit TemplateFault(const std::string& problem, int where = 0) : std::runtime_error(problem), line(where) {}

  int line;  ///< of the template; 0: not known yet
};

}  // namespace weft
