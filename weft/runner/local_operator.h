#pragma once

#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/layers/context_attention.h"
#include "weft/layers/dropout.h"
#include "weft/layers/norm.h"
#include "weft/mesh/segments.h"
#include "weft/program/program_flow.h"
#include "weft/runner/custom_operators.h"
#include "weft/runner/local_graph.h"
#include "weft/runner/run_draws.h"
#include "weft/tensor/mesh_groups.h"
#include "weft/tensor/rank_steps.h"

namespace weft {

/// The type in which numbers of a type are summed: at least fp32.
inline at::ScalarType sum_type(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf ? at::kFloat : type;
}

/// How the tensors of an operator lie on one rank in runs with given lengths.
struct OperatorPlace {
  std::vector<Box> operands;                 ///< this rank's parts
  std::vector<std::vector<int64_t>> shapes;  ///< of the whole operands
  std::vector<int64_t> result_shape;         ///< of this rank's part
  std::optional<RankSteps> gather_keys;      ///< of attention whose rows are cut
  std::optional<RankSteps> return_keys;
  Traffic forward_inside;  ///< what is communicated inside, in elements
  Traffic backward_inside;
};

/// One operator of a program as one rank computes it, on its parts of the operands. Dims that it cuts inside it
/// communicates over itself, forward and backward, at the same place on every rank, whether a part is empty or not.
class LocalOperator {
 public:
  /// Fails for what no program can compute: an operator that does not say what it does.
  static Result<LocalOperator> create(const ProgramFlow& flow, size_t op, const MeshGroups& groups,
                                      const CustomOperators& custom);

  OperatorPlace place(const RunLengths& lengths) const;

  struct Call {
    const OperatorPlace& place;
    const RunDraws& draws;
    LocalGraph& graph;                      ///< where joins and gradients of weights go
    std::span<const ParameterPtr> weights;  ///< by operand: of one that is a weight as it is given; nothing for others
    const PackedSegments* segments = nullptr;  ///< of the rows of attention; nothing: samples
    const ContextRows* context = nullptr;      ///< where these rows are shared out
  };
  /// In the graph, if gradients are on.
  at::Tensor compute(const std::vector<at::Tensor>& operands, const Call& call) const;

  /// Rows times a weight, with an activation before it or a bias behind it, or both, where a group has them
  /// (MemberGroup). `rows` are what its first operator reads, and `result_shape` what its last one makes.
  struct ProductCall {
    const LocalOperator* activation = nullptr;
    const OperatorPlace* activation_place = nullptr;
    ParameterPtr weight;
    ParameterPtr bias;
    const Call& call;  ///< of the group's last operator
  };
  static at::Tensor compute_product(const at::Tensor& rows, const ProductCall& call);
  /// The sum of two terms and its norm, which this operator is.
  RowsAndNorm compute_sum_and_norm(const at::Tensor& x, at::Tensor added, const Call& call) const;

 private:
  LocalOperator(const Program& program, size_t op, std::vector<Choice> choices, const MeshGroups& groups)
      : program_(&program), index_(op), choices_(std::move(choices)), groups_(groups) {}

  at::Tensor compute_products(const std::vector<at::Tensor>& x, const Call& call) const;
  at::Tensor compute_sum(const std::vector<at::Tensor>& x, const Call& call) const;
  at::Tensor compute_function(const std::vector<at::Tensor>& x, const Call& call) const;
  at::Tensor compute_reshape(const at::Tensor& x, const Call& call) const;
  at::Tensor compute_norm(const std::vector<at::Tensor>& x, const Call& call) const;
  at::Tensor compute_cut_norm(const std::vector<at::Tensor>& x, const Call& call) const;
  at::Tensor compute_softmax(const at::Tensor& x, const Call& call) const;
  at::Tensor compute_loss(const at::Tensor& x, const at::Tensor& targets, const Call& call) const;
  at::Tensor compute_lookup(const at::Tensor& ids, const at::Tensor& table, const Call& call) const;
  at::Tensor compute_attention(const at::Tensor& x, const Call& call) const;
  /// Of packed groups of one sample whose rows are segments, all of them here or shared out (context).
  at::Tensor attend_whole_segments(const at::Tensor& x, const Call& call) const;
  /// Of heads [..., rows, groups, heads, head_dim] of such a sample; `own` are the rows of queries, and keys are of
  /// all.
  at::Tensor attend_segments(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, Range own,
                             const Call& call) const;
  at::Tensor compute_dropout(const at::Tensor& x, const Call& call) const;
  at::Tensor compute_dispatch(const std::vector<at::Tensor>& x, const Call& call) const;
  at::Tensor compute_custom(const std::vector<at::Tensor>& x, const Call& call) const;

  /// What decides which elements are dropped here, but their places.
  DropoutKey dropout_key_of(const RunDraws& draws) const;
  /// Numbers of the parts of the first operand's first `num_dims` dims that are here, joined: places in the whole
  /// tensor, samples as in the step.
  at::Tensor numbers_of(size_t num_dims, const Call& call) const;
  /// An operand with its dims where the result has them, and dims of one element for others.
  at::Tensor aligned(const at::Tensor& x, size_t operand) const;
  /// Sums over the ranks that share what is cut inside. `is_shared`: they all go on with the same sums alike, so that
  /// the gradient of a sum is everyone's already.
  at::Tensor summed_inside(const at::Tensor& x, bool is_shared, const Call& call) const;
  at::Tensor largest_inside(const at::Tensor& x) const;

  const Operator& op() const { return program_->operators[index_]; }
  /// `numbers` of every row of the first operand go round.
  Traffic traffic_of_sums(const OperatorPlace& place, const std::vector<int64_t>& numbers) const;

  const Program* program_;
  size_t index_;
  std::vector<Choice> choices_;
  MeshGroups groups_;
  AxisList inside_axes_;         ///< of more than one rank, on which a dim is cut that is inside
  std::optional<Group> inside_;  ///< of ranks that share it
  std::optional<TransitionForm> keys_;
  std::string equation_;  ///< of a product
  CustomFunction custom_;
  bool owns_first_ = false;  ///< nobody else reads the first operand, nor does its maker keep it
};

}  // namespace weft
