#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/mesh/all_layouts.h"
#include "weft/comm/suite.h"
#include "weft/tensor/cuda_library.h"
#include "weft/tensor/local_tensor.h"
#include "weft/tensor/mesh_groups.h"

namespace weft {

// What the tests of this folder share: whole tensors, and what each rank holds of them.

constexpr double kTolerance = 1e-12;

/// Tests on ranks. Each works with one thread: there are more ranks than cores.
class OnTensorRanks : public suite::OnRanks {
 protected:
  OnTensorRanks() { at::set_num_threads(1); }
  /// Of a number of cases, how many are tried. Processes that share cores take turns, and so have fewer.
  uint64_t some_of(uint64_t num_cases) const {
    return draws(GetParam().name.rfind("Threads", 0) == 0 ? num_cases : num_cases / 5);
  }
  void run(const std::function<void(World&)>& body) {
    const char* missing = nullptr;
    suite::OnRanks::run([&](World& world) {
      if (suite::current_place != nullptr) {
        const auto has_cuda = load_cuda_library();
        ASSERT_TRUE(has_cuda.ok()) << has_cuda.error().message();
        if (!*has_cuda) missing = "LibTorch has no CUDA half here";
      }
      at::set_num_threads(1);
      if (missing == nullptr) body(world);
    });
    if (missing == nullptr) return;
    suite::tell_skipped(missing);
    GTEST_SKIP() << missing;
  }
};

/// Where the ranks' tensors are.
inline at::Device test_device() {
  if (suite::current_place == nullptr) return at::kCPU;
  return {at::kCUDA, static_cast<c10::DeviceIndex>(suite::current_place->device().index)};
}

inline at::Tensor random_tensor(const std::vector<int64_t>& shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::TensorOptions().dtype(at::kDouble))
      .to(test_device());
}

/// What the rank at a position of the layout's grid holds of a tensor: copies are equal, and summands are drawn, but
/// for the last one.
inline at::Tensor spread(const at::Tensor& whole, const Layout& layout, int64_t position, uint64_t seed) {
  const AxisGrid& grid = layout.grid();
  const AxisList partial = layout.partial_axes();
  const at::Tensor block = block_of(whole, layout.box(position)).clone();
  const int64_t num_summands = grid.group_size(partial);
  const auto summand = [&](int64_t index) {
    const int64_t member = grid.group_base(grid.group_member(position, partial, index), layout.replicated_axes());
    return random_tensor(layout.local_shape(position), seed * 1000 + static_cast<uint64_t>(member));
  };
  const int64_t own = grid.group_index(position, partial);
  if (own < num_summands - 1) return summand(own);
  at::Tensor last = block;
  for (int64_t index = 0; index + 1 < num_summands; ++index) last = last - summand(index);
  return last;
}

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0 : (a - b).abs().max().item<double>();
}

/// What a rank holds is its part of the tensor; summands are added up over these groups, which no test counts bytes of.
/// `rounding`: how far rounding alone may move it beyond the usual.
inline void expect_spread(const at::Tensor& local, const Layout& layout, const at::Tensor& whole,
                          const MeshGroups& checking, const std::string& what, double rounding = 0) {
  ASSERT_TRUE(local.defined()) << what;
  const std::vector<int64_t> shape = layout.local_shape(checking.position());
  ASSERT_EQ(local.sizes(), at::IntArrayRef(shape)) << what;
  at::Tensor sum = local.detach().clone(at::MemoryFormat::Contiguous);
  if (const AxisList partial = layout.partial_axes(); !partial.empty())
    checking.along(partial).all_reduce(buffer_of(sum), Reduction::kSum).wait();
  const double scale = whole.numel() == 0 ? 1 : 1 + whole.abs().max().item<double>();
  EXPECT_LE(largest_difference(sum, block_of(whole, layout.box(checking.position()))), kTolerance * scale + rounding)
      << what;
}

/// A loss of a whole tensor x, as ranks share the work of it: the sum of sin(x) times weights, or of x times weights
/// where a rank holds only a summand.
struct SharedLoss {
  at::Tensor weights;  ///< of the whole
  bool is_linear = false;

  SharedLoss(const Layout& layout, uint64_t seed)
      : weights(random_tensor(layout.shape(), seed)), is_linear(!layout.partial_axes().empty()) {}

  /// This rank's share: all of its block, or, where copies are used for different work, a share of it.
  at::Tensor share(const at::Tensor& local, const Layout& layout, int64_t position) const {
    double fraction = 1;
    for (size_t axis = 0; axis < layout.states().size(); ++axis) {
      if (layout.state(axis).spread != Spread::kReplicatedPartialGrad) continue;
      const int64_t size = layout.grid().size(axis), own = layout.grid().coordinate(position, axis);
      const auto part = [](int64_t i) { return 0.25 * static_cast<double>(i + 1); };
      double last = 1;
      for (int64_t i = 0; i + 1 < size; ++i) last -= part(i);
      fraction *= own + 1 < size ? part(own) : last;
    }
    return ((is_linear ? local : local.sin()) * block_of(weights, layout.box(position))).sum() * fraction;
  }
  at::Tensor gradient(const at::Tensor& whole) const { return is_linear ? weights : whole.cos() * weights; }
};

/// A mesh of some of the world's ranks, in any order.
inline Mesh random_mesh(int64_t world_size, std::mt19937_64& random) {
  std::vector<Axis> axes;
  int64_t num_ranks = 1;
  const size_t num_axes = random() % 4;
  for (size_t i = 0; i < num_axes; ++i) {
    const int64_t most = std::min<int64_t>(world_size / num_ranks, random() % 3 == 0 ? 8 : 3);
    const auto size = static_cast<int64_t>(random() % static_cast<uint64_t>(most)) + 1;
    axes.push_back({std::string(1, static_cast<char>('a' + i)), size});
    num_ranks *= size;
  }
  std::vector<int64_t> ranks(static_cast<size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), int64_t{0});
  std::shuffle(ranks.begin(), ranks.end(), random);
  ranks.resize(static_cast<size_t>(num_ranks));
  return *Mesh::create(axes, ranks);
}

/// Up to three dims, often shorter than a group, now and then empty.
inline std::vector<int64_t> random_shape(std::mt19937_64& random) {
  std::vector<int64_t> shape(random() % 4);
  for (int64_t& size : shape) size = random() % 12 == 0 ? 0 : static_cast<int64_t>(random() % 9) + 1;
  return shape;
}

}  // namespace weft
