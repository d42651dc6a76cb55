#pragma once

#include "weft/models/module_network.h"
#include "weft/models/named_inputs.h"
#include "weft/models/program/program_block.h"

namespace weft {

/// A user's own program as a module: an entry, layers and an exit that each compute a part of it.
class ProgramNetwork : public ModuleNetwork {
 public:
  ProgramNetwork(const Module& module, const BlockRange& blocks, ParameterMaker& maker);

  at::Tensor enter(const Inputs& inputs, const std::vector<MediaRows>& media, const RunContext& context) const override;
  LayerPass begin(const Inputs& inputs, at::ScalarType type) const override;
  at::Tensor run_layer(int64_t index, const at::Tensor& x, const LayerPass& pass,
                       const RunContext& context) const override;
  /// The sum of what the program's loss is.
  at::Tensor leave(const LayerRows& rows, const Inputs& inputs, const RunContext& context,
                   const RunContext& outside) const override;
  ParameterPtr table() const override { return table_; }
  bool is_tied() const override { return is_tied_; }
  void place(const MeshGroups& tensor_parallel, at::ScalarType type, bool divides_rows) override;

 private:
  struct OwnBlock {
    std::shared_ptr<ProgramBlock> block;
    int64_t first_operator = 0;  ///< operators of the blocks before it

    at::Tensor run(const at::Tensor& x, const NamedInputs& inputs, const RunContext& context) const;
  };

  OwnBlock entry_;
  std::vector<OwnBlock> layers_;
  OwnBlock exit_;
  ParameterPtr table_;  ///< of the entry, where the exit reads it, too
  bool is_tied_ = false;
};

}  // namespace weft
