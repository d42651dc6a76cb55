#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "weft/program/program.h"

namespace weft {

/// The length and the unit that a dim has in one run of a program.
struct DimLength {
  int64_t length = 0;
  int64_t unit = 1;

  int64_t num_units() const { return length / unit; }
  bool operator==(const DimLength&) const = default;
};

/// By dim of the program.
using RunLengths = std::vector<DimLength>;

/// As the program declares them; a run may need others (changed_lengths).
RunLengths declared_lengths(const Program& program);

/// The same with other lengths of the dims that are named. Dims that rules tie to them follow: those with as many
/// units, and joined ones, "(b s)"; those of rows that
/// experts get have room for all rows, also where nothing is changed. Fails for a dim that does not exist, for a part
/// of a unit, and where two tied dims are given that do not fit.
Result<RunLengths> changed_lengths(const Program& program, const std::vector<std::pair<std::string, int64_t>>& changes);

}  // namespace weft
