#include "weft/kernels/sources.h"

namespace weft {

const char kRotarySource[] = R"cuda(
// Of a head's eight elements at `place` and eight at `place + half`: turned by the row's angles, or back.
__device__ __forceinline__ void turn(Eight& first, Eight& second, const float* cosines, const float* sines, float sign) {
  const Eight c = load8(cosines), s = load8(sines);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float x = first.at[i], y = second.at[i], sine = sign * s.at[i];
    first.at[i] = x * c.at[i] - y * sine;
    second.at[i] = y * c.at[i] + x * sine;
  }
}

// Turns heads in place: threads x go through the eights of half a head, y through the heads of row blockIdx.x.
extern "C" __global__ void __launch_bounds__(512) turn_heads(bf16* heads, i64 row_stride, int head_dim, int num_heads,
                                                             const float* cosines, const float* sines, float sign) {
  const int half = head_dim / 2, place = threadIdx.x * 8;
  const i64 row = blockIdx.x;
  for (int head = threadIdx.y; head < num_heads; head += blockDim.y) {
    bf16* own = heads + row * row_stride + static_cast<i64>(head) * head_dim + place;
    Eight first = load8(own), second = load8(own + half);
    turn(first, second, cosines + row * half + place, sines + row * half + place, sign);
    store8(own, first);
    store8(own + half, second);
  }
}

// Gradients of queries, keys and values, each with a stride between rows and one between heads, become packed rows;
// those of queries and keys are turned back where there are angles.
extern "C" __global__ void __launch_bounds__(512) pack_gradients(
    bf16* out, const bf16* dq, i64 q_row, i64 q_head, const bf16* dk, i64 k_row, i64 k_head, const bf16* dv, i64 v_row,
    i64 v_head, int head_dim, int num_heads, int num_keys, const float* cosines, const float* sines) {
  const int half = head_dim / 2, place = threadIdx.x * 8, all = num_heads + 2 * num_keys;
  const i64 row = blockIdx.x;
  for (int head = threadIdx.y; head < all; head += blockDim.y) {
    const bool is_query = head < num_heads, is_value = head >= num_heads + num_keys;
    const bf16* from = is_query ? dq + row * q_row + head * q_head
                       : is_value ? dv + row * v_row + (head - num_heads - num_keys) * v_head
                                  : dk + row * k_row + (head - num_heads) * k_head;
    Eight first = load8(from + place), second = load8(from + half + place);
    if (cosines != nullptr && !is_value)
      turn(first, second, cosines + row * half + place, sines + row * half + place, -1);
    bf16* to = out + (row * all + head) * head_dim + place;
    store8(to, first);
    store8(to + half, second);
  }
}
)cuda";

}  // namespace weft
