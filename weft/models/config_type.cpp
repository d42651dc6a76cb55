#include "weft/models/config_type.h"

namespace weft {
namespace {

bool is_type_key(const std::string& key) {
  return key == "dtype" || key == "torch_dtype";
}

}  // namespace

// Multimodal configurations of some versions say it only for their language model, or for the part that has it.
std::string type_in_config(const Json& config) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (config.contains(key) && config[key].is_string()) return config[key].get<std::string>();
  }
  constexpr const char* kText = "text_config";
  if (!config.is_object()) return "";
  for (const auto& [key, part] : config.items()) {
    if (!part.is_object() || (key != kText && !part.contains(kText))) continue;
    const std::string type = type_in_config(part);
    if (!type.empty()) return type;
  }
  return "";
}

Json config_with_type(const Json& config, const std::string& type) {
  Json changed = config;
  for (auto& [key, value] : changed.items()) {
    if (is_type_key(key) && value.is_string()) value = type;
    if (value.is_object()) value = config_with_type(value, type);
  }
  return changed;
}

}  // namespace weft
