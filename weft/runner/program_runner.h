#pragma once

#include <memory>
#include <vector>

#include "weft/layers/context_attention.h"
#include "weft/mesh/segments.h"
#include "weft/runner/lowered_program.h"
#include "weft/runner/recent.h"
#include "weft/runner/runner_tape.h"

namespace weft {

struct RunnerOptions {
  /// By value: whether the gradient of one that is given is wanted. Empty: of all inputs and weights. What leads to no
  /// wanted gradient is neither computed nor communicated, going back.
  std::vector<bool> wants_gradient = {};
  /// Whether summands are reduced before any operator reads them, as they must be below fp32, where each would be
  /// rounded by itself: an operator that a strategy has read summands ("through") reads sums.
  bool reduces_first = false;
  CustomOperators custom = CustomOperators::built_in();
};

/// One run: what it draws, and its lengths where they are not those that the program declares (run_lengths.h).
struct RunCall {
  RunDraws draws = {};
  RunLengths lengths = {};
  /// Sequences that lie behind each other in the rows of attention and do not see each other; nothing: every sample is
  /// one.
  std::optional<PackedSegments> segments = std::nullopt;
  /// How their rows lie on ranks of context parallelism; nothing: the run has all of them.
  std::shared_ptr<const ContextRows> context = nullptr;
  /// By value, or empty: parameters whose values are given as they are. Where a weight is used as it is held, what the
  /// backward finds is added to its parameter at once, and no gradient of it is given.
  std::vector<ParameterPtr> parameters = {};
};

/// A program on one rank of a mesh: every operator on this rank's parts, a redistribution on every edge whose layouts
/// differ, and adjoints going back. It has its own tape: collectives come in the program's order on every rank, forward
/// and backward, whether a part is empty or not.
class ProgramRunner {
 public:
  /// The program must have no repeats (see unrolled) and outlive the runner. All ranks of the mesh do this alike, and
  /// everything below. Fails where a choice is not the rule's, where states contradict each other, and for operators
  /// that cannot run.
  static Result<ProgramRunner> create(const Program& program, const RunStrategy& strategy, const MeshGroups& groups,
                                      const RunnerOptions& options = {});

  /// Where a value is between the operator that makes it and those that read it; inputs, data and weights: as they are
  /// given. Its gradient has the layout's gradient().
  Layout layout(size_t value, const RunLengths& lengths = {}) const;
  /// Results that nobody reads.
  const std::vector<size_t>& outputs() const { return lowered_->outputs; }

  /// This rank's parts of all values that are given, by value; others are undefined. Returns the parts of outputs.
  /// Keeps what the backward needs on the tape, which must be a new one; without a tape nothing is kept.
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& given, const RunCall& call, RunnerTape& tape);
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& given, const RunCall& call);
  /// Of gradients of the outputs: the gradients that are wanted, by value. Those of weights below fp32 are in fp32.
  std::vector<at::Tensor> backward(const std::vector<at::Tensor>& output_gradients, RunnerTape& tape);
  /// The same in two parts, the second of which may come any time later: those of inputs, then those of weights. What
  /// weights need stays on the tape in between.
  std::vector<at::Tensor> backward_inputs(const std::vector<at::Tensor>& output_gradients, RunnerTape& tape);
  std::vector<at::Tensor> backward_weights(RunnerTape& tape);

  /// What a forward and a backward send and receive, in elements: of values with gradients, and of data.
  Traffic planned_traffic(const RunLengths& lengths = {});
  Traffic planned_data_traffic(const RunLengths& lengths = {});
  /// The same in bytes, for tensors of the types of these. Sums inside of operators and gradients of weights are at
  /// least in fp32.
  Traffic planned_bytes(const std::vector<at::Tensor>& given, const RunLengths& lengths = {});

 private:
  /// Of the lengths of one value's dims, or of one operator's.
  using EdgeCache = Recent<RunLengths, EdgeSteps>;
  using PlaceCache = Recent<RunLengths, OperatorPlace>;

  ProgramRunner(LoweredProgram lowered, RunLengths lengths, const MeshGroups& groups);

  std::shared_ptr<const ShapePlan> plan(const RunLengths& lengths);
  EdgeSteps edge_steps(const Arrival& arrival, const RunLengths& lengths) const;
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& given, const RunCall& call, RunnerTape* tape);
  /// Tensors of a segment that is being run, until nobody in it reads them.
  struct Running {
    std::vector<at::Tensor> leaves;
    std::vector<at::Tensor> made;  ///< by value
  };
  /// Whose gradient that of a weight is added to; nothing: that of the graph's own parameter.
  static ParameterPtr owner(const Arrival& arrival, const RunCall& call);
  void compute_group(const FlowSegment& segment, const LoweredGroup& group, const ShapePlan& plan, const RunCall& call,
                     LocalGraph& graph, Running& running) const;
  std::vector<at::Tensor> go_back(const std::vector<at::Tensor>& output_gradients, RunnerTape& tape, bool with_weights);
  /// Adds a segment's gradients of weights to those of its arrivals.
  void collect_weights(size_t segment, LocalGraph& graph, std::vector<at::Tensor>& of_arrivals) const;
  /// Sends gradients of what arrived first in a segment back to their values.
  void return_arrivals(size_t segment, const ShapePlan& plan, bool are_weights, std::vector<at::Tensor>& of_arrivals,
                       std::vector<at::Tensor>& gradients) const;

  std::unique_ptr<const LoweredProgram> lowered_;
  MeshGroups groups_;
  RunLengths declared_;
  Recent<RunLengths, ShapePlan> plans_;
  std::vector<EdgeCache> edges_;    ///< by arrival
  std::vector<PlaceCache> places_;  ///< by operator
};

}  // namespace weft
