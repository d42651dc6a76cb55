#pragma once

#include <string>

#include "weft/layers/transformer_layer.h"
#include "weft/program/module.h"

namespace weft {

/// Parameters of one operator.
struct OpParameters {
  ParameterPtr weight;
  ParameterPtr bias;  ///< nothing where it has none
};

/// Makes the parameters of a block's operators as these are declared: names, shapes, and how tensor parallelism cuts
/// them all follow from the operator.
class OpParameterMaker {
 public:
  /// `path` is what stands before the names, `deviation` that of fresh matrices.
  OpParameterMaker(const Block& block, std::string path, double deviation, ParameterMaker& maker)
      : block_(block), path_(std::move(path)), deviation_(deviation), maker_(maker) {}

  const Block& block() const { return block_; }
  OpParameters make(const Op& op) const;
  OpParameters make(std::string_view op) const { return make(op_named(block_, op)); }
  NormLayer norm(std::string_view op) const;

 private:
  OpParameters make_matmul(const Op& op, const Matmul& matmul) const;
  std::vector<std::string> bias_names(const OpWeights& weights) const;
  ParameterPtr make_down(const Op& op, const Matmul& matmul) const;
  /// Those of a product's adapter; nothing where it has none.
  std::shared_ptr<const Adapter> make_adapter(const Op& op) const;
  OpParameters make_experts(const Op& op, const Matmul& matmul) const;

  const Block& block_;
  std::string path_;
  double deviation_;
  ParameterMaker& maker_;
};

/// A transformer layer from the block that declares it, the `number`th of its module: what no program computes of it.
TransformerLayer make_transformer_layer(const OpParameterMaker& make, int64_t number, bool normalizes_expert_weights);

}  // namespace weft
