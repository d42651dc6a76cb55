#pragma once

#include "weft/plan/degrees.h"

namespace weft {

/// Whether tensor-parallel ranks divide the rows between a module's blocks. Else all of them have all rows.
inline bool divides_rows(const Degrees& degrees) {
  return degrees.sequence_parallel && degrees.tp > 1;
}
/// Whether they all have rows that one alone would have whole: such rows go to another stage in parts, and are joined.
inline bool repeats_rows(const Degrees& degrees) {
  return !degrees.sequence_parallel && degrees.tp > 1;
}

}  // namespace weft
