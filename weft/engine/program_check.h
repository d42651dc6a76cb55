#pragma once

#include "weft/base/result.h"
#include "weft/engine/program_check_request.h"
#include "weft/spec/model.h"

namespace weft {

/// Whether the numbers of a program are the same under a strategy as on one rank, in double precision. Fails for a
/// program that cannot be run, or is too large for that.
Result<ProgramCheckReport> check_program(const ProgramCheckRequest& request);

/// The first custom operator of a program without repeats whose rule or gradient is refuted by trying it
/// (runner/rule_check.h). Those that are too large to be tried stand.
std::optional<Error> find_wrong_custom(const Program& program);
/// The same of all blocks of a model that is a user's own program.
std::optional<Error> find_wrong_custom(const Model& model);

}  // namespace weft
