// A mixture of experts on two ranks that share out the experts, against one rank that has all of them and all rows:
// forward and backward, one thread a rank. Prints the time of both, the bytes that went from rank to rank, and those
// that had to.
#include <algorithm>
#include <mutex>

#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include "weft/base/clock.h"
#include "weft/comm/run_ranks.h"
#include "weft/layers/moe.h"
#include "weft/models/initialize.h"
#include "weft/tensor/rank_threads.h"

namespace {

using namespace weft;

constexpr int64_t kExperts = 16, kChosen = 2, kWidth = 512, kInner = 768, kRows = 4096;
constexpr int kRounds = 7;

MoeLayer make_layer(WholeParameters& maker, int64_t experts_here) {
  const auto weight = [&](const char* name, std::vector<int64_t> shape) {
    return maker.make({.pieces = {whole_weight(name, {shape[0] * shape[1], shape[2]})},
                       .shape = shape,
                       .init = Initialization::normal(0.02)});
  };
  MoeLayer layer{.experts_per_token = kChosen, .normalizes_weights = true};
  layer.router = maker.make({.pieces = {whole_weight("router", {kExperts, kWidth})},
                             .shape = {kExperts, kWidth},
                             .init = Initialization::normal(0.02)});
  layer.gate_up = weight("up", {experts_here, 2 * kInner, kWidth});
  layer.down = weight("down", {experts_here, kWidth, kInner});
  return layer;
}

struct Measured {
  double ms = 0;
  int64_t bytes = 0;  ///< of all ranks, forward and backward
};

Measured measure(int64_t num_ranks) {
  Measured best{.ms = 1e30};
  std::mutex guard;
  const auto error = run_ranks({.size = num_ranks}, [&](World& world) {
    use_rank_threads(1);
    WholeParameters maker(at::TensorOptions().dtype(at::kFloat));
    const MoeLayer layer = make_layer(maker, kExperts / num_ranks);
    initialize_weights(maker.all(), 1);
    const at::Tensor x = at::randn({kRows / num_ranks, kWidth}).set_requires_grad(true);
    Group& all = world.all();
    const RunContext context{.experts = num_ranks > 1 ? &all : nullptr};
    for (int round = 0; round <= kRounds; ++round) {
      all.barrier().wait();
      const int64_t before = all.traffic().sent;
      const double start = now_ms();
      layer.forward(x, context).sum().backward();
      const int64_t bytes = all.traffic().sent - before;
      all.barrier().wait();
      const double ms = now_ms() - start;
      const std::lock_guard lock(guard);
      if (round == 0) best.bytes += bytes;  // a first one to warm up
      if (round > 0 && world.rank() == 0) best.ms = std::min(best.ms, ms);
    }
  });
  WEFT_CHECK(!error, "{}", error->message());
  return best;
}

}  // namespace

int main() {
  for (int run = 0; run < 3; ++run) {
    const Measured one = measure(1), two = measure(2);
    fmt::print(
        "{} rows, {} experts, {} of them each: one rank {:.1f} ms, two ranks {:.1f} ms: {:.2f} times as fast, "
        "{} bytes from rank to rank\n",
        kRows, kExperts, kChosen, one.ms, two.ms, one.ms / two.ms, two.bytes);
  }
  return 0;
}
