#pragma once

#include <string>
#include <vector>

#include "weft/program/program.h"

namespace weft {

/// The functions that custom operators of a program can call in a run that nobody adds others to. All of them read
/// their operands and write their result once, so that memory decides how long they take: "rotary", "rotary_table",
/// "norm_queries", "norm_keys" and "merge_rows" (weft/runner/custom_operators.h has them).
const std::vector<std::string>& custom_functions();

/// The function that a custom operator calls: as it says, else by its own name.
const std::string& function_of(const Operator& op);

}  // namespace weft
