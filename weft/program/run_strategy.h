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

/// A program with every time of its repeats written out, and where its parts come from.
struct UnrolledProgram {
  /// Something of the program that was unrolled.
  struct Origin {
    size_t index = 0;
    size_t time = 0;  ///< of the repeat that it is in
  };

  Program program;  ///< operators, results and weights of time t are called "NAME@t", from 0
  std::vector<Origin> operators;
  std::vector<Origin> values;
};

UnrolledProgram unrolled(const Program& program);

}  // namespace weft
