#include "weft/cli/legal_plan.h"

#include "weft/cli/one_process.h"
#include "weft/cli/terminal_line.h"
#include "weft/plan/plan_json.h"

namespace weft {

Result<Plan> read_noted_plan(const std::string& path) {
  PlanNotes notes;
  Result<Plan> plan = read_plan_file(path, &notes);
  if (is_first_process()) {
    for (const std::string& note : notes) say("note: " + note);
  }
  return plan;
}

Result<Plan> read_legal_plan(const std::string& path, PlanUse use) {
  WEFT_TRY(Plan plan, read_noted_plan(path));
  const std::vector<Violation> violations = check_plan(plan, use);
  if (violations.empty()) return plan;
  Error error = to_error(violations, "are not legal");
  error.source = path;
  return error;
}

}  // namespace weft
