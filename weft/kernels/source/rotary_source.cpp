#include "weft/kernels/sources.h"

namespace weft {

const char kRotarySource[] = R"cuda(
// Neighbouring elements of a head, as many as a thread takes at a time: eight or, where half a head is no eights, four.
template <int kWidth>
struct Part {
  float at[kWidth];
};
__device__ __forceinline__ void load(const bf16* from, Part<8>& part) {
  const Eight all = load8(from);
#pragma unroll
  for (int i = 0; i < 8; ++i) part.at[i] = all.at[i];
}
__device__ __forceinline__ void load(const float* from, Part<8>& part) {
  const Eight all = load8(from);
#pragma unroll
  for (int i = 0; i < 8; ++i) part.at[i] = all.at[i];
}
__device__ __forceinline__ void store(bf16* to, const Part<8>& part) {
  Eight all;
#pragma unroll
  for (int i = 0; i < 8; ++i) all.at[i] = part.at[i];
  store8(to, all);
}
__device__ __forceinline__ void load(const bf16* from, Part<4>& part) {
  const uint2 bits = *reinterpret_cast<const uint2*>(from);
  const u32 words[2] = {bits.x, bits.y};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    part.at[2 * i] = __uint_as_float(words[i] << 16);
    part.at[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}
__device__ __forceinline__ void load(const float* from, Part<4>& part) {
  const float4 all = *reinterpret_cast<const float4*>(from);
  part = {{all.x, all.y, all.z, all.w}};
}
__device__ __forceinline__ void store(bf16* to, const Part<4>& part) {
  *reinterpret_cast<uint2*>(to) = make_uint2(packed(part.at[0], part.at[1]), packed(part.at[2], part.at[3]));
}

// A head's elements at some place of its first half, and those as far into the second: turned by the row's angles, or
// back.
template <int kWidth>
__device__ __forceinline__ void turn(Part<kWidth>& first, Part<kWidth>& second, const float* cosines,
                                     const float* sines, float sign) {
  Part<kWidth> c, s;
  load(cosines, c);
  load(sines, s);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float x = first.at[i], y = second.at[i], sine = sign * s.at[i];
    first.at[i] = x * c.at[i] - y * sine;
    second.at[i] = y * c.at[i] + x * sine;
  }
}

// Turns heads in place: threads x go through half a head, y through the heads of row blockIdx.x.
template <int kWidth>
__device__ __forceinline__ void turn_all(bf16* heads, i64 row_stride, int head_dim, int num_heads, const float* cosines,
                                         const float* sines, float sign) {
  const int half = head_dim / 2, place = threadIdx.x * kWidth;
  const i64 row = blockIdx.x;
  for (int head = threadIdx.y; head < num_heads; head += blockDim.y) {
    bf16* own = heads + row * row_stride + static_cast<i64>(head) * head_dim + place;
    Part<kWidth> first, second;
    load(own, first);
    load(own + half, second);
    turn(first, second, cosines + row * half + place, sines + row * half + place, sign);
    store(own, first);
    store(own + half, second);
  }
}
extern "C" __global__ void __launch_bounds__(512) turn_heads_8(bf16* heads, i64 row_stride, int head_dim, int num_heads,
                                                               const float* cosines, const float* sines, float sign) {
  turn_all<8>(heads, row_stride, head_dim, num_heads, cosines, sines, sign);
}
extern "C" __global__ void __launch_bounds__(512) turn_heads_4(bf16* heads, i64 row_stride, int head_dim, int num_heads,
                                                               const float* cosines, const float* sines, float sign) {
  turn_all<4>(heads, row_stride, head_dim, num_heads, cosines, sines, sign);
}

// Gradients of queries, keys and values, each with a stride between rows and one between heads.
struct HeadGradients {
  const bf16 *dq, *dk, *dv;
  i64 q_row, q_head, k_row, k_head, v_row, v_head;
};

// They become packed rows; those of queries and keys are turned back where there are angles.
template <int kWidth>
__device__ __forceinline__ void pack_all(bf16* out, const HeadGradients& from, int head_dim, int num_heads,
                                         int num_keys, const float* cosines, const float* sines) {
  const int half = head_dim / 2, place = threadIdx.x * kWidth, all = num_heads + 2 * num_keys;
  const i64 row = blockIdx.x;
  for (int head = threadIdx.y; head < all; head += blockDim.y) {
    const bool is_query = head < num_heads, is_value = head >= num_heads + num_keys;
    const bf16* own = is_query   ? from.dq + row * from.q_row + head * from.q_head
                      : is_value ? from.dv + row * from.v_row + (head - num_heads - num_keys) * from.v_head
                                 : from.dk + row * from.k_row + (head - num_heads) * from.k_head;
    Part<kWidth> first, second;
    load(own + place, first);
    load(own + half + place, second);
    if (cosines != nullptr && !is_value)
      turn(first, second, cosines + row * half + place, sines + row * half + place, -1);
    bf16* to = out + (row * all + head) * head_dim + place;
    store(to, first);
    store(to + half, second);
  }
}
extern "C" __global__ void __launch_bounds__(512) pack_gradients_8(
    bf16* out, const bf16* dq, i64 q_row, i64 q_head, const bf16* dk, i64 k_row, i64 k_head, const bf16* dv, i64 v_row,
    i64 v_head, int head_dim, int num_heads, int num_keys, const float* cosines, const float* sines) {
  pack_all<8>(out, {dq, dk, dv, q_row, q_head, k_row, k_head, v_row, v_head}, head_dim, num_heads, num_keys, cosines,
              sines);
}
extern "C" __global__ void __launch_bounds__(512) pack_gradients_4(
    bf16* out, const bf16* dq, i64 q_row, i64 q_head, const bf16* dk, i64 k_row, i64 k_head, const bf16* dv, i64 v_row,
    i64 v_head, int head_dim, int num_heads, int num_keys, const float* cosines, const float* sines) {
  pack_all<4>(out, {dq, dk, dv, q_row, q_head, k_row, k_head, v_row, v_head}, head_dim, num_heads, num_keys, cosines,
              sines);
}
)cuda";

}  // namespace weft
