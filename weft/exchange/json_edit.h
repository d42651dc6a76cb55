#pragma once

#include <optional>
#include <string>
#include <vector>

namespace weft {

// Changes of a user's JSON file that leave everything else of it as it is. Nothing is given back where the text is no
// object, or something on the way of the path is none.

/// With another value at that path. Members and objects that are missing are added where the object begins.
std::optional<std::string> with_json_value(const std::string& text, const std::vector<std::string>& path,
                                           const std::string& value);

/// Without the member at that path, nor the lines that it takes.
std::optional<std::string> without_json_value(const std::string& text, const std::vector<std::string>& path);

}  // namespace weft
