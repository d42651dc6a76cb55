#pragma once

#include "weft/layers/parameter.h"

namespace weft {

/// Root-mean-square norm of every row, times a weight. bf16 and fp16 rows are normed in fp32.
at::Tensor rms_norm(const at::Tensor& x, const ParameterPtr& weight, double epsilon);

/// Mean and variance taken out of every row, times a weight, plus a bias.
at::Tensor layer_norm(const at::Tensor& x, const ParameterPtr& weight, const ParameterPtr& bias, double epsilon);

/// Rows, and what their norm makes of them.
struct RowsAndNorm {
  at::Tensor rows;
  at::Tensor normed;
};
/// x + added, or x where nothing is added, and its root-mean-square norm, or layer norm where there is a bias. Whoever
/// goes on with both takes them from here: where a device has a kernel for it, they are one pass, and so are their
/// gradients.
RowsAndNorm add_and_norm(const at::Tensor& x, at::Tensor added, const ParameterPtr& weight, const ParameterPtr& bias,
                         double epsilon);

/// Attention's packed rows [tokens, (heads + 2·kv_heads)·head_dim] with every query and key head normed.
at::Tensor norm_heads(const at::Tensor& qkv, const ParameterPtr& q_weight, const ParameterPtr& k_weight, int64_t heads,
                      int64_t kv_heads, double epsilon);

/// Some heads of every group of packed rows [..., groups · size · head_dim], each normed by itself; the others stay.
struct GroupHeads {
  int64_t size = 0;  ///< heads of a group
  int64_t head_dim = 0;
  int64_t first = 0;  ///< that is normed, of a group
  int64_t count = 0;
};
/// Keeps the normed heads alone. `in_place`: the rows are this function's to use up.
at::Tensor norm_group_heads(const at::Tensor& packed, const at::Tensor& weight, const GroupHeads& which, double epsilon,
                            bool in_place);

/// Every row times a weight, element by element.
at::Tensor scale_columns(const at::Tensor& x, const ParameterPtr& weight);

}  // namespace weft
