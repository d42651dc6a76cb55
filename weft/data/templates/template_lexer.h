#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// A piece of a template. Text stands between tags; a tag is its begin, words and marks, and its end.
struct TemplateToken {
  enum class Kind : uint8_t {
    kText,
    kBlockBegin,     ///< {%
    kBlockEnd,       ///< %}
    kVariableBegin,  ///< {{
    kVariableEnd,    ///< }}
    kName,
    kString,
    kInteger,
    kFloat,
    kMark,  ///< an operator or a bracket
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 1;
};

/// As Jinja reads a template with trim_blocks and lstrip_blocks. Throws a TemplateFault.
std::vector<TemplateToken> lex_template(std::string_view source);

}  // namespace weft
