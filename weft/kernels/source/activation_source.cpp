#include "weft/kernels/sources.h"

namespace weft {

const char kActivationSource[] = R"cuda(
__device__ __forceinline__ float sigmoid(float x) { return 1 / (1 + __expf(-x)); }

// Rows of `inner` gates, then `inner` values. A thread has eight of a row.
extern "C" __global__ void __launch_bounds__(128) swiglu_forward(bf16* y, const bf16* gate_up, int inner) {
  const int column = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
  if (column >= inner) return;
  const i64 row = blockIdx.x;
  const Eight gate = load8(gate_up + row * 2 * inner + column), up = load8(gate_up + row * 2 * inner + inner + column);
  Eight result;
#pragma unroll
  for (int i = 0; i < 8; ++i) result.at[i] = gate.at[i] * sigmoid(gate.at[i]) * up.at[i];
  store8(y + row * inner + column, result);
}

extern "C" __global__ void __launch_bounds__(128) swiglu_backward(bf16* result, const bf16* dy, const bf16* gate_up,
                                                                  int inner) {
  const int column = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
  if (column >= inner) return;
  const i64 row = blockIdx.x, gates = row * 2 * inner + column, ups = gates + inner;
  const Eight gate = load8(gate_up + gates), up = load8(gate_up + ups), slope = load8(dy + row * inner + column);
  Eight dgate, dup;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float s = sigmoid(gate.at[i]);
    dup.at[i] = slope.at[i] * gate.at[i] * s;
    dgate.at[i] = slope.at[i] * up.at[i] * s * (1 + gate.at[i] * (1 - s));
  }
  store8(result + gates, dgate);
  store8(result + ups, dup);
}

// x · sigmoid(1.702 · x), eight elements a thread.
extern "C" __global__ void __launch_bounds__(256) quick_gelu_forward(bf16* y, const bf16* x, i64 eights) {
  const i64 place = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (place >= eights) return;
  Eight value = load8(x + place * 8);
#pragma unroll
  for (int i = 0; i < 8; ++i) value.at[i] *= sigmoid(1.702f * value.at[i]);
  store8(y + place * 8, value);
}

extern "C" __global__ void __launch_bounds__(256) quick_gelu_backward(bf16* dx, const bf16* dy, const bf16* x,
                                                                      i64 eights) {
  const i64 place = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (place >= eights) return;
  const Eight value = load8(x + place * 8);
  Eight slope = load8(dy + place * 8);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float scaled = 1.702f * value.at[i], s = sigmoid(scaled);
    slope.at[i] *= s * (1 + scaled * (1 - s));
  }
  store8(dx + place * 8, slope);
}
)cuda";

}  // namespace weft
