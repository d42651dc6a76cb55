#include "weft/engine/runtime_check.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/version.h>

namespace weft {
namespace {

constexpr int64_t kRows = 64;
constexpr int64_t kFeatures = 8;
constexpr double kLearningRate = 0.1;
constexpr double kTolerance = 1e-12;

at::Tensor mean_squared_error(const at::Tensor& inputs, const at::Tensor& weights, const at::Tensor& targets) {
  return (inputs.mm(weights) - targets).square().mean();
}

}  // namespace

Result<RuntimeReport> check_runtime() {
  const auto generator = at::detail::createCPUGenerator(/*seed=*/7);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor inputs = at::randn({kRows, kFeatures}, generator, options);
  const at::Tensor targets = inputs.mm(at::randn({kFeatures, 1}, generator, options));
  at::Tensor weights = at::zeros({kFeatures, 1}, options).set_requires_grad(true);

  const at::Tensor loss = mean_squared_error(inputs, weights, targets);
  loss.backward();

  const at::NoGradGuard no_grad;
  const at::Tensor closed_form = inputs.t().mm(inputs.mm(weights) - targets) * (2.0 / kRows);
  RuntimeReport report{.libtorch_version = TORCH_VERSION,
                       .num_threads = at::get_num_threads(),
                       .loss_before = loss.item<double>(),
                       .gradient_error = (weights.grad() - closed_form).abs().max().item<double>()};
  weights -= kLearningRate * weights.grad();
  report.loss_after = mean_squared_error(inputs, weights, targets).item<double>();

  if (!(report.gradient_error < kTolerance) || !(report.loss_after < report.loss_before)) {
    return Error{.kind = ErrorKind::kJob,
                 .source = "runtime",
                 .problem = fmt::format("a training step went wrong: loss {} -> {}, gradient off by {}",
                                        report.loss_before, report.loss_after, report.gradient_error),
                 .advice = "Check the LibTorch installation."};
  }
  return report;
}

}  // namespace weft
