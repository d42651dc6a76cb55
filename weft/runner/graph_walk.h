#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace weft {

/// Goes back through an autograd graph of a few nodes on this thread, the latest node first, and adds to `found` the
/// gradients of leaves; an undefined one is zero. What the engine does, without what it sets up for each call: queues,
/// threads for devices, a search for the nodes that lead to the leaves. The graph must be one that this thread made;
/// hooks of tensors are not called. Without `keeps_graph` it is used up.
void walk_graph(const std::vector<at::Tensor>& ends, const std::vector<at::Tensor>& slopes,
                const std::vector<at::Tensor>& leaves, bool keeps_graph, std::vector<at::Tensor>& found);

}  // namespace weft
