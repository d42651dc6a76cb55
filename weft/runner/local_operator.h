#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/program/program.h"
#include "weft/tensor/mesh_groups.h"
#include "weft/tensor/rank_steps.h"

namespace weft {

/// What decides which elements a program's dropouts drop, besides the operator and the element's place.
struct RunDraws {
  uint64_t seed = 0;
  int64_t step = 0;
};

/// One operator of a program as one rank computes it, on its parts of the operands: the result's part, and the
/// gradients' parts. Dims that it cuts inside it communicates over itself, forward and backward, at the same place on
/// every rank, whether a part is empty or not.
class LocalOperator {
 public:
  /// Layouts are of the operands as the operator reads them, and of its result. Fails for what no program can compute
  /// yet: an operator that does not say what it does.
  static Result<LocalOperator> create(const Program& program, size_t op, const std::vector<Choice>& choices,
                                      std::vector<Layout> operands, Layout result, const MeshGroups& groups);

  /// What it made of operands, kept for the backward.
  struct Kept {
    struct Join {
      at::Tensor sent;                                    ///< end of a graph
      at::Tensor leaf;                                    ///< what came back, where the graph goes on
      std::function<at::Tensor(const at::Tensor&)> back;  ///< the gradient's way
    };

    std::vector<at::Tensor> leaves;  ///< operands, as the graph begins with them
    std::vector<Join> joins;         ///< what came from other ranks inside
    at::Tensor result;               ///< end of the graph
  };

  at::Tensor forward(const std::vector<at::Tensor>& operands, const RunDraws& draws, Kept& kept) const;
  /// Gradients of the operands; nothing for those that have none. Uses up what was kept.
  std::vector<at::Tensor> backward(const at::Tensor& gradient, Kept kept) const;

  /// What it communicates inside in a forward and a backward, in elements.
  Traffic inside_traffic() const { return inside_traffic_; }

 private:
  LocalOperator(const Program& program, size_t op, std::vector<Layout> operands, Layout result,
                const MeshGroups& groups);

  Traffic traffic_of_sums(const AxisGrid& grid, const AxisList& axes) const;
  at::Tensor compute(const RunDraws& draws, Kept& kept) const;
  at::Tensor compute_products(const std::vector<at::Tensor>& x) const;
  at::Tensor compute_function(const std::vector<at::Tensor>& x) const;
  at::Tensor compute_reshape(const at::Tensor& x) const;
  at::Tensor compute_norm(const std::vector<at::Tensor>& x, Kept& kept) const;
  at::Tensor compute_softmax(const at::Tensor& x, Kept& kept) const;
  at::Tensor compute_loss(const at::Tensor& x, const at::Tensor& targets, Kept& kept) const;
  at::Tensor compute_lookup(const at::Tensor& ids, const at::Tensor& table) const;
  at::Tensor compute_attention(const at::Tensor& x, Kept& kept) const;
  at::Tensor compute_dropout(const at::Tensor& x, const RunDraws& draws) const;

  /// An operand with its dims where the result has them, and dims of one element for others.
  at::Tensor aligned(const at::Tensor& x, const RuleTerm& term) const;
  /// Sums over the ranks that share what is cut inside. `is_shared`: they all go on with the same sums alike, so that
  /// the gradient of a sum is everyone's already.
  at::Tensor summed_inside(const at::Tensor& x, bool is_shared, Kept& kept) const;
  at::Tensor largest_inside(const at::Tensor& x) const;

  const Operator& op() const { return program_->operators[index_]; }
  Box box(size_t operand) const { return operands_[operand].box(position_); }

  const Program* program_;
  size_t index_;
  std::vector<Layout> operands_;
  Layout result_;
  int64_t position_;
  std::optional<Group> inside_;  ///< of ranks that share a dim that is cut inside
  std::optional<RankSteps> gather_keys_;
  std::optional<RankSteps> return_keys_;
  Traffic inside_traffic_;
};

}  // namespace weft
