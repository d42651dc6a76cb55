#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/comm/group.h"

namespace weft {

/// How rows travel between the ranks that share out the experts: rank r has the r-th of equal parts of them. No row is
/// dropped, and any number may go anywhere.
struct ExpertExchange {
  Group group;
  std::vector<int64_t> sent;      ///< rows of this rank to each
  std::vector<int64_t> received;  ///< and from each
  std::vector<int64_t> counts;    ///< rows of each expert here, from all ranks
  at::Tensor order;               ///< of the rows as they arrive, by expert
  at::Tensor inverse;
};

/// `counts` are this rank's rows for every expert. All ranks of the group call it.
ExpertExchange plan_exchange(const Group& group, const std::vector<int64_t>& counts, at::Device device);

/// Rows sorted by expert become the rows of the experts here, sorted by expert. All ranks of the group call it, and its
/// backward, alike.
at::Tensor dispatch(const at::Tensor& rows, const ExpertExchange& exchange);
/// The other way round.
at::Tensor combine(const at::Tensor& rows, const ExpertExchange& exchange);

}  // namespace weft
