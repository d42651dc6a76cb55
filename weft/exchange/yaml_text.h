#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weft/base/json.h"

namespace weft {

/// A YAML document of nested keys and plain values, which is all that settings need. Keys are paths with dots; they
/// stand in the order in which they were first set.
class YamlText {
 public:
  void set(std::string_view path, std::string value);
  void set(std::string_view path, const char* value) { set(path, std::string(value)); }
  void set(std::string_view path, int64_t value) { set(path, std::to_string(value)); }
  void set(std::string_view path, bool value) { set(path, std::string(value ? "True" : "False")); }

  std::string text() const;

 private:
  Json root_ = Json::object();
};

/// A document of mappings, texts, numbers and flags in YAML.
std::string yaml_of(const Json& document);

}  // namespace weft
