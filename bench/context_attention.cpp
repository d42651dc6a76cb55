// Causal attention whose rows two ranks share, in a ring and by exchanging heads, against one rank that has them all:
// forward and backward, one thread a rank. Prints times, bytes from rank to rank, and how even the ranks' work is.
#include "weft/layers/context_attention.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <mutex>

#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/base/clock.h"
#include "weft/comm/run_ranks.h"
#include "weft/tensor/rank_threads.h"

namespace {

using namespace weft;

constexpr int64_t kRows = 8192, kRanks = 2;
constexpr HeadCounts kHeads{.heads = 8, .kv_heads = 4, .head_dim = 64};
constexpr int kRounds = 2;

/// How long this thread has computed, whoever else had the core meanwhile.
double thread_ms() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

struct Measured {
  double ms = 1e30;          ///< of all, the best round
  std::vector<double> work;  ///< of each rank, its best round
  int64_t bytes = 0;         ///< of all ranks, one round

  double imbalance() const {
    double sum = 0;
    for (const double ms_here : work) sum += ms_here;
    return *std::max_element(work.begin(), work.end()) * static_cast<double>(work.size()) / sum;
  }
};

enum class Way { kOneRank, kRing, kUlysses };

Measured measure(Way way, const RowDeal& deal) {
  Measured best;
  best.work.assign(static_cast<size_t>(deal.num_ranks()), 1e30);
  std::mutex guard;
  const PackedSegments segments({kRows});
  const auto error = run_ranks({.size = deal.num_ranks()}, [&](World& world) {
    use_rank_threads(1);
    Group& all = world.all();
    ContextGroups groups{.rank = world.rank(), .num_ranks = world.size()};
    if (way == Way::kRing) groups.ring = all;
    if (way == Way::kUlysses) groups.ulysses = all;
    const ContextRows rows{.groups = &groups, .deal = deal};
    const int64_t num_rows = deal.num_rows(world.rank());
    const at::Tensor qkv = at::randn({num_rows, kHeads.packed_width()}).set_requires_grad(true);
    const at::Tensor dout = at::randn({num_rows, kHeads.heads * kHeads.head_dim});
    for (int round = 0; round < kRounds; ++round) {
      const at::Tensor fresh = qkv.clone();
      all.barrier().wait();
      const int64_t before = all.traffic().sent;
      const double start = now_ms(), work_start = thread_ms();
      context_attention(fresh, kHeads, {}, segments, {.is_causal = true}, AttentionKeeps::kResults, rows)
          .backward(dout);
      const double work = thread_ms() - work_start;
      const int64_t bytes = all.traffic().sent - before;
      all.barrier().wait();
      const double ms = now_ms() - start;
      const std::lock_guard lock(guard);
      if (round == 0) best.bytes += bytes;
      double& own = best.work[static_cast<size_t>(world.rank())];
      own = std::min(own, work);
      if (world.rank() == 0) best.ms = std::min(best.ms, ms);
    }
  });
  WEFT_CHECK(!error, "{}", error->message());
  return best;
}

}  // namespace

int main() {
  const std::vector<int64_t> lengths = {kRows};
  const RowDeal one = RowDeal::zigzag(lengths, 1), dealt = RowDeal::zigzag(lengths, kRanks);
  const RowDeal halves({{{0, kRows / 2}}, {{kRows / 2, kRows}}});
  const Measured alone = measure(Way::kOneRank, one);
  fmt::print("{} rows, {} heads, {} of keys: one rank {:.0f} ms, {:.0f} of them computing\n", kRows, kHeads.heads,
             kHeads.kv_heads, alone.ms, alone.work[0]);
  std::fflush(stdout);
  const auto print = [&](const char* name, const Measured& m) {
    fmt::print(
        "  {}: {:.0f} ms, {:.2f} times as fast; work {:.0f} and {:.0f} ms, slowest over mean {:.3f}, sum over "
        "one rank's {:.3f}; {} bytes from rank to rank\n",
        name, m.ms, alone.ms / m.ms, m.work[0], m.work[1], m.imbalance(), (m.work[0] + m.work[1]) / alone.work[0],
        m.bytes);
    std::fflush(stdout);
  };
  print("ring", measure(Way::kRing, dealt));
  print("Ulysses", measure(Way::kUlysses, dealt));
  print("ring of two halves", measure(Way::kRing, halves));
  return 0;
}
