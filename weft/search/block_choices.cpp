#include "weft/search/block_choices.h"

#include "weft/meaning/program_exchanges.h"
#include "weft/program/program_blocks.h"
#include "weft/shard/shard_search.h"

namespace weft {
namespace {

/// Strategies of one kind of block besides the usual.
constexpr size_t kMostOfKind = 3;
/// Of what the fastest takes, the memory that slimmer ones may.
constexpr double kSlimmer = 0.8;

/// Rows come and leave as they lie between blocks, and weights lie as operators read them.
ShardLimits limits_of_block(const BlockProgram& block, const Program& program, bool divides_rows) {
  const RunStrategy ends = run_strategy(block, divides_rows);
  ShardLimits limits = ShardLimits::none(program, 1);
  for (size_t value = 0; value < program.values.size(); ++value) {
    const ProgramValue::Role role = program.values[value].role;
    if (role == ProgramValue::Role::kInput || role == ProgramValue::Role::kData)
      limits.inputs[value][0] = ends.sources[value][0];
    limits.stages[value][0] = {0, 0};
  }
  for (size_t op = block.num_own; op < program.operators.size(); ++op) limits.pins[op][0] = ends.operators[op][0];
  return limits;
}

/// A block that ends in an operator that makes rows whole, whatever its own do.
BlockProgram with_whole_end(const BlockProgram& block) {
  if (block.num_own < block.program.operators.size() || !block.carried_out) return block;
  // Any choice that leaves the last value in parts.
  std::vector<Choice> choices = block.choices;
  for (const Choice choice : choices_of(block.program.operators.back().rule)) {
    if (!states_of(block.program.operators.back().rule, choice).result.is_replicated()) choices.back() = choice;
  }
  return with_choices(block, std::move(choices));
}

}  // namespace

Result<std::vector<BlockChoices>> choices_of_block(const BlockProgram& given, const ShardSetting& setting,
                                                   int64_t samples, bool divides_rows) {
  std::vector<BlockChoices> found;
  if (given.num_own == 0) return found;
  const BlockProgram block = with_whole_end(given);
  const Program program = sized_program(block, samples);
  WEFT_TRY(const ShardProblem problem,
           ShardProblem::create(program, setting, limits_of_block(block, program, divides_rows)));
  ShardSearchOptions options;
  while (found.size() < kMostOfKind) {
    const Result<ShardSolution> solution = search_strategy(problem, options);
    if (!solution) break;  // nothing is slimmer
    BlockChoices choices;
    for (size_t op = 0; op < block.num_own; ++op)
      choices.push_back(problem.options(op)[solution->assignment.options[op].front()].choices[0]);
    found.push_back(std::move(choices));
    options.memory_bytes = kSlimmer * solution->totals.bytes();
  }
  return found;
}

BlockEntries entries_for(const Block& block, const BlockChoices& choices, bool divides_rows) {
  BlockEntries entries;
  const BlockChoices& usual = divides_rows ? block.program->divided : block.program->choices;
  for (size_t i = 0; i < choices.size(); ++i) {
    const Operator& op = block.program->program.operators[i];
    if (choices[i] != usual[i])
      entries[block.name].push_back({.pattern = op.name, .words = {{"tp", text_of(op.rule, choices[i])}}});
  }
  return entries;
}

}  // namespace weft
