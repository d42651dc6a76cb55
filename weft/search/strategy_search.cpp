#include "weft/search/strategy_search.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/meaning/plan_strategy.h"
#include "weft/program/program_blocks.h"
#include "weft/program/program_strategy.h"

namespace weft {
namespace {

/// A setting of the space becomes one value; the error names what does not allow it.
std::optional<Error> hold(const std::string& field, int64_t value, const char* why, Allowed& allowed) {
  if (!allowed.contains(value))
    return Error{.field = field,
                 .problem = fmt::format("does not allow {}, {}", value, why),
                 .advice = "Allow it, or leave the strategy out."};
  allowed = {.values = {value}};
  return std::nullopt;
}

constexpr const char* kDegree = "which the strategy is for";
constexpr const char* kWhole = "but the strategy's attention cuts rows, which context parallelism has shared out";

/// Degrees that a module's strategy allows.
struct HeldDegrees {
  int64_t tp = 1;
  bool needs_all_rows = false;  ///< cp is 1
};

/// Whether layers have attention that cuts rows, divided between blocks or not.
bool needs_all_rows(const Module& module) {
  return std::any_of(module.distinct_layers.begin(), module.distinct_layers.end(), [](const Block& layer) {
    return layer.program && layer.program->is_layer() &&
           (attention_of_some_rows(*layer.program, false) || attention_of_some_rows(*layer.program, true));
  });
}

/// Degrees of the pipeline.
std::optional<Error> hold_pipeline(const HeldDegrees& held, PlanSpace& space) {
  if (auto error = hold("llm.tp", held.tp, kDegree, space.tp)) return error;
  space.given.insert({"tp", "cp"});
  return held.needs_all_rows ? hold("llm.cp", 1, kWhole, space.cp) : std::nullopt;
}

/// Degrees of an encoder beside the pipeline.
std::optional<Error> hold_encoder(ModuleKind kind, const HeldDegrees& held, PlanSpace& space) {
  EncoderSpace& encoder = space.encoders[kind];
  const std::string name(name_of(kind));
  // In the pipeline it would have the llm's degrees.
  const bool has_all_rows = !held.needs_all_rows || space.cp == Allowed{.values = {1}};
  if (space.tp != Allowed{.values = {held.tp}} || !has_all_rows) encoder.allows_inline = false;
  if (auto error = hold(name + ".tp", held.tp, kDegree, encoder.tp)) return error;
  encoder.given.insert({"tp", "cp"});
  return held.needs_all_rows ? hold(name + ".cp", 1, kWhole, encoder.cp) : std::nullopt;
}

}  // namespace

PlanStrategy strategy_of(const Plan& plan) {
  PlanStrategy all;
  for (const ModulePlan& module : plan.modules) {
    if (module.strategy.is_empty()) continue;
    all.push_back({.module = module.kind,
                   .is_inline = module.placement == ModulePlacement::kInline,
                   .strategy = module.strategy});
  }
  return all;
}

void put_words(const PlanStrategy& strategy, Plan& plan) {
  for (ModulePlan& module : plan.modules) {
    module.strategy = {};
    for (const StrategyOf& each : strategy) {
      if (each.module == module.kind) module.strategy = each.strategy;
    }
  }
}

Result<Model> model_with(const PlanStrategy& strategy, Model model) {
  for (const StrategyOf& each : strategy) {
    for (Module& module : model.modules) {
      if (module.kind != each.module) continue;
      WEFT_TRY(module, with_strategy(module, each.strategy.blocks, tensor_degree(each.strategy)));
    }
  }
  return model;
}

Result<PlanProblem> problem_with(const PlanStrategy& strategy, PlanProblem problem) {
  const bool is_program = problem.model.numbers.program.has_value();
  WEFT_TRY(problem.model, model_with(strategy, std::move(problem.model)));
  // The pipeline's first: whether an encoder may lie in it depends on its degrees.
  for (const bool is_of_pipeline : {true, false}) {
    for (const StrategyOf& each : strategy) {
      if ((each.module == ModuleKind::kLlm || each.is_inline) != is_of_pipeline) continue;
      const Module* module = problem.model.find(each.module);
      const HeldDegrees held{.tp = tensor_degree(each.strategy),
                             .needs_all_rows = module != nullptr && needs_all_rows(*module)};
      if (auto error =
              is_of_pipeline ? hold_pipeline(held, problem.space) : hold_encoder(each.module, held, problem.space))
        return *std::move(error);
      if (each.is_inline) {
        // Beside the pipeline it would have a degree of its own.
        EncoderSpace& encoder = problem.space.encoders[each.module];
        encoder.allows_colocated = encoder.allows_disjoint = encoder.allows_partial = false;
      }
    }
  }
  if (!is_program && !strategy.empty()) {
    problem.space.recompute.allows_selective = false;
    if (problem.space.recompute.everywhere) problem.space.recompute.everywhere->attention = false;
  }
  return problem;
}

Result<PlanSearchResult> search_with(const PlanStrategy& strategy, const PlanProblem& problem,
                                     const PlanSearchOptions& options) {
  WEFT_TRY(const PlanProblem own, problem_with(strategy, problem));
  WEFT_TRY(PlanSearchResult result, search_plans(own.model, own.cluster, own.workload, own.space, options));
  for (FoundPlan& found : result.best) put_words(strategy, found.plan);
  if (result.chosen) put_words(strategy, result.chosen->plan);
  return result;
}

bool is_faster(const PlanSearchResult& found, double least_gain, const PlanSearchResult& result) {
  return !found.best.empty() && found.best.front().step_time_ms < result.best.front().step_time_ms * (1 - least_gain);
}

}  // namespace weft
