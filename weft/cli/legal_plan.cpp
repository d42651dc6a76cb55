#include "weft/cli/legal_plan.h"

#include "weft/plan/plan_json.h"

namespace weft {

Result<Plan> read_legal_plan(const std::string& path, PlanUse use) {
  WEFT_TRY(Plan plan, read_plan_file(path));
  const std::vector<Violation> violations = check_plan(plan, use);
  if (violations.empty()) return plan;
  Error error = to_error(violations, "are not legal");
  error.source = path;
  return error;
}

}  // namespace weft
