#pragma once

#include <filesystem>
#include <string>

#include "weft/base/document.h"
#include "weft/plan/plan.h"

namespace weft {

/// Reads a plan document. Unknown keys, a newer version, and a model, cluster or workload that no longer fits its hash
/// are errors; whether the plan is legal is for check_plan to say.
Result<Plan> read_plan(const Document& document);
Result<Plan> read_plan_file(const std::filesystem::path& path);

/// The document. Reading and writing it again gives the same bytes.
std::string plan_to_text(const Plan& plan);
Json plan_to_json(const Plan& plan);

}  // namespace weft
