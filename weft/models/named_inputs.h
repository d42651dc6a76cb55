#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/program/program_numbers.h"

namespace weft {

/// A batch for a user's own program: tensors by the names that the program has for them, samples along the first dim.
struct NamedInputs {
  std::map<std::string, at::Tensor> tensors;  ///< int64, or of the type that is computed in
  int64_t num_samples = 0;
  int64_t rows_per_sample = 1;
  int64_t num_targets = 0;
  std::vector<int64_t> samples;  ///< their numbers in the step, where these matter
};

/// Of samples' numbers, by sample and input of the program.
NamedInputs named_inputs(const ProgramNumbers& numbers, const std::vector<std::vector<std::vector<double>>>& samples);

}  // namespace weft
