#include "weft/optim/squared_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>

#include "weft/layers/own_kernels.h"
#include "weft/meaning/square_ranges.h"

namespace weft {
namespace {

bool has_own_sum(const at::Tensor& flat) {
  const bool is_known = flat.scalar_type() == at::kFloat || flat.scalar_type() == at::kBFloat16;
  return is_known && flat.numel() > 0 && flat.is_contiguous() && has_own_kernels_on(flat.device()) &&
         reinterpret_cast<uintptr_t>(flat.data_ptr()) % 16 == 0;
}

at::Tensor sum_by_kernel(const at::Tensor& flat) {
  constexpr int64_t kThreads = 256, kEight = 8;
  const GpuKernels& kernels = own_kernels(flat);
  const int64_t most = (flat.numel() + kThreads * kEight - 1) / (kThreads * kEight);
  const int64_t blocks = std::min(most, kernels.num_processors() * 8);
  const at::Tensor partials = at::empty({blocks}, flat.options().dtype(at::kDouble));
  kernels.launch("update", flat.scalar_type() == at::kFloat ? "sum_squares_fp32" : "sum_squares_bf16",
                 {.blocks = blocks, .threads = kThreads}, current_stream(flat), partials.data_ptr(), flat.data_ptr(),
                 flat.numel());
  at::Tensor sum = at::empty({}, partials.options());
  kernels.launch("update", "finish_squares", {.blocks = 1, .threads = kThreads}, current_stream(flat), sum.data_ptr(),
                 partials.data_ptr(), static_cast<int>(blocks));
  return sum;
}

}  // namespace

at::Tensor squared_norm(const at::Tensor& flat) {
  const at::NoGradGuard no_graph;
  if (has_own_sum(flat)) return sum_by_kernel(flat);
  if (flat.size(0) < kFewSquares) return squared_norm_in_double(flat);
  const at::ScalarType type = flat.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto squares_of = [&](const at::Tensor& rows) {
    return at::linalg_vector_norm(rows, 2, at::IntArrayRef{1}, false, type).to(at::kDouble).square_().sum();
  };
  const int64_t in_rows = flat.size(0) / kSquareRow * kSquareRow;
  const at::Tensor sum = squares_of(flat.narrow(0, 0, in_rows).view({-1, kSquareRow}));
  const at::Tensor rest = flat.narrow(0, in_rows, flat.size(0) - in_rows).unsqueeze(0);
  return rest.size(1) > 0 ? sum + squares_of(rest) : sum;
}

at::Tensor squared_norm_in_double(const at::Tensor& flat) {
  const at::NoGradGuard no_graph;
  return at::linalg_vector_norm(flat, 2, c10::nullopt, false, at::kDouble).square_();
}

}  // namespace weft
