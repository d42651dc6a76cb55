#include "weft/kernels/sources.h"

namespace weft {

const char kLossSource[] = R"cuda(
// A block has a row. `largest` and `sum`: of exp(x - largest), put together without overflow.
__device__ __forceinline__ void put_together(float& largest, float& sum, float other, float other_sum) {
  const float both = fmaxf(largest, other);
  if (both == -__int_as_float(0x7f800000)) return;
  sum = sum * __expf(largest - both) + other_sum * __expf(other - both);
  largest = both;
}

// The logarithm of every row's sum of exponentials, and the logit of its target: 0 where that is not in the row.
extern "C" __global__ void __launch_bounds__(512) log_sums(float* sums, float* chosen, const bf16* logits,
                                                           const i64* targets, i64 classes) {
  const float INF = __int_as_float(0x7f800000);
  __shared__ float room[2][16];
  const i64 row = blockIdx.x;
  const bf16* own = logits + row * classes;
  float largest = -INF, sum = 0;
  const i64 eights = classes / 8;
#pragma unroll 2
  for (i64 place = threadIdx.x; place < eights; place += blockDim.x) {
    const Eight x = load8(own + place * 8);
    float top = x.at[0];
#pragma unroll
    for (int i = 1; i < 8; ++i) top = fmaxf(top, x.at[i]);
    if (top > largest) {
      sum *= __expf(largest - top);
      largest = top;
    }
    if (largest == -INF) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += __expf(x.at[i] - largest);
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, largest, offset);
    const float other_sum = __shfl_xor_sync(0xffffffffu, sum, offset);
    put_together(largest, sum, other, other_sum);
  }
  if (threadIdx.x % 32 == 0) {
    room[0][threadIdx.x / 32] = largest;
    room[1][threadIdx.x / 32] = sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < blockDim.x / 32; ++warp) put_together(largest, sum, room[0][warp], room[1][warp]);
  sums[row] = largest + logf(sum);
  const i64 target = targets[row];
  chosen[row] = target >= 0 && target < classes ? widened(own[target]) : 0;
}

// Logits become their gradient: probabilities, less one at the target, times `scale`.
extern "C" __global__ void __launch_bounds__(512) loss_gradient(bf16* logits, const float* sums, const i64* targets,
                                                                const float* scale, i64 classes) {
  const i64 row = blockIdx.x, target = targets[row];
  bf16* own = logits + row * classes;
  const float sum = sums[row], factor = *scale;
#pragma unroll 2
  for (i64 place = threadIdx.x; place < classes / 8; place += blockDim.x) {
    Eight x = load8(own + place * 8);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float share = __expf(x.at[i] - sum);
      x.at[i] = factor * (place * 8 + i == target ? share - 1 : share);
    }
    store8(own + place * 8, x);
  }
}
)cuda";

}  // namespace weft
