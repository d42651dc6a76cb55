#include "weft/meaning/plan_strategy.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/program/program_blocks.h"
#include "weft/program/program_text.h"
#include "weft/spec/model_reader.h"

namespace weft {

Result<ModuleStrategy> module_strategy(const StrategyFile& file, const Model& model) {
  const auto wrong = [&](std::string field, std::string problem, std::string advice) {
    return Error{
        .source = file.source, .field = std::move(field), .problem = std::move(problem), .advice = std::move(advice)};
  };
  if (!model.numbers.program)
    return wrong("", fmt::format("is for a program, but {} is none", printable(model.name)),
                 "Give --model a program of your own; layers of a family have modules.llm.strategy of the plan.");
  const bool has_others = std::any_of(file.mesh.begin(), file.mesh.end(),
                                      [](const Axis& axis) { return axis.name != "tp" && axis.size > 1; });
  const auto tp = std::find_if(file.mesh.begin(), file.mesh.end(), [](const Axis& axis) { return axis.name == "tp"; });
  if (has_others || tp == file.mesh.end() || tp->size == 1)
    return wrong("mesh", "is not of the axis tp alone, on which operators of a plan are divided",
                 "Find a strategy with '--mesh tp=N': other axes are the plan's.");
  if (!file.layers.empty())
    return wrong("layers", "says that layers of a repeat differ, but layers of one kind do the same in a plan",
                 "Find a strategy without a memory limit, or write two repeats.");
  for (const StrategyEntry& entry : file.inputs) {
    for (const auto& [axis, word] : entry.words) {
      if (word != "same")
        return wrong("inputs." + printable(entry.pattern),
                     fmt::format("is {}, but what comes from elsewhere is whole on all ranks of tp", in_quotes(word)),
                     fmt::format("Find a strategy with 'inputs: {{\"*\": {{tp: same}}}}'."));
    }
  }
  const AxisGrid grid = *AxisGrid::create({{"tp", tp->size}});
  WEFT_TRY(const Program program, parse_program(model.config.at(kProgramKey).get<std::string>(), model.name));
  WEFT_TRY(const ShardLimits limits, limits_of(file, ShardMode::kSemi, program, grid));
  ModuleStrategy strategy{.mesh = {*tp}, .blocks = {}};
  for (const Block* kind : kinds_of_blocks(*model.find(ModuleKind::kLlm))) {
    const BlockProgram& block = *kind->program;
    for (size_t i = 0; i < block.num_own; ++i) {
      const Operator& op = block.program.operators[i];
      const std::optional<Choice> pin = limits.pins[*program.find_operator(op.name)][0];
      if (pin && *pin != block.choices[i])
        strategy.blocks[kind->name].push_back({.pattern = op.name, .words = {{"tp", text_of(op.rule, *pin)}}});
    }
  }
  return strategy;
}

int64_t tensor_degree(const ModuleStrategy& strategy) {
  const auto tp =
      std::find_if(strategy.mesh.begin(), strategy.mesh.end(), [](const Axis& axis) { return axis.name == "tp"; });
  return tp == strategy.mesh.end() ? 1 : tp->size;
}

Result<Model> usual_model(const Plan& plan) {
  const bool is_usual = std::all_of(plan.modules.begin(), plan.modules.end(),
                                    [](const ModulePlan& module) { return module.strategy.is_empty(); });
  if (is_usual) return plan.model;
  return read_model({.source = plan.model.name, .root = plan.model.config}, plan.model.name);
}

}  // namespace weft
