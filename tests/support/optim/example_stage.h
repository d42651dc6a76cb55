#pragma once

#include <random>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "tests/support/optim/plain_adamw.h"
#include "weft/optim/bucket_layout.h"

namespace weft {

// A small stage for tests: parameters larger and smaller than a group, one empty, one frozen.

struct ExampleParameter {
  std::vector<int64_t> shape;
  int64_t bundle = 0;
  bool is_frozen = false;

  int64_t num_elements() const {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return count;
  }
};

inline const std::vector<ExampleParameter> kExampleStage = {
    {{5, 3}},       {{7}},     {{1}},       {{0, 4}}, {{4, 6}, 0, true},
    {{2, 2, 2}, 1}, {{33}, 1}, {{1, 1}, 1}, {{6, 2}}, {{3}, 1, true},
};

/// Numbers that every rank can make again.
inline std::vector<double> example_numbers(const ExampleParameter& p, const std::vector<uint32_t>& seeds) {
  std::seed_seq seed(seeds.begin(), seeds.end());
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw;
  std::vector<double> numbers(p.num_elements());
  for (double& x : numbers) x = draw(random);
  return numbers;
}

inline std::vector<double> example_value(size_t i) {
  return example_numbers(kExampleStage[i], {7, static_cast<uint32_t>(i)});
}

/// One of a stage's backwards.
struct ExampleBackward {
  int64_t step = 0, rank = 0, microbatch = 0;

  std::vector<double> gradient(size_t i) const {
    return example_numbers(kExampleStage[i], {static_cast<uint32_t>(step), static_cast<uint32_t>(rank),
                                              static_cast<uint32_t>(microbatch), static_cast<uint32_t>(i)});
  }
  /// Sometimes a parameter takes no part, as an expert without tokens.
  bool has_gradient(size_t i) const { return (i + step + rank + microbatch) % 5 != 0; }
};

inline std::vector<StageParameter> example_parameters(at::ScalarType type = at::kDouble) {
  std::vector<StageParameter> all;
  for (size_t i = 0; i < kExampleStage.size(); ++i) {
    const ExampleParameter& p = kExampleStage[i];
    auto parameter = c10::make_intrusive<Parameter>();
    parameter->spec = {.pieces = {whole_weight("w" + std::to_string(i), p.shape)}, .shape = p.shape, .init = {}};
    parameter->value = at::tensor(example_value(i)).view(p.shape).to(type).set_requires_grad(!p.is_frozen);
    parameter->gradient_type = type;
    all.push_back({.parameter = parameter, .bundle = p.bundle});
  }
  return all;
}

/// All ranks' training on one, with the plain formula.
class PlainStage {
 public:
  PlainStage() {
    for (size_t i = 0; i < kExampleStage.size(); ++i) parameters_.push_back({.weights = example_value(i)});
  }

  /// Gradients of a step, summed over ranks and microbatches.
  static std::vector<double> summed(size_t i, int64_t step, int64_t num_ranks, int64_t num_microbatches) {
    std::vector<double> sum(kExampleStage[i].num_elements());
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      for (int64_t microbatch = 0; microbatch < num_microbatches; ++microbatch) {
        const ExampleBackward backward{step, rank, microbatch};
        if (!backward.has_gradient(i)) continue;
        const std::vector<double> part = backward.gradient(i);
        for (size_t k = 0; k < sum.size(); ++k) sum[k] += part[k];
      }
    }
    return sum;
  }

  void update(int64_t step, int64_t num_ranks, int64_t num_microbatches, double rate, double scale) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (kExampleStage[i].is_frozen) continue;
      std::vector<double> gradient = summed(i, step, num_ranks, num_microbatches);
      for (double& x : gradient) x *= scale;
      AdamWSettings settings;
      if (kExampleStage[i].shape.size() < 2) settings.weight_decay = 0;
      parameters_[i].update(gradient, settings, rate, step);
    }
  }

  const PlainAdamW& operator[](size_t i) const { return parameters_[i]; }

 private:
  std::vector<PlainAdamW> parameters_;
};

}  // namespace weft
