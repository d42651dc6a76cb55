// Bandwidth of Weft's own kernels on a GPU, at the shapes of a step of Qwen2-VL 2B (4 × 4,096 tokens, an image of 4,096
// patches each), beside that of a plain copy in the same run. Bytes are what a kernel must read and write. Every call
// works on other memory than those before it, so that the cache has none of it.
#include "weft/layers/own_kernels.h"

#include <algorithm>
#include <cstdio>
#include <functional>

#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/optim/adamw.h"
#include "weft/optim/squared_norm.h"
#include "weft/tensor/cuda_library.h"
#include "weft/tensor/time_marks.h"

namespace {

using namespace weft;

constexpr int64_t kRows = 16'384, kWidth = 1536, kVisionWidth = 1280, kMlp = 8960, kVisionMlp = 5120;
constexpr int64_t kHeads = 12, kKeyHeads = 2, kHeadDim = 128, kClasses = 151'936;
constexpr double kLeast = 0.8;

const at::TensorOptions kBf16 = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
const at::TensorOptions kFp32 = at::TensorOptions(at::kCUDA).dtype(at::kFloat);

double bytes_of(const std::vector<at::Tensor>& tensors) {
  double bytes = 0;
  for (const at::Tensor& x : tensors) bytes += x.defined() ? static_cast<double>(x.nbytes()) : 0;
  return bytes;
}

/// What one call does, and the bytes it moves.
struct Call {
  std::function<void()> run;
  double bytes = 0;
};

/// GB/s: the median of several rounds over as many calls as fill the cache several times.
double gigabytes_per_second(const std::function<Call()>& make) {
  constexpr double kTogether = 2e9;
  std::vector<Call> calls = {make()};
  const auto count = static_cast<size_t>(std::clamp(kTogether / calls.front().bytes, 2.0, 24.0));
  while (calls.size() < count) calls.push_back(make());
  std::vector<double> rates;
  TimeMarks marks(at::Device(at::kCUDA, 0));
  for (int round = 0; round < 7; ++round) {
    marks.clear();
    const size_t begin = marks.mark();
    for (const Call& call : calls) call.run();
    const size_t end = marks.mark();
    marks.wait();
    if (round > 1)
      rates.push_back(calls.front().bytes * static_cast<double>(count) / marks.ms_between(begin, end) / 1e6);
  }
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

double copied = 0;
bool all_reached = true;

void report(const char* name, const std::function<Call()>& make) {
  const double rate = gigabytes_per_second(make);
  const double share = rate / copied;
  all_reached &= share >= kLeast;
  fmt::print("{:<44} {:6.0f} GB/s {:6.2f} of copy{}\n", name, rate, share, share < kLeast ? "  below 0.80" : "");
  std::fflush(stdout);
}

Call copy() {
  const at::Tensor from = at::randn({kRows, kMlp}, kBf16), to = at::empty_like(from);
  return {[=] { to.copy_(from); }, bytes_of({from, to})};
}

Call norm(int64_t width, bool adds, bool has_bias) {
  const at::Tensor x = at::randn({kRows, width}, kBf16), added = adds ? at::randn_like(x) : at::Tensor();
  const at::Tensor weight = at::ones({width}, kBf16), bias = has_bias ? at::zeros({width}, kBf16) : at::Tensor();
  return {[=] { (void)norm_rows(x, added, weight, bias, 1e-6); }, bytes_of({x, added, adds ? x : at::Tensor(), x})};
}

Call norm_back(int64_t width, bool adds, bool has_bias) {
  const at::Tensor x = at::randn({kRows, width}, kBf16), dy = at::randn_like(x);
  const at::Tensor weight = at::ones({width}, kBf16), bias = has_bias ? at::zeros({width}, kBf16) : at::Tensor();
  const NormedRows kept = norm_rows(x, adds ? at::randn_like(x) : at::Tensor(), weight, bias, 1e-6);
  const at::Tensor passed = adds ? at::randn_like(x) : at::Tensor();
  return {[=] { (void)norm_rows_backward(dy, passed, kept, weight, true); }, bytes_of({x, dy, passed, x})};
}

Call swiglu(bool back) {
  const at::Tensor wide = at::randn({kRows, 2 * kMlp}, kBf16), dy = at::randn({kRows, kMlp}, kBf16);
  if (!back) return {[=] { (void)swiglu_rows(wide); }, bytes_of({wide, dy})};
  return {[=] { (void)swiglu_rows_backward(dy, wide, dy); }, bytes_of({wide, dy, dy, wide})};
}

Call quick_gelu(bool back) {
  const at::Tensor x = at::randn({kRows, kVisionMlp}, kBf16), dy = at::randn_like(x);
  if (!back) return {[=] { (void)quick_gelu_rows(x); }, bytes_of({x, dy})};
  return {[=] { (void)quick_gelu_rows_backward(dy, x, dy); }, bytes_of({x, dy, dy, x})};
}

Call rotation() {
  const at::Tensor packed = at::randn({kRows, kHeads + 2 * kKeyHeads, kHeadDim}, kBf16);
  const at::Tensor heads = packed.narrow(1, 0, kHeads + kKeyHeads);
  const at::Tensor cosines = at::randn({kRows, kHeadDim / 2}, kFp32), sines = at::randn_like(cosines);
  return {[=] { turn_heads_(heads, cosines, sines, false); },
          2.0 * static_cast<double>(heads.numel() * heads.element_size()) + bytes_of({cosines, sines})};
}

Call packing() {
  const at::Tensor dq = at::randn({kRows, kHeads, kHeadDim}, kBf16),
                   dk = at::randn({kRows, kKeyHeads, kHeadDim}, kBf16);
  const at::Tensor dv = at::randn_like(dk);
  const at::Tensor cosines = at::randn({kRows, kHeadDim / 2}, kFp32), sines = at::randn_like(cosines);
  return {[=] { (void)packed_gradients(dq, dk, dv, cosines, sines); },
          2 * bytes_of({dq, dk, dv}) + bytes_of({cosines, sines})};
}

Call column_sums() {
  const at::Tensor x = at::randn({kRows, 3 * kVisionWidth}, kBf16);
  return {[=] { (void)sum_of_rows(x); }, bytes_of({x})};
}

Call loss(bool back) {
  const at::Tensor logits = at::randn({kRows / 4, kClasses}, kBf16);
  const at::Tensor targets = at::randint(kClasses, {kRows / 4}, at::TensorOptions(at::kCUDA).dtype(at::kLong));
  if (!back) return {[=] { (void)row_losses(logits, targets); }, bytes_of({logits})};
  const at::Tensor sums = at::zeros({kRows / 4}, kFp32), scale = at::ones({}, kFp32);
  return {[=] { turn_into_gradient_(logits, sums, targets, scale); }, 2 * bytes_of({logits})};
}

Call adamw(bool is_wide) {
  constexpr int64_t kElements = 32'000'000;
  const at::TensorOptions type = is_wide ? kFp32 : kBf16;
  const AdamWState state{at::zeros({kElements}, type), at::zeros({kElements}, type), at::zeros({kElements}, type)};
  const at::Tensor gradient = at::randn({kElements}, type);
  const at::Tensor values = is_wide ? at::zeros({kElements}, kBf16) : at::Tensor();
  return {[=] { update_adamw(state, gradient, values, {}, {.learning_rate = 1e-4}); },
          2 * bytes_of({state.master, state.moment1, state.moment2}) + bytes_of({gradient, values})};
}

/// Of as many buckets as one kernel reads in a step of half a billion weights.
Call squares(bool is_wide) {
  std::vector<WeightedElements> buckets;
  double bytes = 0;
  for (int i = 0; i < 16; ++i) {
    buckets.push_back({at::randn({is_wide ? 16'000'000 : 32'000'000}, is_wide ? kFp32 : kBf16)});
    bytes += bytes_of({buckets.back().flat});
  }
  return {[=] { (void)weighted_squares(buckets, at::Device(at::kCUDA, 0)); }, bytes};
}

}  // namespace

int main() {
  const auto has_gpu = load_cuda_library();
  WEFT_CHECK(has_gpu.ok(), "{}", has_gpu.error().message());
  if (!*has_gpu) return std::puts("no GPU here"), 0;
  if (const auto missing = missing_kernels(at::Device(at::kCUDA, 0))) return std::puts(missing->message().c_str()), 1;
  copied = gigabytes_per_second(copy);
  fmt::print("{:<44} {:6.0f} GB/s\n", "copy", copied);
  report("norm (rms) with residual, 1536", [] { return norm(kWidth, true, false); });
  report("norm (rms), 1536", [] { return norm(kWidth, false, false); });
  report("norm (rms) with residual, backward, 1536", [] { return norm_back(kWidth, true, false); });
  report("norm (layer) with residual, 1280", [] { return norm(kVisionWidth, true, true); });
  report("norm (layer) with residual, backward, 1280", [] { return norm_back(kVisionWidth, true, true); });
  report("SwiGLU, 8960", [] { return swiglu(false); });
  report("SwiGLU, backward, 8960", [] { return swiglu(true); });
  report("QuickGELU, 5120", [] { return quick_gelu(false); });
  report("QuickGELU, backward, 5120", [] { return quick_gelu(true); });
  report("rotation of heads, 14 x 128", rotation);
  report("packed gradients, 16 x 128", packing);
  report("sums of columns, 3840", column_sums);
  report("loss, 151936 classes", [] { return loss(false); });
  report("loss, backward, 151936 classes", [] { return loss(true); });
  report("AdamW, fp32 states", [] { return adamw(true); });
  report("AdamW, bf16 states", [] { return adamw(false); });
  report("squares of 16 buckets, fp32", [] { return squares(true); });
  report("squares of 16 buckets, bf16", [] { return squares(false); });
  return all_reached ? 0 : 1;
}
