#pragma once

#include <memory>
#include <string>

#include "weft/models/op_parameters.h"

namespace weft {

/// A layer that a library computes. Its block has the operators of a transformer layer, and may have more, with weights
/// that this holds. It knows of ranks no more than layers do: `context` changes layouts where a product needs it.
class OwnLayer {
 public:
  virtual ~OwnLayer() = default;

  /// Rows as between blocks in and out. `parts` are what the operators of a transformer layer hold on this rank.
  virtual at::Tensor forward(const TransformerLayer& parts, const at::Tensor& x, const AttentionCall& call,
                             const RunContext& context) const = 0;
};

/// A layer by the name that blocks have for it (Block::layer).
struct OwnLayerKind {
  std::string name;
  /// The `number`th layer of its module. `make` makes parameters of the block's operators; those of a transformer layer
  /// have theirs already.
  std::unique_ptr<OwnLayer> (*make)(const OpParameterMaker& make, int64_t number);
};

}  // namespace weft
