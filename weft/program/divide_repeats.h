#pragma once

#include <utility>
#include <vector>

#include "weft/program/program.h"

namespace weft {

/// A program whose repeats are taken apart.
struct DividedProgram {
  Program program;
  std::vector<std::pair<size_t, size_t>> origins;  ///< by operator: the one that it is a part of, and its first layer
};

/// Layers that differ need operators of their own: for every repeat how many layers its parts have, in order. Operators
/// and weights of a part have its layers behind their names, "mlp.up.0-11"; those of a repeat that stays whole keep
/// them. Fails where the numbers are not the program's.
Result<DividedProgram> divide_repeats(const Program& program, const std::vector<std::vector<int64_t>>& parts);

/// Every layer by itself, "mlp.up.3-3", and no repeats.
Result<DividedProgram> unrolled(const Program& program);

}  // namespace weft
