#include "weft/cli/legal_plan.h"

#include <fmt/format.h>

#include "weft/plan/check.h"
#include "weft/plan/plan_json.h"

namespace weft {

Result<Plan> read_legal_plan(const std::string& path) {
  WEFT_TRY(Plan plan, read_plan_file(path));
  const std::vector<Violation> violations = check_plan(plan);
  if (violations.empty()) return plan;
  std::string lines;
  for (const Violation& violation : violations) lines += fmt::format("  {}: {}\n", violation.field, violation.message);
  const bool is_one = violations.size() == 1;
  return Error{.source = path,
               .field = violations.front().field,
               .problem = is_one ? violations.front().message
                                 : fmt::format("and {} other fields are not legal", violations.size() - 1),
               .advice = is_one ? "" : "All of them:",
               .details = is_one ? "" : lines};
}

}  // namespace weft
