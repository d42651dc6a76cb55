#pragma once

#include <vector>

#include "weft/program/program.h"

namespace weft {

/// How a program without repeats runs on a mesh: a choice for every operator and axis, and a state on every axis for
/// what comes from elsewhere: inputs, data, and weights as they are held.
struct RunStrategy {
  std::vector<std::vector<Choice>> operators;   ///< by operator and axis
  std::vector<std::vector<AxisState>> sources;  ///< by value and axis; nothing for results
};

}  // namespace weft
