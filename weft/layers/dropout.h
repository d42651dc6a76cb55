#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace weft {

/// What decides which elements are dropped while a batch goes through a model. Whether an element is depends on the
/// seed, the step, the layer, the operator and the element's own place alone, so that every split of a batch or of a
/// layer drops the same, and so does a block that runs again.
struct DropoutDraws {
  uint64_t seed = 0;
  int64_t step = 0;
  at::Tensor rows;      ///< int64 [rows], on the CPU: numbers of the rows that are here, as row_number gives them
  at::Tensor all_rows;  ///< the same of all rows, where ranks share them out; undefined: all are here

  const at::Tensor& of_all() const { return all_rows.defined() ? all_rows : rows; }
};

/// The number of a row: its place in its sample, and the sample's in the step.
inline int64_t row_number(int64_t sample, int64_t place) {
  return sample << 32 | place;
}

/// The operators that drop.
enum class DropoutSite : uint8_t { kEmbedding, kAttention, kAttentionSum, kMlpSum, kAdapter, kProgram, kMlp };

/// Chooses what an operator drops.
struct DropoutKey {
  std::array<uint32_t, 2> words = {};
};
DropoutKey dropout_key(const DropoutDraws& draws, int64_t layer, DropoutSite site);

/// Rows [n, width] some of whose elements are zero, and the others larger by as much as keeps the mean. `rows` are
/// their numbers, and `first_column` is where they begin in those of the whole model. Nothing is kept for the backward,
/// which draws again.
at::Tensor drop_elements(const at::Tensor& x, const at::Tensor& rows, double probability, const DropoutKey& key,
                         int64_t first_column = 0);

/// What weights between rows are multiplied with, [queries, keys] for each head: 0, or 1 / (1 − probability).
struct AttentionDropout {
  double probability = 0;
  DropoutKey key;
  at::Tensor rows;         ///< numbers of all rows that segments are made of
  int64_t first_head = 0;  ///< of the whole model, here
};

/// Numbers of the rows that blocks of attention count in.
struct BlockDropout {
  double probability = 0;
  DropoutKey key;
  at::Tensor queries;
  at::Tensor keys;
  int64_t first_head = 0;
};
/// For `count` blocks of consecutive queries and keys, [count, heads, queries, keys], where their numbers are given.
at::Tensor attention_factors(const BlockDropout& dropout, const at::Tensor& queries, const at::Tensor& keys,
                             int64_t count, int64_t heads, const at::TensorOptions& options);

}  // namespace weft
