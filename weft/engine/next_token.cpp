#include "weft/engine/next_token.h"

#include <cmath>

#include <ATen/ops/max.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include "weft/models/listed_numbers.h"

namespace weft {
namespace {

/// The likeliest token; of equals the first. Where any logit is not a number, it is the likeliest and fails the job.
/// A GPU is waited for once.
Result<int64_t> likeliest(const at::Tensor& logits, size_t num_before) {
  const auto [value, index] = at::max(logits, 0);
  const at::Tensor both = at::stack({value.to(at::kDouble), index.to(at::kDouble)}).to(at::kCPU);
  const double* numbers = both.data_ptr<double>();
  if (!std::isfinite(numbers[0])) return not_finite_error(num_before);
  return static_cast<int64_t>(numbers[1]);
}

}  // namespace

Error not_finite_error(size_t num_before) {
  return {.kind = ErrorKind::kJob,
          .problem = fmt::format("the model's output for new token {} is not a finite number", num_before),
          .advice = "Try --dtype fp32; if that does not help, the weights are damaged."};
}

Result<int64_t> next_token(TokenChooser& chooser, const at::Tensor& logits, size_t num_before) {
  WEFT_TRY(const int64_t token, likeliest(logits, num_before));
  if (chooser.takes_likeliest()) {
    chooser.add(token);
    return token;
  }
  const at::Tensor numbers = logits.to(at::TensorOptions().device(at::kCPU).dtype(at::kDouble)).contiguous();
  const double* first = numbers.data_ptr<double>();
  return chooser.choose(std::vector<double>(first, first + numbers.numel()));
}

std::vector<int64_t> tokens_of(const at::Tensor& ids) {
  return listed_numbers(ids);
}

}  // namespace weft
