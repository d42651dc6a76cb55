#pragma once

#include <map>
#include <memory>
#include <vector>

#include "weft/layers/run_context.h"
#include "weft/models/named_inputs.h"
#include "weft/models/op_parameters.h"
#include "weft/program/program_ops.h"
#include "weft/runner/program_runner.h"

namespace weft {

/// A block of a user's own program on one rank: the parameters of its operators, and a runner that computes it on the
/// ranks of tensor parallelism. To autograd it is one function.
class ProgramBlock : public std::enable_shared_from_this<ProgramBlock> {
 public:
  /// `first_operator` counts the operators of the blocks before it. `tied` is the table of the entry, where the block
  /// reads it.
  ProgramBlock(const OpParameterMaker& make, const ProgramRows& rows, int64_t first_operator, ParameterPtr tied);

  /// The parameter that a weight is.
  ParameterPtr parameter(const std::string& weight) const;

  /// Makes the runner, once it is known what is trained. The mesh has the tensor-parallel axis alone; all of its ranks
  /// do this alike. `type` is that of rows.
  void place(const MeshGroups& groups, at::ScalarType type);

  /// Rows [rows, width] as the block before gave them become rows for the next one; of the exit, what the loss is the
  /// sum of. Data with no operator are given as they come.
  at::Tensor run(const at::Tensor& x, const NamedInputs& inputs, const RunContext& context) const;

 private:
  /// A runner, and what it runs.
  struct Running {
    Program program;
    std::unique_ptr<ProgramRunner> runner;
  };
  struct Call;
  struct BlockFunction;

  static std::unique_ptr<Running> make_running(Program program, const RunStrategy& strategy, const MeshGroups& groups,
                                               const RunnerOptions& options);
  std::vector<at::Tensor> given(const at::Tensor& x, const NamedInputs& inputs) const;
  RunCall call_of(const NamedInputs& inputs, const RunContext& context) const;
  void add_gradients(const std::vector<at::Tensor>& gradients) const;

  std::shared_ptr<const BlockProgram> block_;
  ProgramRows rows_;
  int64_t first_operator_;
  std::vector<ParameterPtr> parameters_;  ///< by value; nothing for what is no weight
  std::vector<bool> is_transposed_;       ///< by value: the parameter has its dims in the other order
  std::unique_ptr<Running> training_;
  std::unique_ptr<Running> evaluating_;  ///< where they differ: nothing is dropped
};

}  // namespace weft
