#include "weft/optim/squared_norm.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>

#include "weft/base/check.h"
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

/// As update_source.cpp has them.
constexpr int64_t kTile = 256 * 8 * 8;
constexpr size_t kStretches = 120;
struct Stretches {
  const void* elements[kStretches];
  int64_t count[kStretches];
  double factor[kStretches];
  int tile_end[kStretches];
  int size;
};

/// Of at most kStretches parts of one type.
at::Tensor sum_by_kernel(const WeightedElements* begin, size_t size) {
  constexpr int64_t kThreads = 256;
  const at::Tensor& first = begin->flat;
  const GpuKernels& kernels = own_kernels(first);
  Stretches all{};
  int64_t tiles = 0;
  for (size_t i = 0; i < size; ++i) {
    tiles += (begin[i].flat.numel() + kTile - 1) / kTile;
    all.elements[i] = begin[i].flat.data_ptr();
    all.count[i] = begin[i].flat.numel();
    all.factor[i] = begin[i].factor;
    all.tile_end[i] = static_cast<int>(tiles);
  }
  WEFT_CHECK(tiles <= std::numeric_limits<int>::max(), "{} tiles", tiles);
  all.size = static_cast<int>(size);
  const int64_t blocks = std::min(tiles, kernels.num_processors() * 4);
  const at::Tensor sum_and_partials = at::empty({1 + blocks}, first.options().dtype(at::kDouble));
  auto* sum = sum_and_partials.data_ptr<double>();
  kernels.launch("update", first.scalar_type() == at::kFloat ? "sum_squares_fp32" : "sum_squares_bf16",
                 {.blocks = blocks, .threads = kThreads}, current_stream(first), sum, sum + 1,
                 arrivals_on(first).data_ptr(), all);
  return sum_and_partials[0];
}

}  // namespace

at::Tensor squared_norm(const at::Tensor& flat) {
  const at::NoGradGuard no_graph;
  if (const WeightedElements whole{.flat = flat}; has_own_sum(flat)) return sum_by_kernel(&whole, 1);
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

at::Tensor weighted_squares(const std::vector<WeightedElements>& parts, at::Device device) {
  const at::NoGradGuard no_graph;
  at::Tensor sum = at::zeros({}, at::TensorOptions().device(device).dtype(at::kDouble));
  std::map<at::ScalarType, std::vector<WeightedElements>> by_kernel;
  for (const WeightedElements& part : parts) {
    if (has_own_sum(part.flat))
      by_kernel[part.flat.scalar_type()].push_back(part);
    else
      sum.add_(squared_norm(part.flat), part.factor);
  }
  for (const auto& [type, alike] : by_kernel) {
    for (size_t begin = 0; begin < alike.size(); begin += kStretches)
      sum.add_(sum_by_kernel(&alike[begin], std::min(kStretches, alike.size() - begin)));
  }
  return sum;
}

at::Tensor squared_norm_in_double(const at::Tensor& flat) {
  const at::NoGradGuard no_graph;
  return at::linalg_vector_norm(flat, 2, c10::nullopt, false, at::kDouble).square_();
}

}  // namespace weft
