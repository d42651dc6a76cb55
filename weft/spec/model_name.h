#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

// A model's name becomes that of a run's folder, and stands in lines that users read.

/// What keeps a text from being a model's name; nothing where it is one.
std::optional<std::string> find_bad_model_name(std::string_view name);

/// The name of a model that is called like this file or folder.
std::string as_model_name(std::string name);

}  // namespace weft
