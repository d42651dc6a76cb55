#pragma once

#include <string>

#include "weft/base/json.h"

namespace weft {

/// The type that a Hugging Face configuration says its weights have, as it spells it ("bfloat16"); empty where it does
/// not say.
std::string type_in_config(const Json& config);

/// The configuration with another type, wherever it names one.
Json config_with_type(const Json& config, const std::string& type);

}  // namespace weft
