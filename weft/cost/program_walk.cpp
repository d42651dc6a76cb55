#include "weft/cost/program_walk.h"

#include "weft/cost/program_memory.h"

namespace weft {
namespace {

/// How an operator is gone through; one that no operator of the block stands for has no weight.
WalkContext at(const WalkedBlock& block, const std::string& name, const WalkContext& context) {
  if (const Op* op = find_op(block.block, name)) return block.at(*op, context);
  WalkContext own = context;
  own.trains = own.trains_bias = false;
  return own;
}

}  // namespace

CountedTensor walk_program_block(const WalkedBlock& block, const CountedTensor& x, const WalkContext& outside) {
  const BlockProgram& own = *block.block.program;
  // Behind the program of a layer its experts may be trained alone.
  const size_t num_ops = num_in_program(block.block);
  const WalkContext context =
      outside.going_back(block.needs.empty() || num_ops == 0 || block.needs[num_ops - 1].of_output);
  const ProgramMeaning meaning(
      own, {.tp = context.share.tp, .divides_rows = context.divides_rows, .reduces_first = context.element_bytes < 4});
  const RunLengths lengths = meaning.lengths(meaning.samples_of(context.whole_rows));
  const std::vector<OperatorElements> elements = elements_of(meaning, lengths, context.share.tp_rank);
  CountedTensor last = x;
  for (size_t i = 0; i < elements.size(); ++i) {
    const OperatorElements& op = elements[i];
    const CountedTensor arrived = context.make(op.arrived * context.element_bytes);
    CountedTensor made = context.make(op.made * context.element_bytes);
    const CountedTensor scores = context.make(op.scores * context.element_bytes);
    const WalkContext here = at(block, own.program.operators[i].name, context);
    here.add_step([here, arrived, made, scores, read = last](const CountedTensor& dy) {
      // Products of the weight's gradient may wait, with what they are made of.
      if (here.trains && here.queue != nullptr) here.queue->push_back([read, dy] {});
      return here.passes_on ? here.make(read.bytes()) : CountedTensor();
    });
    last = std::move(made);
  }
  return last;
}

}  // namespace weft
