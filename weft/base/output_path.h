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

/// A file that is read: its flag, and the path or name that was given for it; nothing or an empty one: none.
struct Input {
  const char* flag;
  std::optional<std::string> path;
};

/// The first output that cannot be written, that another one overwrites, or that would take the place of an input.
/// Asked before any work, because a search whose result has nowhere to go is lost. Nothing stays behind.
std::optional<Error> find_bad_output(std::initializer_list<Output> outputs, std::initializer_list<Input> inputs = {});

}  // namespace weft
