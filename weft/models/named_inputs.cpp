#include "weft/models/named_inputs.h"

#include <algorithm>

#include <ATen/ops/from_blob.h>

namespace weft {

NamedInputs named_inputs(const ProgramNumbers& numbers, const std::vector<std::vector<std::vector<double>>>& samples) {
  NamedInputs named{.tensors = {},
                    .num_samples = std::ssize(samples),
                    .rows_per_sample = numbers.rows.rows_per_sample,
                    .num_targets = numbers.targets_per_sample * std::ssize(samples),
                    .samples = {}};
  for (size_t i = 0; i < numbers.inputs.size(); ++i) {
    const NamedInput& input = numbers.inputs[i];
    std::vector<double> all;
    for (const auto& sample : samples) all.insert(all.end(), sample[i].begin(), sample[i].end());
    std::vector<int64_t> shape = input.shape;
    shape.insert(shape.begin(), std::ssize(samples));
    const at::Tensor tensor = at::from_blob(all.data(), shape, at::TensorOptions().dtype(at::kDouble));
    named.tensors[input.name] = input.num_entries ? tensor.to(at::kLong) : tensor.clone();
    if (numbers.targets == i)
      named.num_targets = std::count_if(all.begin(), all.end(), [](double target) { return target >= 0; });
  }
  return named;
}

}  // namespace weft
