#include "weft/plan/module_strategy.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/plan/plan.h"
#include "weft/program/program_blocks.h"

namespace weft {
namespace {

/// Of blocks: each is looked up by its name. Models have a few.
constexpr size_t kMostKinds = 4096;

std::string text_of(const std::vector<Axis>& axes) {
  std::string text;
  for (const Axis& axis : axes)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", printable(axis.name), axis.size);
  return text;
}

/// Strategies divide operators over one axis; others are the plan's.
std::optional<Error> find_wrong_mesh(const ModulePlan& module) {
  const std::vector<Axis>& mesh = module.strategy.mesh;
  if (mesh.empty()) return std::nullopt;
  const bool is_good = std::all_of(mesh.begin(), mesh.end(),
                                   [&](const Axis& axis) { return axis.size == (axis.name == "tp" ? module.tp : 1); });
  if (is_good) return std::nullopt;
  return Error{
      .field = "mesh",
      .problem = fmt::format("is {}, but the module has tp {}, and a strategy says what happens on that axis alone",
                             text_of(mesh), module.tp),
      .advice = fmt::format("Find one with '--mesh tp={}', or give the module the strategy's degree.", module.tp)};
}

/// Of layers whose rows are shared out already, over context-parallel ranks.
std::optional<Error> find_cut_attention(const ModulePlan& module, const Module& spec) {
  for (const Block& layer : spec.distinct_layers) {
    if (module.cp == 1 || !layer.program || !layer.program->is_layer()) continue;
    const BlockProgram& block = *layer.program;
    const auto op = attention_of_some_rows(block, module.sequence_parallel);
    if (!op) continue;
    const Operator& attention = block.program.operators[*op];
    const Choice choice = (module.sequence_parallel ? block.divided : block.choices)[*op];
    return Error{
        .field = fmt::format("blocks.{}.{}", layer.name, attention.name),
        .problem = fmt::format("is '{}', but cp is {}, and attention has all rows of its context-parallel rank on "
                               "every tensor-parallel rank that has heads",
                               text_of(attention.rule, choice), module.cp),
        .advice =
            "Divide its heads ('cut k'), have all ranks do it ('same'), or use cp 1. Other operators may cut rows."};
  }
  return std::nullopt;
}

std::optional<Error> apply(const ModulePlan& module, Model& model) {
  const auto spec = std::find_if(model.modules.begin(), model.modules.end(),
                                 [&](const Module& each) { return each.kind == module.kind; });
  if (spec == model.modules.end()) return std::nullopt;  // the check says so
  if (auto error = find_wrong_mesh(module)) return error;
  if (module.tp == 1 && !module.strategy.blocks.empty())
    return Error{.problem = "is given, but tp is 1, so that there is nothing to divide", .advice = "Leave it out."};
  Result<Module> changed = with_strategy(*spec, module.strategy.blocks, module.tp);
  if (!changed) {
    Error error = changed.error();
    error.field = "blocks." + error.field;
    return error;
  }
  if (auto error = find_cut_attention(module, *changed)) return error;
  *spec = *std::move(changed);
  return std::nullopt;
}

}  // namespace

ModuleStrategy read_module_strategy(Fields fields) {
  ModuleStrategy strategy;
  strategy.mesh = read_axes(fields, "mesh");
  if (fields.has("blocks")) {
    Fields blocks = fields.object("blocks");
    const Json* raw = fields.raw("blocks");
    if (raw->is_object() && raw->size() > kMostKinds) {
      fields.complain("blocks", fmt::format("has {} kinds of blocks, at most {} are allowed", raw->size(), kMostKinds),
                      "Name kinds of the model's blocks alone; patterns reach several operators of one.");
    } else if (raw->is_object()) {
      for (const auto& [kind, entries] : raw->items()) strategy.blocks[kind] = read_entries(blocks, kind);
    }
    blocks.reject_unknown();
  }
  fields.raw("blocks");
  fields.reject_unknown();
  return strategy;
}

Json to_json(const ModuleStrategy& strategy) {
  Json json = Json::object();
  for (const Axis& axis : strategy.mesh) json["mesh"][axis.name] = axis.size;
  for (const auto& [kind, entries] : strategy.blocks) {
    Json& words = json["blocks"][kind] = Json::object();
    for (const StrategyEntry& entry : entries) {
      for (const auto& [axis, word] : entry.words) words[entry.pattern][axis.empty() ? "tp" : axis] = word;
    }
  }
  return json;
}

std::optional<Error> apply_strategies(Plan& plan) {
  for (const ModulePlan& module : plan.modules) {
    if (module.strategy.is_empty()) continue;
    if (auto error = apply(module, plan.model)) {
      const std::string path = fmt::format("modules.{}.strategy", name_of(module.kind));
      error->field = error->field.empty() ? path : path + "." + error->field;
      return error;
    }
  }
  return std::nullopt;
}

}  // namespace weft
