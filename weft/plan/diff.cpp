#include "weft/plan/diff.h"

#include "weft/base/text.h"
#include "weft/plan/plan_json.h"

namespace weft {
namespace {

constexpr size_t kLongestValue = 120;

void compare(const std::string& path, const Json& before, const Json& after, std::vector<Difference>& differences) {
  if (before == after) return;
  if (!before.is_object() || !after.is_object()) {
    const auto shown = [](const Json& value) {
      return value.is_discarded() ? "" : printable(value.dump(), kLongestValue);
    };
    differences.push_back({path, shown(before), shown(after)});
    return;
  }
  const Json missing = Json(Json::value_t::discarded);
  const auto member = [&](const Json& object, const std::string& key) -> const Json& {
    return object.contains(key) ? object[key] : missing;
  };
  const auto below = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  for (const auto& [key, value] : before.items()) compare(below(key), value, member(after, key), differences);
  for (const auto& [key, value] : after.items()) {
    if (!before.contains(key)) compare(below(key), missing, value, differences);
  }
}

/// The documents that a plan carries say the same as their hashes, at more length.
Json shortened(const Plan& plan) {
  Json json = plan_to_json(plan);
  json["model"].erase("config");
  json["cluster"].erase("spec");
  json["workload"].erase("spec");
  return json;
}

}  // namespace

std::vector<Difference> diff_plans(const Plan& before, const Plan& after) {
  std::vector<Difference> differences;
  compare("", shortened(before), shortened(after), differences);
  return differences;
}

}  // namespace weft
