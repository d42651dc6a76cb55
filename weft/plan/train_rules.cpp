#include "weft/plan/train_rules.h"

namespace weft {

std::vector<TrainRule> read_train_rules(Fields& fields) {
  std::vector<TrainRule> rules;
  std::vector<Fields> listed;
  if (fields.has("trainable")) listed = fields.objects("trainable");
  fields.raw("trainable");
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
