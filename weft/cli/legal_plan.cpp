#include "weft/cli/legal_plan.h"

#include "weft/cli/one_process.h"
#include "weft/cli/terminal_line.h"
#include "weft/plan/plan_json.h"
#include "weft/plan/train_rules.h"

namespace weft {

Result<Plan> read_noted_plan(const std::string& path) {
  PlanNotes notes;
  Result<Plan> plan = read_plan_file(path, &notes);
  if (is_first_process()) {
    for (const std::string& note : notes) say("note: " + note);
  }
  return plan;
}

namespace {

std::optional<Error> find_illegal(const Plan& plan, const std::string& source, PlanUse use) {
  const std::vector<Violation> violations = check_plan(plan, use);
  if (violations.empty()) return std::nullopt;
  Error error = to_error(violations, "are not legal");
  error.source = source;
  return error;
}

}  // namespace

Result<Plan> read_legal_plan(const std::string& path, PlanUse use) {
  WEFT_TRY(Plan plan, read_noted_plan(path));
  if (auto error = find_illegal(plan, path, use)) return *std::move(error);
  return plan;
}

Result<Plan> read_trained_plan(const std::string& path, const std::string& config) {
  WEFT_TRY(Plan plan, read_legal_plan(path));
  WEFT_TRY(const std::vector<TrainRule> rules, read_config_rules(config));
  if (rules.empty()) return plan;
  // They are judged by themselves first, so that a message's places are the configuration's.
  Plan judged = plan;
  judged.trainable = rules;
  if (auto error = find_illegal(judged, config, PlanUse::kTrain)) return *std::move(error);
  plan.trainable.insert(plan.trainable.end(), rules.begin(), rules.end());
  if (auto error = find_illegal(plan, config, PlanUse::kTrain)) return *std::move(error);
  return plan;
}

}  // namespace weft
