#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/layers/dropout.h"

namespace weft {

/// Where a program is a layer of a model, what decides instead: the layer's number, the operators' sites and numbers of
/// rows, so that it drops what the layer's own code drops.
struct LayerDraws {
  int64_t number = 0;
  at::Tensor rows;                 ///< of all rows of the run, as row_number gives them
  at::Tensor attended;             ///< of all rows that attention's segments are made of
  std::vector<DropoutSite> sites;  ///< by operator
};

/// What decides which elements a program's dropouts drop, besides the operator and the element's place in the whole
/// tensor: every strategy, and every division of a batch or of a program, drops the same.
struct RunDraws {
  uint64_t seed = 0;
  int64_t step = 0;
  bool drops = true;           ///< false: nothing is dropped, as where a model is not trained
  int64_t first_operator = 0;  ///< where the program is a part of another one: the number of its first operator there
  /// Where the program runs on some of a step's samples: the dim of samples, and their numbers in the step. They take
  /// the place of 0, 1, ... in tensors that begin with this dim.
  std::optional<size_t> sample_dim = std::nullopt;
  std::vector<int64_t> samples = {};
  std::optional<LayerDraws> layer = std::nullopt;
};

}  // namespace weft
