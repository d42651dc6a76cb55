#pragma once

#include <string>
#include <string_view>

namespace weft {

class DocumentBuilder;

/// How the problem of a text that was cut off begins.
inline constexpr std::string_view kTextEnds = "is not valid JSON: the text ends";

/// Both feed the builder and return what is wrong with the text's syntax, or nothing.
std::string read_json(std::string_view text, DocumentBuilder& builder);
std::string read_yaml(std::string_view text, DocumentBuilder& builder);

/// YAML of other programs: an alias (*name) stands for what its anchor (&name) marks, and values count each time. Tags
/// that other programs give a meaning (!include) are refused.
std::string read_foreign_yaml(std::string_view text, DocumentBuilder& builder);

}  // namespace weft
