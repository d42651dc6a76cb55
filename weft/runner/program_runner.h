#pragma once

#include <memory>
#include <vector>

#include "weft/program/run_strategy.h"
#include "weft/runner/local_operator.h"

namespace weft {

/// A program on one rank of a mesh: every operator on this rank's parts, a redistribution on every edge whose layouts
/// differ, and adjoints going back. It has its own tape: collectives come in the program's order on every rank, forward
/// and backward, whether a part is empty or not.
class ProgramRunner {
 public:
  /// The program must have no repeats (see unrolled) and outlive the runner. All ranks of the mesh do this alike. Fails
  /// where a choice is not the rule's, where states contradict each other, and for operators that cannot run.
  static Result<ProgramRunner> create(const Program& program, const RunStrategy& strategy, const MeshGroups& groups);

  /// Where a value is between the operator that makes it and those that read it; inputs, data and weights: as they are
  /// given.
  const Layout& layout(size_t value) const { return layouts_[value]; }
  /// Results that nobody reads.
  const std::vector<size_t>& outputs() const { return outputs_; }

  /// This rank's parts of all values that are given, by value; others are undefined. Returns the parts of outputs.
  /// Keeps what the backward needs.
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& given, const RunDraws& draws);
  /// Of gradients of the outputs, in layout(output).gradient(): the gradients of all given values that have one, by
  /// value, in layout(value).gradient().
  std::vector<at::Tensor> backward(const std::vector<at::Tensor>& output_gradients);

  /// What a forward and a backward send and receive, in elements: of values with gradients, and of data.
  Traffic planned_traffic() const { return traffic_; }
  Traffic planned_data_traffic() const { return data_traffic_; }

 private:
  /// From where a value is to what an operator asks for, and the gradient's way back.
  struct Edge {
    RankSteps forward;
    RankSteps adjoint;
  };
  struct PlacedOperator {
    LocalOperator local;
    std::vector<Edge> edges;
    LocalOperator::Kept kept;
  };

  explicit ProgramRunner(const Program& program) : program_(&program) {}
  std::optional<Error> add(size_t op, const std::vector<Choice>& choices, const MeshGroups& groups);

  const Program* program_;
  std::vector<Layout> layouts_;
  std::vector<std::unique_ptr<PlacedOperator>> operators_;  // in place, because what they keep refers to them
  std::vector<size_t> outputs_;
  Traffic traffic_;
  Traffic data_traffic_;
};

}  // namespace weft
