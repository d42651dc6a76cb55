#pragma once

#include "weft/cost/block_setting.h"
#include "weft/spec/op.h"

namespace weft {

inline constexpr double kFp32Bytes = 4;
/// Dropout's mask, for each element.
inline constexpr double kMaskBytes = 1;

// What one rank has of an operator. Uneven shares are those of the rank that has most.

/// A matrix product's own part.
struct LocalMatmul {
  int64_t in = 0;
  int64_t out = 0;
  int64_t copies = 1;  ///< experts on this rank
};
LocalMatmul local_matmul(const Matmul& matmul, TensorSplit split, const BlockSetting& setting);

/// Query heads, and key (or value) heads, which ranks beyond their number copy.
int64_t local_heads(int64_t heads, const BlockSetting& setting);
int64_t local_kv_heads(int64_t kv_heads, const BlockSetting& setting);

/// Trainable elements of an operator on one rank, and the part of them that experts have (whose gradients are summed
/// over fewer ranks).
struct LocalParameters {
  int64_t dense = 0;
  int64_t expert = 0;

  int64_t total() const { return dense + expert; }
  LocalParameters& operator+=(const LocalParameters& other) {
    dense += other.dense;
    expert += other.expert;
    return *this;
  }
};
LocalParameters local_parameters(const Op& op, const BlockSetting& setting);

/// By how many an operator's rows are divided besides cp: sequence parallelism divides those outside tensor-parallel
/// regions.
int64_t row_share(const Op& op, const BlockSetting& setting);

/// By how many the features of an operator inside a tensor-parallel region are divided.
int64_t feature_share(const Op& op, const BlockSetting& setting);

}  // namespace weft
