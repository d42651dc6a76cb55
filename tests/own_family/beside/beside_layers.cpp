// What the layers of beside.cpp compute, with LibTorch.
#include <ATen/TensorOperators.h>

#include "weft/layers/norm.h"
#include "weft/models/layer_library.h"

namespace {

using namespace weft;

/// x + gate · (attention(norm(x)) + mlp(norm(x))).
class BesideLayer : public OwnLayer {
 public:
  explicit BesideLayer(ParameterPtr gate) : gate_(std::move(gate)) {}

  at::Tensor forward(const TransformerLayer& parts, const at::Tensor& x, const AttentionCall& call,
                     const RunContext& context) const override {
    const at::Tensor attended = parts.attention.forward(parts.attention_norm.forward(x), call, context);
    const at::Tensor mapped = parts.mlp.forward(parts.mlp_norm.forward(x), context);
    return x + scale_columns(attended + mapped, gate_);
  }

 private:
  ParameterPtr gate_;
};

/// As a transformer layer does it, for comparison.
class LayerInTurn : public OwnLayer {
 public:
  at::Tensor forward(const TransformerLayer& parts, const at::Tensor& x, const AttentionCall& call,
                     const RunContext& context) const override {
    const at::Tensor attended = x + parts.attention.forward(parts.attention_norm.forward(x), call, context);
    return attended + parts.mlp.forward(parts.mlp_norm.forward(attended), context);
  }
};

std::vector<OwnLayerKind> beside_layers() {
  return {{"beside",
           [](const OpParameterMaker& make, int64_t) -> std::unique_ptr<OwnLayer> {
             return std::make_unique<BesideLayer>(make.make("gate").weight);
           }},
          {"in turn", [](const OpParameterMaker&, int64_t) -> std::unique_ptr<OwnLayer> {
             return std::make_unique<LayerInTurn>();
           }}};
}

}  // namespace

WEFT_LAYER_LIBRARY(beside_layers)
