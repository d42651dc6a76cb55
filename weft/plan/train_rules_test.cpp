#include "weft/plan/train_rules.h"

#include <gtest/gtest.h>

namespace weft::train_rules_test {
namespace {

std::string complaint(size_t num_rules) {
  Json listed = Json::array();
  for (size_t i = 0; i < num_rules; ++i) listed.push_back({{"weights", "*"}, {"train", true}});
  const Document document{.source = "plan.json", .root = {{"trainable", listed}}};
  Findings findings(document.source);
  Fields fields(document, findings);
  const std::vector<TrainRule> rules = read_train_rules(fields);
  EXPECT_EQ(rules.size(), findings.first() ? 0 : num_rules);
  return findings.first() ? findings.first()->message() : "";
}

TEST(TrainRules, TheirNumberIsLimited) {
  EXPECT_EQ(complaint(1000), "");
  EXPECT_NE(complaint(1001).find("trainable: has 1,001 rules, at most 1,000 are possible"), std::string::npos)
      << complaint(1001);
}

}  // namespace
}  // namespace weft::train_rules_test
