#pragma once

#include <map>
#include <memory>
#include <vector>

#include "weft/layers/run_context.h"
#include "weft/models/op_parameters.h"
#include "weft/program/program_ops.h"
#include "weft/runner/program_runner.h"

namespace weft {

/// What a block is run on besides the rows of the block before it.
struct BlockData {
  const std::map<std::string, at::Tensor>& tensors;  ///< by name, whole
  int64_t length = 0;   ///< of the dim of samples (ProgramRows), on all tensor-parallel ranks together
  RunDraws draws = {};  ///< where something is dropped
  std::optional<PackedSegments> segments = std::nullopt;  ///< RunCall, here and below
  std::shared_ptr<const ContextRows> context = nullptr;
};

/// A block of a program on one rank, a user's own or what a program computes of a layer: the parameters of its
/// operators, and a runner that computes it on the ranks of tensor parallelism. To autograd it is one function.
class ProgramBlock : public std::enable_shared_from_this<ProgramBlock> {
 public:
  /// `tied` is the table of the entry, where the block reads it.
  explicit ProgramBlock(const OpParameterMaker& make, ParameterPtr tied = {});

  const BlockProgram& program() const { return *block_; }

  /// The parameter that a weight is.
  ParameterPtr parameter(const std::string& weight) const;

  /// Makes the runner, once it is known what is trained. The mesh has the tensor-parallel axis alone; all of its ranks
  /// do this alike. `type` is that of rows, and `divides_rows` whether ranks divide them between blocks.
  void place(const MeshGroups& groups, at::ScalarType type, bool divides_rows);

  /// Rows [rows, width] as the block before gave them become rows for the next one; of the exit, what the loss is the
  /// sum of. Data with no operator are given as they come.
  at::Tensor run(const at::Tensor& x, const BlockData& data, const RunContext& context) const;

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
  std::vector<at::Tensor> given(const at::Tensor& x, const BlockData& data) const;
  RunCall call_of(const BlockData& data) const;
  void add_gradients(const std::vector<at::Tensor>& gradients) const;

  std::shared_ptr<const BlockProgram> block_;
  std::vector<ParameterPtr> parameters_;  ///< by value; nothing for what is no weight
  std::vector<bool> is_transposed_;       ///< by value: the parameter has its dims in the other order
  std::unique_ptr<Running> training_;
  std::unique_ptr<Running> evaluating_;  ///< where they differ: nothing is dropped
};

}  // namespace weft
