#pragma once

#include <string>
#include <string_view>

namespace weft {

/// The difference of two texts of one file in the form of diff -u, which patch applies. Empty where they are equal.
std::string file_difference(const std::string& name, std::string_view before, std::string_view after);

}  // namespace weft
