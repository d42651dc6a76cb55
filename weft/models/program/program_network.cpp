#include "weft/models/program/program_network.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/program/name_weights.h"

namespace weft {
namespace {

const Op* tied_product(const Block& exit) {
  const auto found = std::find_if(exit.ops.begin(), exit.ops.end(), [](const Op& op) {
    const auto* matmul = std::get_if<Matmul>(&op.shape);
    return matmul != nullptr && matmul->is_tied;
  });
  return found == exit.ops.end() ? nullptr : &*found;
}

int64_t num_operators(const Block& block) {
  return static_cast<int64_t>(block.program->num_own);
}

}  // namespace

ProgramNetwork::ProgramNetwork(const Module& module, const BlockRange& blocks, ParameterMaker& maker) {
  const ModuleEnds ends = ends_of(module, maker);
  const Op* tied = tied_product(module.exit);
  is_tied_ = tied != nullptr && blocks.has_exit;
  if (blocks.has_entry) {
    entry_ = {.block = std::make_shared<ProgramBlock>(ends.entry)};
    if (tied != nullptr) table_ = entry_.block->parameter(tied->weights->names.front());
  } else if (is_tied_) {
    // A copy of the table alone.
    for (const Op& op : module.entry.ops) {
      if (op.weights && op.weights->names == tied->weights->names) table_ = ends.entry.make(op).weight;
    }
  }
  int64_t first_operator = num_operators(module.entry);
  const auto num_layers = static_cast<int64_t>(module.layers.size());
  const int64_t end = blocks.end_layer(num_layers);
  for (int64_t index = 0; index < num_layers; ++index) {
    const Block& block = block_at(module, index + 1);
    if (index >= blocks.first_layer && index < end) {
      maker.next_block();
      const OpParameterMaker make(block, path_of_block(module, index + 1), module.deviation, maker);
      layers_.push_back({.block = std::make_shared<ProgramBlock>(make), .first_operator = first_operator});
    }
    first_operator += num_operators(block);
  }
  if (!blocks.has_exit) return;
  maker.next_block();
  exit_ = {.block = std::make_shared<ProgramBlock>(ends.exit, table_), .first_operator = first_operator};
}

at::Tensor ProgramNetwork::OwnBlock::run(const at::Tensor& x, const NamedInputs& inputs,
                                         const RunContext& context) const {
  BlockData data{.tensors = inputs.tensors, .length = inputs.num_samples};
  if (context.dropout != nullptr) {
    data.draws = {.seed = context.dropout->seed,
                  .step = context.dropout->step,
                  .first_operator = first_operator,
                  .sample_dim = block->program().rows.sample_dim,
                  .samples = inputs.samples};
  }
  return block->run(x, data, context);
}

void ProgramNetwork::place(const MeshGroups& tensor_parallel, at::ScalarType type, bool divides_rows) {
  if (entry_.block) entry_.block->place(tensor_parallel, type, divides_rows);
  for (const OwnBlock& layer : layers_) layer.block->place(tensor_parallel, type, divides_rows);
  if (exit_.block) exit_.block->place(tensor_parallel, type, divides_rows);
}

at::Tensor ProgramNetwork::enter(const Inputs& inputs, const std::vector<MediaRows>& /*media*/,
                                 const RunContext& context) const {
  return entry_.run(at::Tensor(), *inputs.named, context);
}

LayerPass ProgramNetwork::begin(const Inputs& inputs, at::ScalarType /*type*/) const {
  LayerPass pass;
  pass.named = inputs.named;
  return pass;
}

at::Tensor ProgramNetwork::run_layer(int64_t index, const at::Tensor& x, const LayerPass& pass,
                                     const RunContext& context) const {
  return layers_[static_cast<size_t>(index)].run(x, *pass.named, context);
}

at::Tensor ProgramNetwork::leave(const LayerRows& rows, const Inputs& inputs, const RunContext& context,
                                 const RunContext& /*outside*/) const {
  const at::Tensor terms = exit_.run(rows.last, *inputs.named, context);
  return terms.scalar_type() == at::kDouble ? terms.sum() : terms.sum(at::kFloat);
}

}  // namespace weft
