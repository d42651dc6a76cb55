#include "weft/optim/squared_norm.h"

#include <map>
#include <mutex>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>

#include "weft/layers/own_kernels.h"
#include "weft/meaning/square_ranges.h"

namespace weft {
namespace {

bool has_own_sum(const at::Tensor& flat) {
  const bool is_known = flat.scalar_type() == at::kFloat || flat.scalar_type() == at::kBFloat16;
  return is_known && flat.numel() > 0 && flat.is_contiguous() && has_own_kernels_on(flat.device()) &&
         reinterpret_cast<uintptr_t>(flat.data_ptr()) % 16 == 0;
}

/// 0 whenever no sum is being made: those on one stream follow each other. Never given back, as the stream is not.
const at::Tensor& arrivals_on(const at::Tensor& flat) {
  using Place = std::pair<c10::DeviceIndex, CudaStreamHandle>;
  static std::mutex guard;
  static auto& counts = *new std::map<Place, at::Tensor>;
  const std::lock_guard lock(guard);
  at::Tensor& count = counts[Place(flat.device().index(), current_stream(flat))];
  if (!count.defined()) count = at::zeros({1}, flat.options().dtype(at::kInt));
  return count;
}

at::Tensor sum_by_kernel(const at::Tensor& flat) {
  constexpr int64_t kThreads = 256, kEight = 8;
  const GpuKernels& kernels = own_kernels(flat);
  const int64_t most = (flat.numel() + kThreads * kEight - 1) / (kThreads * kEight);
  const int64_t blocks = std::min(most, kernels.num_processors() * 4);
  const at::Tensor sum_and_partials = at::empty({1 + blocks}, flat.options().dtype(at::kDouble));
  auto* sum = sum_and_partials.data_ptr<double>();
  kernels.launch("update", flat.scalar_type() == at::kFloat ? "sum_squares_fp32" : "sum_squares_bf16",
                 {.blocks = blocks, .threads = kThreads}, current_stream(flat), sum, sum + 1,
                 arrivals_on(flat).data_ptr(), flat.data_ptr(), flat.numel());
  return sum_and_partials[0];
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
