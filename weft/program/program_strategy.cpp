#include "weft/program/program_strategy.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/base/pattern.h"
#include "weft/base/text.h"
#include "weft/program/layer_program.h"
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

/// Whether several weights lie in its one: queries, keys and values, or a gate and what it opens.
bool is_packed(const Op& op) {
  const auto* matmul = std::get_if<Matmul>(&op.shape);
  if (matmul == nullptr) return false;
  return matmul->packed > 1 || (matmul->kv_heads > 0 && op.out == Features::kHeads);
}

/// The weights of the operators that a block's program computes, as it holds them.
void describe_held(Block& block) {
  const Program& program = block.program->program;
  for (size_t i = 0; i < num_in_program(block); ++i) {
    if (block.ops[i].weights) block.ops[i].held.emplace();
  }
  const std::vector<std::optional<OpWeightPlace>> places = weight_places(program, block.ops);
  for (size_t value = 0; value < places.size(); ++value) {
    if (!places[value]) continue;
    const Op& op = block.ops[places[value]->op];
    HeldWeights& held = *block.ops[places[value]->op].held;
    if (is_packed(op)) held.shares = program.dims[program.values[value].dims.front()].num_units();
    const AxisState state = block.program->held[value];
    if (!state.is_shard()) continue;
    const ProgramDim& dim = program.dims[program.values[value].dims[state.dim]];
    (places[value]->is_bias ? held.bias : held.weight) =
        HeldCut{.dim = places[value]->is_transposed ? 1 - state.dim : state.dim, .unit = dim.unit};
  }
}

/// The weight of the entry that the exit reads, too.
std::optional<std::string> tied_name(const Module& module) {
  if (!module.exit.program) return std::nullopt;
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
    if (!block.program) return;
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

namespace {

/// Only layers of a family's module have strategies; its ends run as they are.
std::optional<Error> find_wrong_kind(const Module& module, const BlockEntries& blocks) {
  const bool is_program = module.entry.program != nullptr;
  std::vector<std::string> known;
  for (const Block* kind : kinds_of_blocks(module)) {
    const bool is_end = kind == &module.entry || kind == &module.exit;
    if (is_program || !is_end) known.push_back(kind->name);
  }
  for (const auto& [name, entries] : blocks) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const bool is_end = name == module.entry.name || name == module.exit.name || name == "entry" || name == "exit";
    return Error{.field = printable(name),
                 .problem = is_end && !is_program ? "is an end of the module, and only its layers have strategies"
                                                  : "is no kind of block of the module",
                 .advice = fmt::format("Known are {}.{}", joined_or(known), did_you_mean(name, known))};
  }
  return std::nullopt;
}

bool has_fitting(const Block& block, const std::string& pattern) {
  if (!block.program) return false;
  const std::vector<Operator>& ops = block.program->program.operators;
  return std::any_of(ops.begin(), ops.begin() + static_cast<std::ptrdiff_t>(block.program->num_own),
                     [&](const Operator& op) { return fits_pattern(op.name, pattern); });
}

/// An operator that another kind of block has.
std::optional<Error> find_elsewhere(const Module& module, const Block& block,
                                    const std::vector<StrategyEntry>& entries) {
  for (const StrategyEntry& entry : entries) {
    if (has_fitting(block, entry.pattern)) continue;
    for (const Block* other : kinds_of_blocks(module)) {
      if (!has_fitting(*other, entry.pattern)) continue;
      return Error{.field = printable(entry.pattern),
                   .problem = fmt::format("no operator of {} fits, but one of {} does", block.name, other->name),
                   .advice = fmt::format("Say it under {}.", in_quotes(other->name))};
    }
  }
  return std::nullopt;
}

/// A layer's program ends before its experts: no pattern may fit what comes behind it.
std::optional<Error> find_behind_program(const Block& block, const std::vector<StrategyEntry>& entries) {
  for (const StrategyEntry& entry : entries) {
    for (size_t i = num_in_program(block); i < block.ops.size(); ++i) {
      if (!fits_pattern(block.ops[i].name, entry.pattern)) continue;
      std::vector<std::string> known;
      for (size_t op = 0; op < block.program->num_own; ++op) known.push_back(block.program->program.operators[op].name);
      return Error{
          .field = printable(entry.pattern),
          .problem = fmt::format("fits {}, an operator of the half of the layer that has experts, which "
                                 "strategies do not divide",
                                 block.ops[i].name),
          .advice = fmt::format("Name {}: 'ep' and 'experts_over_tp' of the plan divide experts.", joined_or(known))};
    }
  }
  return std::nullopt;
}

/// BlockProgram::words of a layer with its usual choices and what is pinned.
std::string text_of_pins(const BlockProgram& usual, const OperatorPins& pins) {
  std::string words;
  for (size_t i = 0; i < usual.num_own; ++i) {
    const std::optional<Choice>& pin = pins.choices[i][0];
    if (!pin || (*pin == usual.choices[i] && *pin == usual.divided[i])) continue;
    const Operator& op = usual.program.operators[i];
    words += fmt::format("{}{} {}", words.empty() ? "" : ", ", op.name, text_of(op.rule, *pin));
  }
  return words.empty() ? "usual" : words;
}

}  // namespace

std::vector<const Block*> kinds_of_blocks(const Module& module) {
  std::vector<const Block*> kinds{&module.entry};
  for (const Block& kind : module.distinct_layers) kinds.push_back(&kind);
  kinds.push_back(&module.exit);
  return kinds;
}

Result<Module> with_strategy(const Module& module, const BlockEntries& blocks, int64_t tp) {
  if (auto error = find_wrong_kind(module, blocks)) return *std::move(error);
  const AxisGrid grid = *AxisGrid::create({{"tp", tp}});
  Module made = module;
  for (size_t kind = 0; kind < made.distinct_layers.size(); ++kind) {
    Block& layer = made.distinct_layers[kind];
    if (layer.program || !blocks.contains(layer.name)) continue;
    WEFT_TRY(BlockProgram program, layer_program(module, kind, tp));
    layer.program = std::make_shared<const BlockProgram>(std::move(program));
  }
  std::optional<Error> wrong;
  each_block(made, [&](Block& block) {
    const auto entries = blocks.find(block.name);
    if (entries == blocks.end() || wrong) return;
    const size_t num_own = block.program->num_own;
    const Result<OperatorPins> pins = pins_of(entries->second, block.program->program, num_own, grid);
    wrong = find_behind_program(block, entries->second);
    if (!pins && !wrong) wrong = find_elsewhere(made, block, entries->second);
    if (!pins && !wrong) wrong = pins.error();
    if (wrong) {
      wrong->field = block.name + "." + wrong->field;
      return;
    }
    BlockProgram own = *block.program;
    if (own.is_layer()) own.words = text_of_pins(own, *pins);
    for (size_t i = 0; i < num_own; ++i) {
      const std::optional<Choice>& pin = pins->choices[i][0];
      if (pin && !own.divided.empty()) own.divided[i] = *pin;
      if (pin) own.choices[i] = *pin;
    }
    own.choices.resize(num_own);
    std::vector<Choice> choices = own.choices;
    block.program = std::make_shared<const BlockProgram>(with_choices(std::move(own), std::move(choices)));
  });
  if (wrong) return *wrong;
  hold_weights(made);
  return made;
}

Block without_strategy(Block block) {
  if (!block.program || !block.program->is_layer()) return block;
  block.program = nullptr;
  for (Op& op : block.ops) op.held.reset();
  return block;
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
