#pragma once

#include <vector>

#include "weft/mesh/axis_grid.h"
#include "weft/program/run_strategy.h"

namespace weft {

/// A program that is run once, forward and backward, with drawn numbers: on thread ranks by a strategy, and on one.
struct ProgramCheckRequest {
  static constexpr int64_t kMostElements = int64_t{1} << 24;
  static constexpr int64_t kMostRanks = 64;

  Program program;  ///< without repeats
  RunStrategy strategy;
  std::vector<Axis> mesh;
  uint64_t seed = 0;
};

struct ProgramCheckReport {
  int64_t ranks = 0;
  size_t outputs = 0;
  size_t gradients = 0;
  double largest_difference = 0;  ///< of any element from one rank's, over the largest of its tensor
  std::string worst;              ///< the value that it is in
  int64_t bytes_moved = 0;        ///< received by all ranks, in fp64
  int64_t bytes_planned = 0;
};

}  // namespace weft
