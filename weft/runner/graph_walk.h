#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace weft {

/// Whether nobody else has a hold of a tensor's memory, which lies in one piece.
bool is_own(const at::Tensor& x);

/// Adds to a sum that may be nothing yet, in its own memory where nobody else has a hold of it.
void accumulate(at::Tensor& sum, at::Tensor more);

/// Goes back through an autograd graph of a few nodes on this thread, the latest node first, and adds to `found` the
/// gradients of leaves; an undefined one is zero. What the engine does, without what it sets up for each call: queues,
/// threads for devices, a search for the nodes that lead to the leaves. The graph must be one that this thread made;
/// hooks of tensors are not called. Without `keeps_graph` it is used up.
void walk_graph(const std::vector<at::Tensor>& ends, const std::vector<at::Tensor>& slopes,
                const std::vector<at::Tensor>& leaves, bool keeps_graph, std::vector<at::Tensor>& found);

}  // namespace weft
