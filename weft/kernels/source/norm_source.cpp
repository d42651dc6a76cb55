#include "weft/kernels/sources.h"

namespace weft {

// Eight elements a thread at a time. Going forward a warp has a narrow row, a block a wide one. Going back, groups of
// threads go through several rows each and keep the sums over them that the weights' gradients need; a block adds its
// groups' up, and sum_partials the blocks', always in the same order.
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

// The same with a warp for a row, which waits for no other: threads 32 × rows of a block. Rows are kept as they are
// stored, which loses nothing.
template <bool kIsLayer, int kVectors>
__device__ __forceinline__ void narrow_norm_forward(bf16* y, bf16* sum, float* mean_out, float* scale_out,
                                                    const bf16* x, const bf16* added, const bf16* weight,
                                                    const bf16* bias, int width, float epsilon, i64 rows) {
  const i64 row = static_cast<i64>(blockIdx.x) * blockDim.y + threadIdx.y, first = row * width;
  if (row >= rows) return;
  uint4 values[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int column = (v * 32 + threadIdx.x) * 8;
    if (column < width) values[v] = raw8(x + first + column);
  }
  if (added != nullptr) {
    uint4 more[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int column = (v * 32 + threadIdx.x) * 8;
      if (column < width) more[v] = raw8(added + first + column);
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int column = (v * 32 + threadIdx.x) * 8;
      if (column >= width) continue;
      Eight both = unpacked(values[v]);
      const Eight own = unpacked(more[v]);
#pragma unroll
      for (int i = 0; i < 8; ++i) both.at[i] += own.at[i];
      values[v] = stored(both);
      *reinterpret_cast<uint4*>(sum + first + column) = values[v];
    }
  }
  float totals[1] = {0};
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if ((v * 32 + threadIdx.x) * 8 >= width) continue;
    const Eight own = unpacked(values[v]);
#pragma unroll
    for (int i = 0; i < 8; ++i) totals[0] += kIsLayer ? own.at[i] : own.at[i] * own.at[i];
  }
  sum_over_warp(totals);
  float mean = 0;
  if (kIsLayer) {
    mean = totals[0] / width;
    totals[0] = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if ((v * 32 + threadIdx.x) * 8 >= width) continue;
      const Eight own = unpacked(values[v]);
#pragma unroll
      for (int i = 0; i < 8; ++i) totals[0] += (own.at[i] - mean) * (own.at[i] - mean);
    }
    sum_over_warp(totals);
  }
  const float scale = rsqrtf(totals[0] / width + epsilon);
  if (threadIdx.x == 0) {
    scale_out[row] = scale;
    if (kIsLayer) mean_out[row] = mean;
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int column = (v * 32 + threadIdx.x) * 8;
    if (column >= width) continue;
    const Eight w = load8(weight + column), own = unpacked(values[v]);
    Eight result;
    if (kIsLayer) {
      const Eight b = load8(bias + column);
#pragma unroll
      for (int i = 0; i < 8; ++i) result.at[i] = (own.at[i] - mean) * scale * w.at[i] + b.at[i];
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) result.at[i] = rounded(own.at[i] * scale) * w.at[i];
    }
    store8(y + first + column, result);
  }
}

// dx is what the norm gives, plus `passed`, the gradient of the rows themselves. partials: [blocks, width] of the
// weight, then of the bias. Threads are blockDim.x for a row, times groups, which have rows of their own and wait for
// nobody else. The rows that come next are on their way to shared memory, kRowsAhead of them: each thread copies what it
// reads itself, so that nobody waits for others' copies.
template <bool kIsLayer, int kVectors>
__device__ __forceinline__ void norm_backward(bf16* dx, float* partials, const bf16* dy, const bf16* passed,
                                              const bf16* x, const float* means, const float* scales,
                                              const bf16* weight, int width, i64 rows) {
  constexpr int kRowsAhead = kVectors == 4 ? 2 : 3;
  extern __shared__ uint4 ahead[];
  __shared__ float room[kMostGroups][2][8 * 2];
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
  // Of a slot: kVectors of x, then of dy, then of passed, for each thread of a group.
  const int vectors_a_row = kVectors * blockDim.x;
  const auto place = [&](int slot, int which, int v) {
    return ahead + ((threadIdx.y * kRowsAhead + slot) * 3 + which) * vectors_a_row + v * blockDim.x + threadIdx.x;
  };
  const auto ask = [&](i64 row, int slot) {
    if (row < rows) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const int column = (v * blockDim.x + threadIdx.x) * 8;
        if (column >= width) continue;
        const i64 first = row * width + column;
        copy8(place(slot, 0, v), x + first);
        copy8(place(slot, 1, v), dy + first);
        if (passed != nullptr) copy8(place(slot, 2, v), passed + first);
      }
    }
    end_of_copies();
  };
  const i64 first_row = static_cast<i64>(blockIdx.x) * blockDim.y + threadIdx.y;
  const i64 stride = static_cast<i64>(gridDim.x) * blockDim.y;
#pragma unroll
  for (int slot = 0; slot < kRowsAhead; ++slot) ask(first_row + slot * stride, slot);
  float next_scale = first_row < rows ? scales[first_row] : 0;
  float next_mean = kIsLayer && first_row < rows ? means[first_row] : 0;
  int turn = 0, slot = 0;
  for (i64 row = first_row; row < rows; row += stride, turn ^= 1) {
    const float scale = next_scale, mean = next_mean;
    if (row + stride < rows) {
      next_scale = scales[row + stride];
      if (kIsLayer) next_mean = means[row + stride];
    }
    wait_for_copies<kRowsAhead - 1>();
    Eight normed[kVectors], slopes[kVectors];
    float totals[kIsLayer ? 2 : 1] = {0};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if ((v * blockDim.x + threadIdx.x) * 8 >= width) continue;
      normed[v] = unpacked(*place(slot, 0, v));
      slopes[v] = unpacked(*place(slot, 1, v));
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
    sum_over_group(totals, room[threadIdx.y][turn]);
    const float along = totals[0] / width, middle = kIsLayer ? totals[kIsLayer ? 1 : 0] / width : 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int column = (v * blockDim.x + threadIdx.x) * 8;
      if (column >= width) continue;
      Eight result;
#pragma unroll
      for (int i = 0; i < 8; ++i) result.at[i] = scale * (slopes[v].at[i] - middle - normed[v].at[i] * along);
      if (passed != nullptr) {
        const Eight own = unpacked(*place(slot, 2, v));
#pragma unroll
        for (int i = 0; i < 8; ++i) result.at[i] += own.at[i];
      }
      store8(dx + row * width + column, result);
    }
    ask(row + kRowsAhead * stride, slot);
    slot = slot + 1 == kRowsAhead ? 0 : slot + 1;
  }
  if (partials == nullptr) return;
  // Where rows were, each group puts its sums, and the first adds them up: of the weight, then of the bias.
  wait_for_copies<0>();
#pragma unroll
  for (int table = 0; table < (kIsLayer ? 2 : 1); ++table) {
    float* const sums = reinterpret_cast<float*>(ahead);
    __syncthreads();
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int column = (v * blockDim.x + threadIdx.x) * 8;
      if (column < width) store8(sums + threadIdx.y * width + column, table == 0 ? dweight[v] : dbias[kIsLayer ? v : 0]);
    }
    __syncthreads();
    float* const out = partials + (static_cast<i64>(table) * gridDim.x + blockIdx.x) * width;
    for (int column = threadIdx.y * blockDim.x + threadIdx.x; column < width; column += blockDim.x * blockDim.y) {
      float sum = 0;
      for (int group = 0; group < blockDim.y; ++group) sum += sums[group * width + column];
      out[column] = sum;
    }
  }
}

#define WEFT_WIDE_NORM(name, is_layer, vectors)                                                                      \
  extern "C" __global__ void __launch_bounds__(256) name##_wide_##vectors(                                           \
      bf16* y, bf16* sum, float* means, float* scales, const bf16* x, const bf16* added, const bf16* weight,         \
      const bf16* bias, int width, float epsilon, i64) {                                                             \
    norm_forward<is_layer, vectors>(y, sum, means, scales, x, added, weight, bias, width, epsilon);                  \
  }
#define WEFT_NORM_BACKWARD(name, is_layer, vectors, most_threads)                                                    \
  extern "C" __global__ void __launch_bounds__(most_threads) name##_backward_##vectors(                              \
      bf16* dx, float* partials, const bf16* dy, const bf16* passed, const bf16* x, const float* means,              \
      const float* scales, const bf16* weight, int width, i64 rows) {                                                \
    norm_backward<is_layer, vectors>(dx, partials, dy, passed, x, means, scales, weight, width, rows);               \
  }
#define WEFT_NARROW_NORM(name, is_layer, vectors)                                                                    \
  extern "C" __global__ void __launch_bounds__(128) name##_narrow_##vectors(                                         \
      bf16* y, bf16* sum, float* means, float* scales, const bf16* x, const bf16* added, const bf16* weight,         \
      const bf16* bias, int width, float epsilon, i64 rows) {                                                        \
    narrow_norm_forward<is_layer, vectors>(y, sum, means, scales, x, added, weight, bias, width, epsilon, rows);     \
  }
WEFT_NARROW_NORM(rms_norm, false, 2)
WEFT_NARROW_NORM(rms_norm, false, 4)
WEFT_NARROW_NORM(rms_norm, false, 6)
WEFT_NARROW_NORM(rms_norm, false, 8)
WEFT_WIDE_NORM(rms_norm, false, 2)
WEFT_WIDE_NORM(rms_norm, false, 4)
WEFT_NARROW_NORM(layer_norm, true, 2)
WEFT_NARROW_NORM(layer_norm, true, 4)
WEFT_NARROW_NORM(layer_norm, true, 6)
WEFT_NARROW_NORM(layer_norm, true, 8)
WEFT_WIDE_NORM(layer_norm, true, 2)
WEFT_WIDE_NORM(layer_norm, true, 4)
// As many threads as own_kernels.cpp has in a block.
WEFT_NORM_BACKWARD(rms_norm, false, 1, 1024)
WEFT_NORM_BACKWARD(rms_norm, false, 2, 512)
WEFT_NORM_BACKWARD(rms_norm, false, 4, 256)
WEFT_NORM_BACKWARD(layer_norm, true, 1, 1024)
WEFT_NORM_BACKWARD(layer_norm, true, 2, 512)
WEFT_NORM_BACKWARD(layer_norm, true, 4, 256)
)cuda";

}  // namespace weft
