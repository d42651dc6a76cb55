#include "weft/models/config_type.h"

namespace weft {
namespace {

bool is_type_key(const std::string& key) {
  return key == "dtype" || key == "torch_dtype";
}

}  // namespace

// Multimodal configurations of some versions say it only for a part.
std::string type_in_config(const Json& config) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (config.contains(key) && config[key].is_string()) return config[key].get<std::string>();
  }
  for (const char* part : {"thinker_config", "text_config"}) {
    if (!config.contains(part) || !config[part].is_object()) continue;
    const std::string type = type_in_config(config[part]);
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
