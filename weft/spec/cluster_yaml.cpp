#include "weft/spec/cluster_yaml.h"

#include <cstdlib>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

/// Maps of scalars, nested. JSON's scalars are YAML's.
void write(const Json& object, int indent, std::string& text) {
  for (const auto& [key, value] : object.items()) {
    text += fmt::format("{:{}}{}:", "", indent, key);
    if (value.is_object()) {
      text += "\n";
      write(value, indent + 2, text);
    } else {
      text += " " + value.dump() + "\n";
    }
  }
}

}  // namespace

std::string to_yaml(const Cluster& cluster, const std::string& comment) {
  // A line break in a comment would begin a key.
  constexpr size_t kLongestComment = 4000;
  std::string text = "# " + printable(comment, kLongestComment) + "\n";
  write(to_json(cluster), 0, text);
  return text;
}

Efficiency rounded(Efficiency efficiency) {
  for (const EfficiencyField& field : efficiency_fields()) {
    double& value = efficiency.*field.value;
    value = std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr);
  }
  return efficiency;
}

}  // namespace weft
