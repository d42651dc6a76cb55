#include "weft/plan/train_rules.h"

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

/// Every rule is compared with the names of all weights, more than once.
constexpr int64_t kMostRules = 1'000;

}  // namespace

std::vector<TrainRule> read_train_rules(Fields& fields) {
  std::vector<TrainRule> rules;
  std::vector<Fields> listed;
  if (fields.has("trainable")) listed = fields.objects("trainable");
  fields.raw("trainable");
  if (std::ssize(listed) > kMostRules) {
    fields.complain(
        "trainable",
        fmt::format("has {} rules, at most {} are possible", with_commas(std::ssize(listed)), with_commas(kMostRules)),
        "Let a pattern stand for more weights: '*' is any letters.");
    return rules;
  }
  for (Fields& rule : listed) {
    rules.push_back({.weights = rule.text("weights")});
    if (!rule.has("train"))
      rule.complain("train", "is missing", "Say true for weights that are trained, false for others.");
    rules.back().train = rule.flag_or("train", true);
    rule.reject_unknown();
  }
  return rules;
}

Result<std::vector<TrainRule>> read_config_rules(const std::filesystem::path& config) {
  WEFT_TRY(const Document document, read_document(config));
  // What is wrong with the rest is told by who reads all of it.
  if (!document.root.is_object()) return std::vector<TrainRule>();
  Findings findings(document.source);
  Fields fields(document, findings);
  std::vector<TrainRule> rules = read_train_rules(fields);
  if (findings.first()) return *findings.first();
  return rules;
}

}  // namespace weft
