#pragma once

#include <string>
#include <string_view>

#include "weft/base/result.h"
#include "weft/schedule/schedule.h"

namespace weft {

/// One line per rank, actions separated by commas: the form that torch.distributed.pipelining reads, compute-only or
/// lowered.
std::string to_csv(const Schedule& schedule);

/// Reads either form. Which rank holds which stage, and the number of microbatches, follow from the actions; empty
/// cells are idle time and are dropped. The error names the file, the line and the cell.
Result<Schedule> parse_csv(std::string_view text, const std::string& source);

}  // namespace weft
