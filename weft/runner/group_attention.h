#pragma once

#include <ATen/core/Tensor.h>

#include "weft/program/op.h"

namespace weft {

/// Whether group_attention takes such rows: all of a sample's, on a processor, with a mask that its kernel knows.
bool has_group_attention(const at::Tensor& packed, const Attention& attention);

/// Attention of packed rows [samples, rows, groups · (queries + 2) · head_dim], in which a group of queries lies beside
/// the key and the value that it shares: [samples, rows, groups · queries · head_dim]. Keys are shared and packed rows
/// read where they lie; nothing is copied but the result, and going back the gradients.
at::Tensor group_attention(const at::Tensor& packed, const Attention& attention);

}  // namespace weft
