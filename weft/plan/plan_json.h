#pragma once

#include <filesystem>
#include <string>

#include "weft/base/document.h"
#include "weft/plan/plan.h"

namespace weft {

/// What a reader is told of a document that is not an error: where an older version said what is not so any more.
using PlanNotes = std::vector<std::string>;

/// Reads a plan document. Unknown keys, a newer version, and a model, cluster or workload that no longer fits its hash
/// are errors; whether the plan is legal is for check_plan to say. Notes, if anybody takes them, name source and field.
Result<Plan> read_plan(const Document& document, PlanNotes* notes = nullptr);
Result<Plan> read_plan_file(const std::filesystem::path& path, PlanNotes* notes = nullptr);

/// The document. Reading and writing it again gives the same bytes.
std::string plan_to_text(const Plan& plan);
Json plan_to_json(const Plan& plan);

}  // namespace weft
