#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "weft/base/error.h"

namespace weft {

/// An output that was asked for: the flag and the path that was given for it.
struct Output {
  const char* flag;
  const std::optional<std::string>& path;
};

/// The first output that cannot be written, or that another one overwrites. Asked before any work, because a search
/// whose result has nowhere to go is lost. Nothing stays behind.
std::optional<Error> find_bad_output(std::initializer_list<Output> outputs);

}  // namespace weft
