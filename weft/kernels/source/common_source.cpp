#include "weft/kernels/sources.h"

namespace weft {

// Headers are not there when a kernel is compiled on the machine that runs it, so bf16 is done by bits.
const char kCommonSource[] = R"cuda(
typedef unsigned short bf16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

__device__ __forceinline__ float widened(bf16 x) { return __uint_as_float(static_cast<u32>(x) << 16); }
__device__ __forceinline__ float widened(float x) { return x; }
__device__ __forceinline__ bf16 narrowed(float x) {
  bf16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ float rounded(float x) { return widened(narrowed(x)); }
__device__ __forceinline__ u32 packed(float low, float high) {
  u32 result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}

// Eight elements, which are 16 bytes in bf16.
struct Eight {
  float at[8];
};
__device__ __forceinline__ Eight unpacked(uint4 bits) {
  const u32 words[4] = {bits.x, bits.y, bits.z, bits.w};
  Eight result;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    result.at[2 * i] = __uint_as_float(words[i] << 16);
    result.at[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
  return result;
}
__device__ __forceinline__ uint4 raw8(const bf16* from) { return *reinterpret_cast<const uint4*>(from); }
__device__ __forceinline__ Eight load8(const bf16* from) { return unpacked(raw8(from)); }
__device__ __forceinline__ Eight load8(const float* from) {
  const float4 a = reinterpret_cast<const float4*>(from)[0], b = reinterpret_cast<const float4*>(from)[1];
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
// Copies that go on beside the thread's other work. All that was asked for before `end_of_copies` is one group;
// `wait_for_copies<n>` waits until at most the n last groups are on their way.
__device__ __forceinline__ void copy8(uint4* to_shared, const bf16* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(static_cast<u32>(__cvta_generic_to_shared(to_shared))), "l"(from)
               : "memory");
}
__device__ __forceinline__ void end_of_copies() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int kGroups>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kGroups) : "memory");
}
__device__ __forceinline__ uint4 stored(const Eight& x) {
  return make_uint4(packed(x.at[0], x.at[1]), packed(x.at[2], x.at[3]), packed(x.at[4], x.at[5]),
                    packed(x.at[6], x.at[7]));
}
__device__ __forceinline__ void store8(bf16* to, const Eight& x) { *reinterpret_cast<uint4*>(to) = stored(x); }
__device__ __forceinline__ void store8(float* to, const Eight& x) {
  reinterpret_cast<float4*>(to)[0] = make_float4(x.at[0], x.at[1], x.at[2], x.at[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(x.at[4], x.at[5], x.at[6], x.at[7]);
}

template <int kCount>
__device__ __forceinline__ void sum_over_warp(float (&x)[kCount]) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] += __shfl_xor_sync(0xffffffffu, x[i], offset);
  }
}

// Every thread of a group (blockDim.x threads at one threadIdx.y, whole warps, at most 256) gets the sums. A group waits
// for itself alone, by a barrier with its number. `room`: as below.
constexpr int kMostGroups = 15;
template <int kCount>
__device__ __forceinline__ void sum_over_group(float (&x)[kCount], float* room) {
  sum_over_warp(x);
  const int num_warps = blockDim.x / 32;
  if (num_warps == 1) return;
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) room[threadIdx.x / 32 * kCount + i] = x[i];
  }
  asm volatile("bar.sync %0, %1;" : : "r"(threadIdx.y + 1), "r"(blockDim.x) : "memory");
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    float sum = 0;
    for (int w = 0; w < num_warps; ++w) sum += room[w * kCount + i];
    x[i] = sum;
  }
}

// Every thread gets the sums. `room` holds kCount floats a warp; calls that follow each other use two rooms in turn.
template <int kCount>
__device__ __forceinline__ void sum_over_block(float (&x)[kCount], float* room) {
  sum_over_warp(x);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, num_warps = (blockDim.x + 31) / 32;
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) room[warp * kCount + i] = x[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    float sum = 0;
    for (int w = 0; w < num_warps; ++w) sum += room[w * kCount + i];
    x[i] = sum;
  }
}
)cuda";

}  // namespace weft
