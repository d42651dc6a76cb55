#include "weft/measure/gpu_backlog.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

namespace weft {
namespace {

// About 4 ms of a device that computes 800 TFLOP/s, more than a host needs for a pass of a layer.
constexpr int64_t kWidth = 8192;
constexpr int kProducts = 3;

}  // namespace

GpuBacklog::GpuBacklog(at::Device device) {
  if (device.is_cpu()) return;
  const auto options = at::TensorOptions().dtype(at::kBFloat16).device(device);
  // Of numbers as a model has them: zeros cost a GPU so little power that it runs faster than it does in training.
  factor_ = at::randn({kWidth, kWidth}, options);
  product_ = at::empty({kWidth, kWidth}, options);
}

void GpuBacklog::add() {
  if (!factor_.defined()) return;
  const at::NoGradGuard no_gradients;
  for (int i = 0; i < kProducts; ++i) at::mm_out(product_, factor_, factor_);
}

}  // namespace weft
