#pragma once

#include <string>

#include "weft/validate/run_summary.h"

namespace weft {

/// Tables of a run's comparison: the step, its terms, actions, ranks, steps, and what would mend it.
std::string to_text(const RunComparison& comparison);

/// The step and memory, for the end of a run.
std::string short_text(const RunComparison& comparison);

/// Errors of several runs: a line each, then over all, by model and by device.
std::string to_text(const std::vector<RunSummary>& runs);
Json to_json(const std::vector<RunSummary>& runs);

}  // namespace weft
