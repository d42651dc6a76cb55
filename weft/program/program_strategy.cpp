#include "weft/program/program_strategy.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/base/text.h"
#include "weft/program/program_ops.h"

namespace weft {
namespace {

template <typename Visit>
void each_block(Module& module, Visit visit) {
  visit(module.entry);
  for (Block& kind : module.distinct_layers) visit(kind);
  visit(module.exit);
}

/// How a rank has a weight between steps: as the operator that reads it does.
std::vector<AxisState> held_states(const BlockProgram& block) {
  const Program& program = block.program;
  std::vector<AxisState> held(program.values.size(), AxisState::replicated());
  for (size_t i = 0; i < program.operators.size(); ++i) {
    const Operator& op = program.operators[i];
    const ChoiceStates states = states_of(op.rule, block.choices[i]);
    for (size_t k = 0; k < op.operands.size(); ++k) {
      if (is_weight(program, op.operands[k]) && states.operands[k].is_shard())
        held[op.operands[k]] = states.operands[k];
    }
  }
  return held;
}

/// The weights of a block's operators, as its program holds them.
void describe_held(Block& block) {
  const Program& program = block.program->program;
  for (Op& op : block.ops) {
    if (op.weights) op.held.emplace();
  }
  const std::vector<std::optional<OpWeightPlace>> places = weight_places(program, block.ops);
  for (size_t value = 0; value < places.size(); ++value) {
    const AxisState state = block.program->held[value];
    if (!places[value] || !state.is_shard()) continue;
    const ProgramDim& dim = program.dims[program.values[value].dims[state.dim]];
    HeldWeights& held = *block.ops[places[value]->op].held;
    (places[value]->is_bias ? held.bias : held.weight) =
        HeldCut{.dim = places[value]->is_transposed ? 1 - state.dim : state.dim, .unit = dim.unit};
  }
}

/// The weight of the entry that the exit reads, too.
std::optional<std::string> tied_name(const Module& module) {
  for (const Op& op : module.exit.ops) {
    const auto* matmul = std::get_if<Matmul>(&op.shape);
    if (matmul != nullptr && matmul->is_tied) return op.weights->names.front();
  }
  return std::nullopt;
}

}  // namespace

void hold_weights(Module& module) {
  const std::optional<std::string> tied = tied_name(module);
  AxisState table = AxisState::replicated();
  each_block(module, [&](Block& block) {
    BlockProgram own = *block.program;
    own.held = held_states(own);
    if (const auto value = tied ? own.program.find_value(*tied) : std::nullopt) {
      if (&block == &module.entry) table = own.held[*value];
      own.held[*value] = table;
    }
    block.program = std::make_shared<const BlockProgram>(std::move(own));
    describe_held(block);
  });
}

std::vector<const Block*> kinds_of_blocks(const Module& module) {
  std::vector<const Block*> kinds{&module.entry};
  for (const Block& kind : module.distinct_layers) kinds.push_back(&kind);
  kinds.push_back(&module.exit);
  return kinds;
}

Result<Module> with_strategy(const Module& module, const BlockEntries& blocks, int64_t tp) {
  std::vector<std::string> known;
  for (const Block* kind : kinds_of_blocks(module)) known.push_back(kind->name);
  for (const auto& [name, entries] : blocks) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    return Error{.field = printable(name),
                 .problem = "is no kind of block of the module",
                 .advice = fmt::format("Known are {}.{}", joined_or(known), did_you_mean(name, known))};
  }
  const AxisGrid grid = *AxisGrid::create({{"tp", tp}});
  Module made = module;
  std::optional<Error> wrong;
  each_block(made, [&](Block& block) {
    const auto entries = blocks.find(block.name);
    if (entries == blocks.end() || wrong) return;
    const size_t num_own = block.program->num_own;
    const Result<OperatorPins> pins = pins_of(entries->second, block.program->program, num_own, grid);
    if (!pins) {
      wrong = pins.error();
      wrong->field = block.name + "." + wrong->field;
      return;
    }
    std::vector<Choice> choices(block.program->choices.begin(),
                                block.program->choices.begin() + static_cast<std::ptrdiff_t>(num_own));
    for (size_t i = 0; i < num_own; ++i) choices[i] = pins->choices[i][0].value_or(choices[i]);
    block.program = std::make_shared<const BlockProgram>(with_choices(*block.program, std::move(choices)));
  });
  if (wrong) return *wrong;
  hold_weights(made);
  return made;
}

BlockEntries entries_of(const Module& module, const Module& usual) {
  BlockEntries blocks;
  const std::vector<const Block*> own = kinds_of_blocks(module), others = kinds_of_blocks(usual);
  WEFT_CHECK(own.size() == others.size(), "modules of two programs are compared");
  for (size_t k = 0; k < own.size(); ++k) {
    const BlockProgram& block = *own[k]->program;
    for (size_t i = 0; i < block.num_own; ++i) {
      if (block.choices[i] == others[k]->program->choices[i]) continue;
      const Operator& op = block.program.operators[i];
      blocks[own[k]->name].push_back({.pattern = op.name, .words = {{"tp", text_of(op.rule, block.choices[i])}}});
    }
  }
  return blocks;
}

}  // namespace weft
