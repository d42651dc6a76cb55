#pragma once

#include <string>

#include "weft/base/json.h"
#include "weft/exchange/import.h"
#include "weft/simulate/plan_report.h"

namespace weft {

/// Every key with what became of it, and what the system does without a word.
std::string keys_text(const ImportedRun& run);

/// "llm tp 2, pp 8, dp 4, zero 1, mbs 1 x 96, 1f1b; vision inline".
std::string settings_line(const Plan& plan);

Json import_json(const ImportedRun& run, const PlanReport& report);

}  // namespace weft
