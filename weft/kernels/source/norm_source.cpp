#include "weft/kernels/sources.h"

namespace weft {

// A block has a row, eight elements a thread at a time. Going back, a block goes through several rows and keeps the
// sums over them that the weights' gradients need; sum_partials adds the blocks' up, always in the same order.
const char kNormSource[] = R"cuda(
// sum = x + added, where something is added; y = sum · scale · weight, and `scale` is kept.
template <bool kIsLayer, int kVectors>
__device__ __forceinline__ void norm_forward(bf16* y, bf16* sum, float* mean_out, float* scale_out, const bf16* x,
                                             const bf16* added, const bf16* weight, const bf16* bias, int width,
                                             float epsilon) {
  __shared__ float room[2][32 * 2];
  const i64 row = blockIdx.x, first = row * width;
  Eight values[kVectors];
  float totals[1] = {0};
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int column = (v * blockDim.x + threadIdx.x) * 8;
    if (column >= width) continue;
    values[v] = load8(x + first + column);
    if (added != nullptr) {
      const Eight more = load8(added + first + column);
#pragma unroll
      for (int i = 0; i < 8; ++i) values[v].at[i] = rounded(values[v].at[i] + more.at[i]);
      store8(sum + first + column, values[v]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) totals[0] += kIsLayer ? values[v].at[i] : values[v].at[i] * values[v].at[i];
  }
  sum_over_block(totals, room[0]);
  float mean = 0;
  if (kIsLayer) {
    mean = totals[0] / width;
    totals[0] = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if ((v * blockDim.x + threadIdx.x) * 8 >= width) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) totals[0] += (values[v].at[i] - mean) * (values[v].at[i] - mean);
    }
    sum_over_block(totals, room[1]);
  }
  const float scale = rsqrtf(totals[0] / width + epsilon);
  if (threadIdx.x == 0) {
    scale_out[row] = scale;
    if (kIsLayer) mean_out[row] = mean;
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int column = (v * blockDim.x + threadIdx.x) * 8;
    if (column >= width) continue;
    const Eight w = load8(weight + column);
    Eight result;
    if (kIsLayer) {
      const Eight b = load8(bias + column);
#pragma unroll
      for (int i = 0; i < 8; ++i) result.at[i] = (values[v].at[i] - mean) * scale * w.at[i] + b.at[i];
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) result.at[i] = rounded(values[v].at[i] * scale) * w.at[i];
    }
    store8(y + first + column, result);
  }
}

// dx is what the norm gives, plus `passed`, the gradient of the rows themselves. partials: [blocks, width] of the
// weight, then of the bias.
template <bool kIsLayer, int kVectors>
__device__ __forceinline__ void norm_backward(bf16* dx, float* partials, const bf16* dy, const bf16* passed,
                                              const bf16* x, const float* means, const float* scales,
                                              const bf16* weight, int width, i64 rows) {
  __shared__ float room[2][32 * 2];
  Eight dweight[kVectors], dbias[kIsLayer ? kVectors : 1];
  uint4 weights[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int column = (v * blockDim.x + threadIdx.x) * 8;
    if (column < width) weights[v] = raw8(weight + column);
#pragma unroll
    for (int i = 0; i < 8; ++i) dweight[v].at[i] = 0;
    if (kIsLayer) {
#pragma unroll
      for (int i = 0; i < 8; ++i) dbias[v].at[i] = 0;
    }
  }
  // A row's memory is asked for while the row before it is worked on.
  uint4 next_x[kVectors], next_dy[kVectors], next_passed[kVectors];
  float next_scale = 0, next_mean = 0;
  const auto ask = [&](i64 row) {
    if (row >= rows) return;
    next_scale = scales[row];
    if (kIsLayer) next_mean = means[row];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int column = (v * blockDim.x + threadIdx.x) * 8;
      if (column >= width) continue;
      next_x[v] = raw8(x + row * width + column);
      next_dy[v] = raw8(dy + row * width + column);
      if (passed != nullptr) next_passed[v] = raw8(passed + row * width + column);
    }
  };
  ask(blockIdx.x);
  int turn = 0;
  for (i64 row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
    const i64 first = row * width;
    const float scale = next_scale, mean = next_mean;
    Eight normed[kVectors], slopes[kVectors];
    uint4 more[kVectors];
    float totals[kIsLayer ? 2 : 1] = {0};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if ((v * blockDim.x + threadIdx.x) * 8 >= width) continue;
      normed[v] = unpacked(next_x[v]);
      slopes[v] = unpacked(next_dy[v]);
      more[v] = next_passed[v];
    }
    ask(row + gridDim.x);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if ((v * blockDim.x + threadIdx.x) * 8 >= width) continue;
      const Eight w = unpacked(weights[v]);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        normed[v].at[i] = (normed[v].at[i] - mean) * scale;
        dweight[v].at[i] += slopes[v].at[i] * normed[v].at[i];
        if (kIsLayer) dbias[v].at[i] += slopes[v].at[i];
        slopes[v].at[i] *= w.at[i];
        totals[0] += slopes[v].at[i] * normed[v].at[i];
        if (kIsLayer) totals[kIsLayer ? 1 : 0] += slopes[v].at[i];
      }
    }
    sum_over_block(totals, room[turn]);
    const float along = totals[0] / width, middle = kIsLayer ? totals[kIsLayer ? 1 : 0] / width : 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int column = (v * blockDim.x + threadIdx.x) * 8;
      if (column >= width) continue;
      Eight result;
#pragma unroll
      for (int i = 0; i < 8; ++i) result.at[i] = scale * (slopes[v].at[i] - middle - normed[v].at[i] * along);
      if (passed != nullptr) {
        const Eight own = unpacked(more[v]);
#pragma unroll
        for (int i = 0; i < 8; ++i) result.at[i] += own.at[i];
      }
      store8(dx + first + column, result);
    }
  }
  if (partials == nullptr) return;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int column = (v * blockDim.x + threadIdx.x) * 8;
    if (column >= width) continue;
    store8(partials + static_cast<i64>(blockIdx.x) * width + column, dweight[v]);
    if (kIsLayer) store8(partials + static_cast<i64>(gridDim.x + blockIdx.x) * width + column, dbias[v]);
  }
}

// As many blocks going back on a multiprocessor as own_kernels.cpp counts on.
#define WEFT_NORM(name, is_layer, vectors)                                                                           \
  extern "C" __global__ void __launch_bounds__(256) name##_forward_##vectors(                                        \
      bf16* y, bf16* sum, float* means, float* scales, const bf16* x, const bf16* added, const bf16* weight,         \
      const bf16* bias, int width, float epsilon) {                                                                  \
    norm_forward<is_layer, vectors>(y, sum, means, scales, x, added, weight, bias, width, epsilon);                  \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(256, 4 / vectors) name##_backward_##vectors(                          \
      bf16* dx, float* partials, const bf16* dy, const bf16* passed, const bf16* x, const float* means,              \
      const float* scales, const bf16* weight, int width, i64 rows) {                                                \
    norm_backward<is_layer, vectors>(dx, partials, dy, passed, x, means, scales, weight, width, rows);               \
  }
WEFT_NORM(rms_norm, false, 1)
WEFT_NORM(rms_norm, false, 2)
WEFT_NORM(rms_norm, false, 4)
WEFT_NORM(layer_norm, true, 1)
WEFT_NORM(layer_norm, true, 2)
WEFT_NORM(layer_norm, true, 4)
)cuda";

}  // namespace weft
