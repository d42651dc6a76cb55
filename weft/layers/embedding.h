#pragma once

#include "weft/layers/parameter.h"

namespace weft {

/// The table's rows for these ids. Rows of `padding_id`, if there is one, get no gradient.
at::Tensor embed(const at::Tensor& ids, const ParameterPtr& table, int64_t padding_id = -1);

/// Rows at `positions` replaced by `rows`, in order.
at::Tensor place_rows(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& rows);

/// `rows` added to the rows at `positions`, which all differ.
at::Tensor add_rows(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& rows);

}  // namespace weft
