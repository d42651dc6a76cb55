#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/program/program.h"

namespace weft {

/// The functions that custom operators of a program can call in a run that nobody adds others to. All of them read
/// their operands and write their result once, so that memory decides how long they take: "rotary", "rotary_table",
/// "norm_queries", "norm_keys" and "merge_rows" (weft/runner/custom_operators.h has them).
const std::vector<std::string>& custom_functions();

/// Why one of these functions cannot compute what an operator that calls it declares: heads that do not fill the packed
/// rows, angles or weights of another length. Nothing for functions that are not among them.
std::optional<Error> find_wrong_call(const Program& program, const Operator& op);

/// The function that a custom operator calls: as it says, else by its own name.
const std::string& function_of(const Operator& op);

}  // namespace weft
