#include "weft/engine/skipped_samples.h"

#include <map>

#include "weft/checkpoint/agreement.h"

namespace weft {
namespace {

// Names of files need not be UTF-8.
std::string to_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json to_json(const SkippedSample& skipped) {
  return {{"sample", skipped.sample},
          {"attempt", skipped.attempt},
          {"source", skipped.source},
          {"problem", skipped.problem}};
}

}  // namespace

std::vector<SkippedSample> agree_on_skipped(Group& group, const std::vector<SkippedSample>& mine) {
  Json own = Json::array();
  for (const SkippedSample& skipped : mine) {
    own.push_back(to_json(skipped));
    own.back()["is_new"] = skipped.is_new;
  }
  Json all = Json::array();
  for (const std::string& text : gather_texts(group, mine.empty() ? "" : to_text(own))) {
    if (text.empty()) continue;
    for (Json& skipped : Json::parse(text)) all.push_back(std::move(skipped));
  }
  std::map<std::pair<int64_t, int64_t>, SkippedSample> found;
  for (const Json& json : Json::parse(broadcast_text(group, to_text(all)))) {
    SkippedSample skipped{.sample = json["sample"],
                          .attempt = json["attempt"],
                          .source = json["source"],
                          .problem = json["problem"],
                          .is_new = json["is_new"]};
    const auto place = std::pair(skipped.sample, skipped.attempt);
    const auto it = found.emplace(place, skipped).first;
    it->second.is_new = it->second.is_new || skipped.is_new;
  }
  std::vector<SkippedSample> list;
  for (auto& [place, skipped] : found) list.push_back(std::move(skipped));
  return list;
}

std::string to_line(const SkippedSample& skipped, int64_t step) {
  Json json = to_json(skipped);
  json["step"] = step;
  return to_text(json) + "\n";
}

}  // namespace weft
