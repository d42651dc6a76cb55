#include "weft/kernels/sources.h"

namespace weft {

const char kUpdateSource[] = R"cuda(
// Bits that are the same for the same element of the same update, whatever runs it: of `x`, which is the update's key
// and so many kGolden as the element has before it.
constexpr u64 kGolden = 0x9e3779b97f4a7c15ull;
__device__ __forceinline__ u64 drawn(u64 x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// bf16 by chance, so that small changes add up: the sixteen bits that are lost decide how likely the next value is.
__device__ __forceinline__ float rounded_by_chance(float x, u32 sixteen_bits) {
  const u32 bits = __float_as_uint(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return rounded(x);
  return __uint_as_float((bits + (sixteen_bits & 0xffffu)) & 0xffff0000u);
}

struct AdamW {
  float learning_rate, beta1, beta2, epsilon, weight_decay, step_size, root_correction;
};

template <bool kByChance, typename Weight, typename Gradient>
__device__ __forceinline__ void update(Weight* weights, Weight* means, Weight* squares, const Gradient* gradients,
                                       bf16* values, i64 count, AdamW a, float gradient_scale, u64 key,
                                       i64 begin) {
  const float inverse_root = 1 / a.root_correction;
  for (i64 eight = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; eight * 8 < count;
       eight += static_cast<i64>(gridDim.x) * blockDim.x) {
    const i64 first = eight * 8;
    const u64 place = key + static_cast<u64>(begin + first) * kGolden;
    Eight w, m, v, g;
    const bool is_whole = first + 8 <= count;
    if (is_whole) {
      w = load8(weights + first), m = load8(means + first), v = load8(squares + first), g = load8(gradients + first);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const bool is_there = first + i < count;
        w.at[i] = is_there ? widened(weights[first + i]) : 0, m.at[i] = is_there ? widened(means[first + i]) : 0;
        v.at[i] = is_there ? widened(squares[first + i]) : 0, g.at[i] = is_there ? widened(gradients[first + i]) : 0;
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float gradient = g.at[i] * gradient_scale;
      float weight = w.at[i] - a.learning_rate * a.weight_decay * w.at[i];
      m.at[i] += (1 - a.beta1) * (gradient - m.at[i]);
      v.at[i] = a.beta2 * v.at[i] + (1 - a.beta2) * gradient * gradient;
      weight -= __fdividef(a.step_size * m.at[i], sqrtf(v.at[i]) * inverse_root + a.epsilon);
      w.at[i] = weight;
      if (kByChance) {
        const u64 bits = drawn(place + i * kGolden);
        w.at[i] = rounded_by_chance(w.at[i], static_cast<u32>(bits));
        m.at[i] = rounded_by_chance(m.at[i], static_cast<u32>(bits >> 16));
        v.at[i] = rounded_by_chance(v.at[i], static_cast<u32>(bits >> 32));
      }
    }
    if (is_whole) {
      store8(weights + first, w), store8(means + first, m), store8(squares + first, v);
      if (values != nullptr) store8(values + first, w);
      continue;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (first + i >= count) continue;
      if constexpr (sizeof(Weight) == 2) {
        weights[first + i] = narrowed(w.at[i]), means[first + i] = narrowed(m.at[i]);
        squares[first + i] = narrowed(v.at[i]);
      } else {
        weights[first + i] = w.at[i], means[first + i] = m.at[i], squares[first + i] = v.at[i];
      }
      if (values != nullptr) values[first + i] = narrowed(w.at[i]);
    }
  }
}

#define WEFT_UPDATE(name, by_chance, Weight, Gradient)                                                            \
  extern "C" __global__ void __launch_bounds__(256) name(Weight* weights, Weight* means, Weight* squares,         \
                                                         const Gradient* gradients, bf16* values, i64 count,      \
                                                         AdamW settings, float gradient_scale, u64 key,           \
                                                         i64 begin) {                                             \
    update<by_chance>(weights, means, squares, gradients, values, count, settings, gradient_scale, key, begin);   \
  }
WEFT_UPDATE(adamw_fp32, false, float, float)
WEFT_UPDATE(adamw_fp32_bf16, false, float, bf16)
WEFT_UPDATE(adamw_bf16, true, bf16, bf16)
WEFT_UPDATE(adamw_bf16_fp32, true, bf16, float)

// The first thread gets the sum of a block of 256.
__device__ __forceinline__ double sum_over_256(double total) {
  __shared__ double room[8];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) total += __shfl_xor_sync(0xffffffffu, total, offset);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int warp = 1; warp < 8; ++warp) total += room[warp];
  return total;
}

// Stretches of elements whose squares count with a factor each, as optim/squared_norm.cpp passes them. `tile_end`: tiles
// of this stretch and those before it, of kTile elements each.
constexpr int kStretches = 120;
struct Stretches {
  const void* elements[kStretches];
  i64 count[kStretches];
  double factor[kStretches];
  int tile_end[kStretches];
  int size;
};
constexpr int kTile = 256 * 8 * 8;

// The sum of all stretches' squares: one double a block, which the block that is last adds up, in order. `arrived` is 0
// before and after.
template <typename T>
__device__ __forceinline__ void sum_squares(double* out, double* partials, u32* arrived, const Stretches& all) {
  constexpr int kAtOnce = sizeof(T) == 2 ? 8 : 4;  // that are asked for before the first is there
  double total = 0;
  int stretch = 0;
  const int num_tiles = all.tile_end[all.size - 1];
  for (int tile = blockIdx.x; tile < num_tiles; tile += gridDim.x) {
    while (tile >= all.tile_end[stretch]) ++stretch;
    const T* x = static_cast<const T*>(all.elements[stretch]);
    const i64 count = all.count[stretch], whole = count / 8;
    const i64 begin = static_cast<i64>(tile - (stretch > 0 ? all.tile_end[stretch - 1] : 0)) * (kTile / 8);
    double sum = 0;
#pragma unroll
    for (int part = 0; part < 8; part += kAtOnce) {
      Eight found[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const i64 eight = begin + (part + k) * 256 + threadIdx.x;
        found[k] = eight < whole ? load8(x + eight * 8) : Eight{{0, 0, 0, 0, 0, 0, 0, 0}};
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        float squares = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) squares += found[k].at[i] * found[k].at[i];
        sum += squares;
      }
    }
    const i64 single = whole * 8 + threadIdx.x;
    if (tile + 1 == all.tile_end[stretch] && single < count) sum += widened(x[single]) * widened(x[single]);
    total += all.factor[stretch] * sum;
  }
  total = sum_over_256(total);
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = total;
    __threadfence();
    is_last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  const volatile double* found = partials;
  total = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < gridDim.x; i += 256) total += found[i];
  total = sum_over_256(total);
  if (threadIdx.x == 0) out[0] = total;
}
extern "C" __global__ void __launch_bounds__(256, 4) sum_squares_fp32(double* out, double* partials, u32* arrived,
                                                                      const __grid_constant__ Stretches all) {
  sum_squares<float>(out, partials, arrived, all);
}
extern "C" __global__ void __launch_bounds__(256, 4) sum_squares_bf16(double* out, double* partials, u32* arrived,
                                                                      const __grid_constant__ Stretches all) {
  sum_squares<bf16>(out, partials, arrived, all);
}
)cuda";

}  // namespace weft
