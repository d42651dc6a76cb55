#pragma once

#include "weft/base/result.h"
#include "weft/engine/program_check_request.h"

namespace weft {

/// Whether the numbers of a program are the same under a strategy as on one rank, in double precision. Fails for a
/// program that cannot be run, or is too large for that.
Result<ProgramCheckReport> check_program(const ProgramCheckRequest& request);

}  // namespace weft
