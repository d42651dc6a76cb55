#pragma once

#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/layers/parameter.h"
#include "weft/spec/model.h"

namespace weft {

/// A weight as files name it.
struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
};

/// All weights that a model has, whoever holds them, and what the names of those outside its encoders begin with.
struct WeightList {
  std::vector<NamedShape> weights;
  std::string prefix;
};

Result<WeightList> list_weights(const Model& model);
/// Those of these parameters.
WeightList list_weights(const std::vector<ParameterPtr>& parameters, std::string_view prefix);

}  // namespace weft
