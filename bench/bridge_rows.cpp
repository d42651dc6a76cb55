// Bringing an encoder's rows from dp 8 to the llm's first stage on the same eight thread ranks, tp 4 x dp 2: by a route
// of exactly the rows that each rank needs (row_transfer.h), against gathering all rows on all ranks and taking those.
// Rows are ragged: a sample has between none and many. With sequence parallelism a rank needs a quarter of its
// data-parallel rank's rows, without it all of them.
#include <algorithm>
#include <chrono>
#include <functional>

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/comm/run_ranks.h"
#include "weft/tensor/local_tensor.h"
#include "weft/tensor/row_transfer.h"

namespace {

using namespace weft;
using Clock = std::chrono::steady_clock;

constexpr int64_t kRanks = 8, kTensorParallel = 4, kDataParallel = 2, kRows = 4096, kWidth = 1024, kRounds = 25;

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// Until the last rank is done.
double milliseconds(World& world, const std::function<void()>& work) {
  world.all().barrier().wait();
  const auto start = Clock::now();
  work();
  world.all().barrier().wait();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

int64_t sum_over_ranks(World& world, int64_t value) {
  world.all().all_reduce({.data = &value, .count = 1, .type = DataType::kInt64}, Reduction::kSum).wait();
  return value;
}

struct Rows {
  RowLists held;
  RowLists needed;
};

/// Samples go to the encoder's ranks and to the llm's in turn, as a batch's order has it.
Rows deal(bool sequence_parallel) {
  const std::vector<int64_t> rows_of_samples = {640, 16, 0, 900, 64, 256, 100, 24, 484, 36, 400, 0, 196, 324, 600, 56};
  Rows rows{.held = RowLists(kRanks), .needed = RowLists(kRanks)};
  // Numbered rank after rank, as an encoder's macro batch is.
  std::vector<std::vector<int64_t>> of_sample(rows_of_samples.size());
  int64_t next = 0;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    for (size_t sample = rank; sample < rows_of_samples.size(); sample += kRanks) {
      for (int64_t i = 0; i < rows_of_samples[sample]; ++i) {
        rows.held[rank].push_back(next);
        of_sample[sample].push_back(next++);
      }
    }
  }
  WEFT_CHECK(next == kRows, "{} rows instead of {}", next, kRows);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    std::vector<int64_t> all;
    for (size_t sample = rank / kTensorParallel; sample < of_sample.size(); sample += kDataParallel)
      all.insert(all.end(), of_sample[sample].begin(), of_sample[sample].end());
    if (sequence_parallel) {
      const auto place = static_cast<int64_t>(rank % kTensorParallel), count = std::ssize(all);
      all = {all.begin() + place * count / kTensorParallel, all.begin() + (place + 1) * count / kTensorParallel};
    }
    rows.needed[rank] = std::move(all);
  }
  return rows;
}

void compare(World& world, bool sequence_parallel) {
  const Rows rows = deal(sequence_parallel);
  const OwnRoute route = plan_own_route(rows.held, rows.needed, world.rank());
  const auto own = static_cast<size_t>(world.rank());
  Group group = world.all();
  const at::TensorOptions options(at::kFloat);
  const at::Tensor whole = at::arange(kRows * kWidth, options).view({kRows, kWidth});
  const at::Tensor x = whole.index_select(0, at::tensor(rows.held[own], at::kLong));
  const at::Tensor places = at::tensor(rows.needed[own], at::kLong);
  std::vector<int64_t> counts;
  for (const auto& held : rows.held) counts.push_back(std::ssize(held) * kWidth);

  at::Tensor routed, sliced;
  int64_t routed_bytes = 0, gathered_bytes = 0;
  std::vector<double> route_ms, gather_ms;
  for (int64_t round = 0; round < kRounds; ++round) {
    int64_t sent = 0;
    route_ms.push_back(milliseconds(world, [&] {
      const int64_t before = group.traffic().received;
      RowTransfer transfer = start_rows(group, route, x, kWidth, options);
      routed = transfer.wait();
      transfer.finish();
      sent = group.traffic().received - before;
    }));
    routed_bytes = sent;
    gather_ms.push_back(milliseconds(world, [&] {
      const int64_t before = group.traffic().received;
      const at::Tensor all = at::empty({kRows, kWidth}, options);
      group.all_gather(buffer_of(x), buffer_of(all), counts).wait();
      sliced = all.index_select(0, places);
      sent = group.traffic().received - before;
    }));
    gathered_bytes = sent;
  }
  if (!at::equal(routed, sliced) || !at::equal(routed, whole.index_select(0, places)))
    fmt::print("rank {}: WRONG ROWS\n", world.rank());
  const int64_t num_messages = sum_over_ranks(world, std::ssize(route.sent));
  routed_bytes = sum_over_ranks(world, routed_bytes);
  gathered_bytes = sum_over_ranks(world, gathered_bytes);
  if (world.rank() != 0) return;
  int64_t missing = 0;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    for (const int64_t row : rows.needed[rank])
      missing += std::binary_search(rows.held[rank].begin(), rows.held[rank].end(), row) ? 0 : 1;
  }
  constexpr double kMib = 1024 * 1024;
  fmt::print(
      "{} sequence parallelism: {} messages move {:.1f} MiB (least possible {:.1f}) in {:.2f} ms; all-gather, then "
      "slice {:.1f} MiB in {:.2f} ms: {:.2f} times the bytes, {:.2f} times the time\n",
      sequence_parallel ? "with" : "without", num_messages, static_cast<double>(routed_bytes) / kMib,
      static_cast<double>(missing * kWidth * 4) / kMib, median(route_ms), static_cast<double>(gathered_bytes) / kMib,
      median(gather_ms), static_cast<double>(gathered_bytes) / static_cast<double>(routed_bytes),
      median(gather_ms) / median(route_ms));
}

}  // namespace

int main() {
  at::set_num_threads(1);
  const auto error = run_ranks({.size = kRanks}, [](World& world) {
    at::set_num_threads(1);
    for (const bool sequence_parallel : {false, true}) compare(world, sequence_parallel);
  });
  WEFT_CHECK(!error, "{}", error->message());
  return 0;
}
