#pragma once

#include <string>
#include <string_view>

namespace weft {

class DocumentBuilder;

/// Both feed the builder and return what is wrong with the text's syntax, or nothing.
std::string read_json(std::string_view text, DocumentBuilder& builder);
std::string read_yaml(std::string_view text, DocumentBuilder& builder);

}  // namespace weft
