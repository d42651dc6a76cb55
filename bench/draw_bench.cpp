// How fast fresh weights are drawn on one thread, beside LibTorch's generator, which draws a weight from its first
// element to its last. Processor time, the fastest of several runs.
#include <algorithm>
#include <cstdint>
#include <ctime>
#include <functional>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "weft/models/initialize.h"

namespace {

constexpr int64_t kRows = 4096, kColumns = 4096;
constexpr int kRuns = 7;

void report(const char* name, int64_t elements, const std::function<void()>& draw) {
  double fastest_s = 1e9;
  for (int run = 0; run < kRuns; ++run) {
    const std::clock_t start = std::clock();
    draw();
    fastest_s = std::min(fastest_s, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  fmt::print("{}: {:.0f} M elements/s\n", name, static_cast<double>(elements) / fastest_s / 1e6);
}

}  // namespace

int main() {
  using namespace weft;
  at::set_num_threads(1);
  const at::Tensor whole = at::zeros({kRows * kColumns}, at::kFloat);
  report("LibTorch's normal_", whole.numel(), [&] { whole.normal_(0, 0.02, at::detail::createCPUGenerator(7)); });
  const Initialization init = Initialization::normal(0.02);
  WeightPiece piece = whole_weight("some.weight", {kRows, kColumns});
  report("a whole weight", whole.numel(), [&] { initialize_elements(piece, init, 7, 0, whole); });
  piece.num_columns = kColumns / 8;
  const at::Tensor part = at::zeros({piece.num_elements()}, at::kFloat);
  report("an eighth of its columns", part.numel(), [&] { initialize_elements(piece, init, 7, 0, part); });
  const at::Tensor half = at::zeros({kRows * kColumns / 8}, at::kBFloat16);
  report("the same in bf16", half.numel(), [&] { initialize_elements(piece, init, 7, 0, half); });
  return 0;
}
