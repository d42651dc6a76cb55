#pragma once

#include <string>

#include "weft/base/json.h"

namespace weft {

/// What a command prints with --json: indented, with a line break behind it. Bytes that are no characters, of names of
/// files and folders, are replaced.
std::string json_output(const Json& json);

}  // namespace weft
