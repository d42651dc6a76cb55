#pragma once

#include <optional>
#include <string>
#include <vector>

namespace weft {

// Changes of a user's YAML file that leave its other lines, comments and order as they are. Nothing is given back where
// single lines do not do: values over several lines, anchors and aliases. Whoever uses the result reads it again.

/// With a scalar or a list in one line as the value of that path. Sections that are missing are added at the end of the
/// one that should hold them.
std::optional<std::string> with_yaml_value(const std::string& text, const std::vector<std::string>& path,
                                           const std::string& value);

/// Without the line of that path.
std::optional<std::string> without_yaml_value(const std::string& text, const std::vector<std::string>& path);

}  // namespace weft
