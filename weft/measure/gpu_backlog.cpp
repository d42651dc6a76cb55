#include "weft/measure/gpu_backlog.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include "weft/base/clock.h"

namespace weft {
namespace {

// Two thirds of the time products and one third copies, as a step has them: a product and as many copies are about two
// milliseconds of a device that computes 750 TFLOP/s and moves 4 TB/s. Slower ones are at it longer, which is no harm.
constexpr int64_t kWidth = 8192;
constexpr int kCopies = 10;
constexpr double kPartMs = 2;

}  // namespace

GpuBacklog::GpuBacklog(at::Device device) {
  if (device.is_cpu()) return;
  const auto options = at::TensorOptions().dtype(at::kBFloat16).device(device);
  // Of numbers as a model has them: zeros cost a GPU so little power that it runs faster than it does in training.
  factor_ = at::randn({kWidth, kWidth}, options);
  product_ = at::empty({kWidth, kWidth}, options);
  copied_ = at::empty({kWidth, kWidth}, options);
}

void GpuBacklog::top_up(double enough_ms) {
  if (!factor_.defined()) return;
  const at::NoGradGuard no_gradients;
  while (busy_until_ms_ - now_ms() < enough_ms) {
    at::mm_out(product_, factor_, factor_);
    for (int i = 0; i < kCopies; ++i) copied_.copy_(product_);
    handed_over(kPartMs);
  }
}

void GpuBacklog::handed_over(double ms) {
  busy_until_ms_ = std::max(busy_until_ms_, now_ms()) + ms;
}

void GpuBacklog::forget() {
  busy_until_ms_ = 0;
}

}  // namespace weft
