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
  std::vector<int64_t> shape;  ///< as parameters have it
  bool is_transposed = false;  ///< in files

  std::vector<int64_t> file_shape() const { return is_transposed ? std::vector{shape[1], shape[0]} : shape; }
};

/// All weights that a model has, whoever holds them, and how files of it differ.
struct WeightList {
  std::vector<NamedShape> weights;
  WeightFiles files;
};

Result<WeightList> list_weights(const Model& model);
/// Those of these parameters.
WeightList list_weights(const std::vector<ParameterPtr>& parameters, const WeightFiles& files);

}  // namespace weft
