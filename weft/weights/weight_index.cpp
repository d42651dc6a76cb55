#include "weft/weights/weight_index.h"

#include <map>
#include <set>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/text.h"
#include "weft/weights/weight_entry.h"

namespace weft {
namespace {

/// The name of a file in the same folder, so that no index can reach outside of it.
bool is_file_name(const std::string& text) {
  return !text.empty() && text != "." && text != ".." && text.find('/') == std::string::npos &&
         text.find('\0') == std::string::npos && text.ends_with(".safetensors");
}

/// Whether all of its texts are UTF-8, as those of JSON must be: what YAML's reader lets pass need not be.
bool is_writable(const Json& json) {
  try {
    return !json.dump().empty();
  } catch (const Json::type_error&) {
    return false;
  }
}

}  // namespace

std::vector<std::string> WeightIndex::files() const {
  std::set<std::string> names;
  for (const auto& [weight, file] : weight_map) names.insert(file);
  return {names.begin(), names.end()};
}

Result<WeightIndex> read_weight_index(const Document& document) {
  Findings findings(document.source);
  Fields fields(document, findings);
  WeightIndex index;
  if (const Json* metadata = fields.raw("metadata")) {
    if (!metadata->is_object())
      fields.complain("metadata", "is " + describe_value(*metadata) + ", and must be an object");
    if (!is_writable(*metadata)) fields.complain("metadata", "holds a text that is not UTF-8");
    index.metadata = *metadata;
  }
  const Json* map = fields.raw("weight_map");
  if (map == nullptr || !map->is_object() || map->empty()) {
    fields.complain(
        "weight_map",
        fmt::format("{}, and must name the file of every weight",
                    map == nullptr ? "is missing" : "is " + (map->empty() ? "empty" : describe_value(*map))),
        "Check that this is the index of a Hugging Face model.");
  } else {
    index.weight_map.reserve(map->size());
    for (const auto& [weight, file] : map->items()) {
      if (!file.is_string() || !is_file_name(file.get_ref<const std::string&>())) {
        fields.complain(
            "weight_map." + printable(weight, kLongestShownName),
            fmt::format("is {}, and must be the name of a .safetensors file in the same folder", describe_value(file)));
        break;
      }
      if (!is_writable(Json(weight)) || !is_writable(file)) {
        fields.complain("weight_map." + printable(weight, kLongestShownName), "has a name that is not UTF-8");
        break;
      }
      index.weight_map.emplace_back(weight, file.get<std::string>());
    }
  }
  if (findings.first()) return *findings.first();
  return index;
}

std::string to_text(const WeightIndex& index) {
  // Python's json.dumps(index, indent=2, sort_keys=True): sorted by code point, which in UTF-8 is by byte, and ASCII
  // only.
  nlohmann::json sorted = nlohmann::json::object();
  if (index.metadata) sorted["metadata"] = nlohmann::json(*index.metadata);
  nlohmann::json& map = sorted["weight_map"] = nlohmann::json::object();
  for (const auto& [weight, file] : index.weight_map) map[weight] = file;
  return sorted.dump(2, ' ', true) + "\n";
}

}  // namespace weft
