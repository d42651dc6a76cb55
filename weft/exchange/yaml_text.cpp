#include "weft/exchange/yaml_text.h"

namespace weft {
namespace {

/// Names that a caller gives can be of any bytes.
std::string text_of(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void write_yaml(const Json& mapping, size_t depth, bool is_raw, std::string& text) {
  for (const auto& [key, value] : mapping.items()) {
    text += std::string(2 * depth, ' ') + key + ":";
    if (value.is_object()) {
      text += "\n";
      write_yaml(value, depth + 1, is_raw, text);
    } else {
      text += " " + (value.is_string() && is_raw ? value.get<std::string>() : text_of(value)) + "\n";
    }
  }
}

}  // namespace

void YamlText::set(std::string_view path, std::string value) {
  Json* node = &root_;
  for (size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    node = &(*node)[std::string(path.substr(0, dot))];
    path.remove_prefix(dot + 1);
  }
  (*node)[std::string(path)] = std::move(value);
}

std::string YamlText::text() const {
  std::string text;
  write_yaml(root_, 0, /*is_raw=*/true, text);
  return text;
}

std::string yaml_of(const Json& document) {
  std::string text;
  write_yaml(document, 0, /*is_raw=*/false, text);
  return text;
}

}  // namespace weft
