#include "weft/program/program_blocks.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/base/text.h"
#include "weft/program/program_uses.h"

namespace weft {
namespace {

using Role = ProgramValue::Role;

Error refused(const Operator& op, std::string problem, std::string advice) {
  return {.field = op.name, .problem = std::move(problem), .advice = std::move(advice)};
}

/// Whether every rank has all of a value.
bool is_whole(const BlockProgram& block, size_t value) {
  for (size_t i = 0; i < block.program.operators.size(); ++i) {
    const Operator& op = block.program.operators[i];
    if (op.result == value) return states_of(op.rule, block.choices[i]).result.is_replicated();
  }
  return true;
}

/// Rows are whole between blocks, and what a block gives is read by nobody else in it: where its own operators do
/// otherwise, one more reads it so.
void make_whole(BlockProgram& block) {
  if (!block.carried_out || block.num_own < block.program.operators.size()) return;
  const size_t made = *block.carried_out;
  if (!block.program.readers_of(made).empty() || !is_whole(block, made)) append_end(block);
}

}  // namespace

void append_end(BlockProgram& block) {
  Program& program = block.program;
  const size_t made = *block.carried_out;
  ProgramValue whole = program.values[made];
  whole.name += ".whole";
  std::string term;
  for (size_t place = 0; place < whole.dims.size(); ++place) term += fmt::format("{}d{}", place == 0 ? "" : " ", place);
  // A number has no dims.
  Rule rule{.dims = {}, .operands = {{}}, .result = {}, .linear = {{0}}};
  if (!whole.dims.empty()) rule = *parse_rule(term + " -> " + term);
  program.operators.push_back({.name = whole.name,
                               .kind = OperatorKind::kReshape,
                               .rule = std::move(rule),
                               .operands = {made},
                               .result = program.values.size()});
  block.choices.push_back(Choice::same());
  block.carried_out = program.values.size();
  program.values.push_back(std::move(whole));
}

namespace {

/// Operators begin ... end - 1 of a program by themselves.
class BlockCutter {
 public:
  BlockCutter(const Program& program, const ProgramFeatures& features) : program_(program), features_(features) {}

  BlockProgram cut(size_t begin, size_t end, std::optional<size_t> in, std::optional<size_t> out) const {
    BlockProgram block;
    block.program.name = program_.name;
    block.program.dims = program_.dims;
    std::map<size_t, size_t> places;
    const auto place_of = [&](size_t value) {
      const auto [found, is_new] = places.emplace(value, block.program.values.size());
      if (is_new) {
        ProgramValue own = program_.values[value];
        if (own.role == Role::kInput) own.role = Role::kData;
        block.program.values.push_back(std::move(own));
      }
      return found->second;
    };
    if (in) {
      block.carried_in = place_of(*in);
      // Only what comes with the data has no gradient to go back.
      if (program_.values[*in].role != Role::kData) block.program.values[*block.carried_in].role = Role::kInput;
    }
    for (size_t i = begin; i < end; ++i) {
      Operator op = program_.operators[i];
      for (size_t& operand : op.operands) operand = place_of(operand);
      op.result = place_of(op.result);
      block.program.operators.push_back(std::move(op));
      const auto& cut = features_.tensor_cuts[i];
      block.choices.push_back(cut ? Choice::cut(*cut) : Choice::same());
    }
    block.num_own = block.program.operators.size();
    if (out) block.carried_out = place_of(*out);
    make_whole(block);
    return block;
  }

 private:
  const Program& program_;
  const ProgramFeatures& features_;
};

/// Results that are made before an operator and read from it on, for every operator.
class Crossings {
 public:
  Crossings(const Program& program, const ProgramUses& uses)
      : program_(program), counts_(program.operators.size() + 1), sums_(program.operators.size() + 1) {
    last_reader_.reserve(program.operators.size());
    for (const Operator& op : program.operators) {
      const std::vector<size_t>& readers = uses.readers_of(op.result);
      last_reader_.push_back(readers.empty() ? 0 : readers.back());
    }
    // Each result crosses from the operator behind its own to its last reader: first the changes, then their sums.
    for (size_t made = 0; made < last_reader_.size(); ++made) {
      if (last_reader_[made] <= made) continue;
      ++counts_[made + 1], sums_[made + 1] += made;
      --counts_[last_reader_[made] + 1], sums_[last_reader_[made] + 1] -= made;
    }
    for (size_t at = 1; at < counts_.size(); ++at) counts_[at] += counts_[at - 1], sums_[at] += sums_[at - 1];
  }

  /// The value, where there is exactly one.
  std::optional<size_t> only_at(size_t at) const {
    if (counts_[at] != 1) return std::nullopt;
    return program_.operators[sums_[at]].result;
  }

  /// In the order in which they are made.
  std::vector<size_t> all_at(size_t at) const {
    std::vector<size_t> values;
    for (size_t made = 0; made < at; ++made) {
      if (last_reader_[made] >= at) values.push_back(program_.operators[made].result);
    }
    return values;
  }

 private:
  const Program& program_;
  std::vector<size_t> last_reader_;  ///< by operator, of its result; 0: nobody reads it
  std::vector<size_t> counts_;       ///< by operator: results that cross
  std::vector<size_t> sums_;         ///< by operator: the sum of the numbers of those that make them
};

/// Where a program without repeats ends its one layer: as late as possible, before an operator that reads one value of
/// those before it, whose features are whole if there is such a value.
size_t end_of_layer(const Program& program, const Crossings& crossings) {
  const ProgramFeatures features = features_of(program, {});
  size_t latest = 0;
  for (size_t at = program.operators.size(); at-- > 1;) {
    const std::optional<size_t> value = crossings.only_at(at);
    if (!value || program.values[*value].dims.empty()) continue;
    if (!features.is_cut(program.values[*value].dims.back())) return at;
    latest = std::max(latest, at);
  }
  return latest;
}

Result<ProgramBlocks> one_layer(const Program& program) {
  ProgramBlocks blocks;
  const Crossings crossings(program, ProgramUses(program));
  const size_t end = end_of_layer(program, crossings);
  if (end == 0) {
    return refused(program.operators.back(), "is the only operator, or reads all that the others make",
                   "A program that is trained ends in its loss, which reads one value.");
  }
  const size_t value = *crossings.only_at(end);
  blocks.features = features_of(program, {program.values[value].dims.back()});
  const BlockCutter cutter(program, blocks.features);
  blocks.entry = cutter.cut(0, 0, std::nullopt, std::nullopt);
  blocks.kinds.push_back(cutter.cut(0, end, std::nullopt, value));
  blocks.layers = {0};
  blocks.exit = cutter.cut(end, program.operators.size(), value, program.operators.back().result);
  return blocks;
}

}  // namespace

Result<ProgramBlocks> blocks_of(const Program& program) {
  if (program.operators.empty())
    return Error{.field = program.name, .problem = "has no operators", .advice = "Write at least a loss."};
  if (program.repeats.empty()) return one_layer(program);
  ProgramBlocks blocks{.marks_layers = true};
  const Repeat &first = program.repeats.front(), &last = program.repeats.back();
  std::vector<size_t> whole;
  for (const Repeat& repeat : program.repeats) {
    const std::vector<size_t>& dims = program.values[repeat.carried_in].dims;
    if (dims.size() < 2)
      return refused(program.operators[repeat.begin],
                     fmt::format("begins a repeat that carries {}, which has {} dims",
                                 in_quotes(program.values[repeat.carried_in].name), dims.size()),
                     "What goes from layer to layer has a dim of samples and one of features at least.");
    whole.push_back(dims.back());
    if (dims != program.values[first.carried_in].dims)
      return refused(program.operators[repeat.begin],
                     "begins a repeat whose rows have other dims than those of the first",
                     "Rows between layers have one shape.");
  }
  for (size_t i = 0; i + 1 < program.repeats.size(); ++i) {
    if (program.repeats[i].end != program.repeats[i + 1].begin)
      return refused(program.operators[program.repeats[i].end], "stands between two repeats",
                     "Put it into one of them, or behind the last: a model is an entry, layers and an exit.");
    if (program.repeats[i].carried_out != program.repeats[i + 1].carried_in)
      return refused(program.operators[program.repeats[i + 1].begin],
                     "begins a repeat with another value than the last one's",
                     "Carry on what the repeat before ends with.");
  }
  const ProgramUses uses(program);
  for (const size_t value : Crossings(program, uses).all_at(first.begin)) {
    if (value != first.carried_in)
      return refused(program.operators[uses.readers_of(value).back()],
                     fmt::format("reads {} from before the layers", in_quotes(program.values[value].name)),
                     "Only the value that a repeat carries goes from block to block.");
  }
  blocks.features = features_of(program, whole);
  const BlockCutter cutter(program, blocks.features);
  blocks.entry = cutter.cut(0, first.begin, std::nullopt, first.carried_in);
  for (const Repeat& repeat : program.repeats) {
    blocks.layers.insert(blocks.layers.end(), static_cast<size_t>(repeat.count), blocks.kinds.size());
    blocks.kinds.push_back(cutter.cut(repeat.begin, repeat.end, repeat.carried_in, repeat.carried_out));
    // Rows between layers have gradients, wherever the first ones come from.
    blocks.kinds.back().program.values[*blocks.kinds.back().carried_in].role = Role::kInput;
  }
  const bool has_exit = last.end < program.operators.size();
  blocks.exit = cutter.cut(last.end, program.operators.size(), last.carried_out,
                           has_exit ? std::optional(program.operators.back().result) : std::nullopt);
  return blocks;
}

size_t num_in_program(const Block& block) {
  return block.program ? block.ops.size() - block.program->num_behind : 0;
}

BlockProgram with_choices(BlockProgram block, std::vector<Choice> choices) {
  WEFT_CHECK(choices.size() == block.num_own, "{} choices for {} operators", choices.size(), block.num_own);
  choices.resize(block.program.operators.size());
  block.choices = std::move(choices);
  make_whole(block);
  return block;
}

std::optional<size_t> attention_of_some_rows(const BlockProgram& block, bool divides_rows) {
  const std::vector<Choice>& choices = divides_rows ? block.divided : block.choices;
  for (size_t op = 0; op < choices.size(); ++op) {
    const Operator& each = block.program.operators[op];
    if (each.kind == OperatorKind::kAttention && is_cut_inside(each.rule, choices[op])) return op;
  }
  return std::nullopt;
}

RunStrategy run_strategy(const BlockProgram& block, bool divides_rows) {
  const Program& program = block.program;
  WEFT_CHECK(!divides_rows || !block.divided.empty(), "rows between blocks of {} are divided", program.name);
  RunStrategy strategy{.operators = {}, .sources = std::vector<std::vector<AxisState>>(program.values.size())};
  for (const Choice choice : divides_rows ? block.divided : block.choices) strategy.operators.push_back({choice});
  for (size_t value = 0; value < program.values.size(); ++value) {
    if (program.values[value].role == Role::kResult) continue;
    strategy.sources[value] = {is_weight(program, value) ? block.held[value] : AxisState::replicated()};
  }
  if (divides_rows) {
    const std::vector<size_t>& dims = program.values[*block.carried_in].dims;
    const auto rows = std::find(dims.begin(), dims.end(), block.rows.sample_dim);
    strategy.sources[*block.carried_in] = {AxisState::shard(static_cast<size_t>(rows - dims.begin()))};
  }
  return strategy;
}

}  // namespace weft
