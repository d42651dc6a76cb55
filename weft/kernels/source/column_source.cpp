#include "weft/kernels/sources.h"

namespace weft {

// Sums of columns in two steps: blocks sum some rows of 256 columns each, then the blocks' sums are added up in order.
const char kColumnSource[] = R"cuda(
// Threads 32 × 8: x has eight columns each, y divides the rows. partials: [gridDim.y, width].
extern "C" __global__ void __launch_bounds__(256) sum_columns(float* partials, const bf16* x, int width, i64 rows) {
  __shared__ float room[8][32 * 8 + 8];
  const int column = (blockIdx.x * 32 + threadIdx.x) * 8;
  Eight sums = {{0, 0, 0, 0, 0, 0, 0, 0}};
  if (column < width) {
#pragma unroll 4
    for (i64 row = blockIdx.y * 8 + threadIdx.y; row < rows; row += gridDim.y * 8) {
      const Eight part = load8(x + row * width + column);
#pragma unroll
      for (int i = 0; i < 8; ++i) sums.at[i] += part.at[i];
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) room[threadIdx.y][threadIdx.x * 8 + i] = sums.at[i];
  __syncthreads();
  const int own = threadIdx.y * 32 + threadIdx.x;
  float sum = 0;
#pragma unroll
  for (int y = 0; y < 8; ++y) sum += room[y][own];
  const int place = blockIdx.x * 256 + own;
  if (place < width) partials[static_cast<i64>(blockIdx.y) * width + place] = sum;
}

// Threads 32 × 32: the sums of `count` rows of `width` floats; gridDim.y of such tables, one after the other.
extern "C" __global__ void __launch_bounds__(1024) sum_partials(float* out, const float* partials, int width,
                                                                int count) {
  __shared__ float room[32][33];
  const int column = blockIdx.x * 32 + threadIdx.x;
  const float* table = partials + static_cast<i64>(blockIdx.y) * count * width;
  float sum = 0;
  if (column < width) {
#pragma unroll 8
    for (int row = threadIdx.y; row < count; row += 32) sum += table[static_cast<i64>(row) * width + column];
  }
  room[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  // Each warp has one column now.
  float total[1] = {room[threadIdx.x][threadIdx.y]};
  sum_over_warp(total);
  const int place = blockIdx.x * 32 + threadIdx.y;
  if (threadIdx.x == 0 && place < width) out[static_cast<i64>(blockIdx.y) * width + place] = total[0];
}
)cuda";

}  // namespace weft
