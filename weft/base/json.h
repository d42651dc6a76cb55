#pragma once

#include <nlohmann/json.hpp>

namespace weft {

/// JSON values keep their keys in the order in which they were written.
using Json = nlohmann::ordered_json;

}  // namespace weft
