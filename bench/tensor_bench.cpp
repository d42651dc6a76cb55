// How fast tensors change hands. A bridge from dp 8 to dp 2 on the first two of eight ranks, against what would do
// without one: all eight gather everything, and the two take their rows. Started plainly, on threads; by scripts/mpirun
// -n 8, on processes. Rows are even, and ragged.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include "weft/comm/failure.h"
#include "weft/comm/run_ranks.h"
#include "weft/tensor/redistribute.h"
#include "weft/tensor/tensor_bridge.h"

namespace {

using namespace weft;
using Clock = std::chrono::steady_clock;

constexpr int64_t kWidth = 1024, kRows = 8192, kRounds = 15;

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// Until the last rank is done.
double seconds(World& world, const std::function<void()>& work) {
  world.all().barrier().wait();
  const auto start = Clock::now();
  work();
  world.all().barrier().wait();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t sum_over_ranks(World& world, int64_t value) {
  world.all().all_reduce({.data = &value, .count = 1, .type = DataType::kInt64}, Reduction::kSum).wait();
  return value;
}

/// Bytes that any way must move: what the receivers need and do not hold.
int64_t least_bytes(const Mesh& from_mesh, const Layout& from, const Mesh& to_mesh, const Layout& to) {
  int64_t missing = 0;
  for (int64_t position = 0; position < to_mesh.num_ranks(); ++position) {
    const Box needed = to.box(position);
    missing += num_elements(needed);
    if (const auto own = from_mesh.find(to_mesh.rank_at(position)))
      missing -= num_elements(intersection(needed, from.box(*own)));
  }
  return missing * 4;
}

void compare(World& world, const char* name, const std::vector<int64_t>& rows_of_ranks) {
  const Mesh eight = *Mesh::contiguous({{"dp", 8}}), two = *Mesh::contiguous({{"dp", 2}});
  const std::vector<int64_t> shape{kRows, kWidth};
  const Layout from = *Layout::create(eight.grid(), shape, {AxisState::shard(0)}, {{0, rows_of_ranks}});
  const Layout all = *Layout::create(eight.grid(), shape, {AxisState::replicated()});
  const Layout to = *Layout::create(two.grid(), shape, {AxisState::shard(0)});
  const BridgeGroups groups = *BridgeGroups::create(world, eight, two);
  const TensorBridge bridge(groups, from, to, {.type = at::kFloat});
  const Redistribution gather(*groups.from(), from, all);

  const at::Tensor whole = at::arange(kRows * kWidth, at::kFloat).view({kRows, kWidth});
  const at::Tensor x = block_of(whole, from.box(world.rank())).clone();
  at::Tensor bridged, sliced;
  std::vector<double> bridge_s, gather_s;
  int64_t received = groups.traffic().received;
  for (int64_t round = 0; round < kRounds; ++round) {
    bridge_s.push_back(seconds(world, [&] { bridged = bridge.forward(x); }));
    if (round == 0) received = groups.traffic().received - received;
    gather_s.push_back(seconds(world, [&] {
      const at::Tensor gathered = gather(x);
      if (groups.to()) sliced = block_of(gathered, to.box(groups.to()->position())).clone();
    }));
  }
  if (groups.to() && !(at::equal(bridged, sliced) && at::equal(bridged, block_of(whole, to.box(world.rank())))))
    std::printf("rank %ld: WRONG ROWS\n", static_cast<long>(world.rank()));
  const int64_t moved = sum_over_ranks(world, received);
  if (world.rank() != 0) return;
  std::printf(
      "%s, %s rows of %ld floats, %ld of them: bridge dp 8 -> dp 2 moves %ld bytes (least possible %ld) in %.2f ms; "
      "all-gather, then slice %.2f ms: %.1f times as long\n",
      std::string(world.backend_name()).c_str(), name, static_cast<long>(kWidth), static_cast<long>(kRows),
      static_cast<long>(moved), static_cast<long>(least_bytes(eight, from, two, to)), 1e3 * median(bridge_s),
      1e3 * median(gather_s), median(gather_s) / median(bridge_s));
}

}  // namespace

int main() {
  at::set_num_threads(1);
  try {
    const auto error = run_ranks({.size = 8, .mpi_library = WEFT_MPI_LIBRARY}, [](World& world) {
      at::set_num_threads(1);
      compare(world, "even", std::vector<int64_t>(8, kRows / 8));
      compare(world, "ragged", {2000, 0, 3000, 92, 0, 1500, 1100, 500});
    });
    if (error) std::printf("%s\n", error->message().c_str());
    return error ? 2 : 0;
  } catch (const RankFailure& failure) {
    if (failure.should_print()) std::printf("%s\n", failure.what());
    return 1;
  }
}
