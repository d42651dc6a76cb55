// Plans of large vision-language and Omni models, run by thread ranks that compute a tiny model with as many layers and
// sleep, in every action, what the simulator prices it at for the samples that the rank was given: weft_sleeping_plans
// PLAN... Schedules, bridges and waits then show as on as many devices, however few processors there are. Batches are
// drawn from the plans' own workload. With several plans, how much longer each takes than the last one, measured and
// simulated.
#include <algorithm>
#include <cstdio>
#include <limits>

#include "bench/vl_steps.h"
#include "weft/cost/pipeline_costs.h"
#include "weft/meaning/plan_batch.h"
#include "weft/meaning/rank_groups.h"
#include "weft/plan/plan_json.h"
#include "weft/simulate/drawn_samples.h"
#include "weft/simulate/plan_simulator.h"

namespace {

using namespace weft;

constexpr int64_t kBatches = 3;
constexpr int kRounds = 2;
constexpr double kSleptMs = 8000;  ///< of the longest step: times are scaled to it

/// The plan for a model that computes next to nothing: where a stage has layers of a module, it keeps one.
Plan tiny_plan(const Plan& plan) {
  Plan tiny = plan;
  std::map<ModuleKind, int64_t> layers;
  for (ModulePlan& module : tiny.modules) {
    module.recompute.clear();
    for (std::vector<int64_t>& chunks : module.layers) {
      for (int64_t& count : chunks) {
        count = std::min<int64_t>(count, 1);
        layers[module.kind] += count;
      }
    }
  }
  const size_t hears = layers.contains(ModuleKind::kAudio) ? 1 : 0;
  WEFT_CHECK(layers.size() == 2 + hears && layers.contains(ModuleKind::kVision),
             "{} is neither a vision-language nor an Omni model", plan.model.name);
  constexpr int64_t kHeads = 16;
  tiny.model = small_vl({.width = 6 * kHeads,
                         .inner = 32,
                         .layers = layers[ModuleKind::kLlm],
                         .heads = kHeads,
                         .vision_width = 4 * kHeads,
                         .vision_layers = layers[ModuleKind::kVision],
                         .vision_heads = kHeads,
                         .audio_width = 4 * kHeads,
                         .audio_layers = hears ? layers[ModuleKind::kAudio] : 0,
                         .audio_heads = kHeads});
  tiny.precision = {.compute = Precision::kFp32, .master = Precision::kFp32, .reduce = Precision::kFp32};
  tiny.workload.precision = Precision::kFp32;
  return tiny;
}

Segments joined(const std::vector<SampleLoad>& samples, const std::vector<int64_t>& indices, ModuleKind kind) {
  Segments all;
  for (const int64_t index : indices) {
    const Segments& own = samples[static_cast<size_t>(index)].of(kind);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

/// Forward and backward of what a rank does, by (stage or group, microbatch or macro batch).
struct Passes {
  double forward_ms = 0, input_ms = 0, weight_ms = 0;
};
using PassTable = std::map<std::pair<int32_t, int32_t>, Passes>;

/// One batch of a plan: who takes what, and what that costs each data-parallel rank.
struct PricedBatch {
  BatchAssignment assignment;
  double simulated_ms = 0;
  std::vector<PassTable> llm;  ///< by data-parallel rank
  /// The same of an encoder beside the pipeline.
  struct Encoder {
    ModuleKind kind = ModuleKind::kVision;
    std::vector<PassTable> passes;
  };
  std::vector<Encoder> encoders;  ///< as actions number them
  std::vector<double> update_ms;  ///< by stage

  bool is_beside(ModuleKind kind) const {
    return std::any_of(encoders.begin(), encoders.end(), [&](const Encoder& encoder) { return encoder.kind == kind; });
  }
};

PricedBatch price_batch(const Plan& plan, const std::vector<SampleLoad>& samples) {
  PlanSimulator simulator = must(PlanSimulator::create(plan));
  const SampleWork work(plan, simulator.costs());
  const Schedule schedule = must(playable_schedule(plan));
  PricedBatch batch{.assignment = assign_batch(plan, work.of(samples)),
                    .simulated_ms = simulator.run_drawn(plan, schedule, work, samples)};
  const PlanCosts& mean = simulator.price(plan);
  for (const StageCost& stage : mean.stages) batch.update_ms.push_back(stage.update_ms);
  const auto passes_of = [](const StageCost& stage) {
    return Passes{stage.forward_ms(), stage.backward_input_ms(), stage.backward_weight_ms()};
  };
  for (const auto& turns : batch.assignment.llm) {
    PassTable& table = batch.llm.emplace_back();
    for (size_t turn = 0; turn < turns.size(); ++turn) {
      std::vector<ModuleCosts> own(plan.modules.size());
      ModuleCostsOf modules = mean.modules;
      for (size_t m = 0; m < plan.modules.size(); ++m) {
        if (!plan.modules[m].is_in_pipeline()) continue;
        own[m] =
            simulator.costs().module_costs(plan, plan.modules[m], joined(samples, turns[turn], plan.modules[m].kind));
        modules[m] = &own[m];
      }
      std::vector<StageCost> stages;
      price_stages(plan, mean.parts, modules, stages);
      for (size_t s = 0; s < stages.size(); ++s)
        table[{static_cast<int32_t>(s), static_cast<int32_t>(turn)}] = passes_of(stages[s]);
    }
  }
  for (const PlanCosts::Encoder& encoder : mean.encoders) {
    const ModulePlan& module = plan.modules[static_cast<size_t>(encoder.module)];
    WEFT_CHECK(encoder.stages.size() == 1, "encoders with pipelines of their own are not run here");
    PricedBatch::Encoder& own = batch.encoders.emplace_back();
    own.kind = module.kind;
    for (const auto& macros : batch.assignment.encoders.at(module.kind)) {
      PassTable& table = own.passes.emplace_back();
      for (size_t macro = 0; macro < macros.size(); ++macro) {
        const ModuleCosts costs =
            simulator.costs().module_costs(plan, module, joined(samples, macros[macro], module.kind));
        std::vector<StageCost> stages;
        price_encoder(plan, encoder.module, costs, stages);
        Passes passes = passes_of(stages.front());
        if (module.recompute_from_inputs) passes.input_ms += passes.forward_ms;
        table[{0, static_cast<int32_t>(macro)}] = passes;
      }
    }
  }
  return batch;
}

std::optional<int64_t> replica_of(const Plan& plan, ModuleKind kind, int64_t rank) {
  for (size_t m = 0; m < plan.modules.size(); ++m) {
    if (plan.modules[m].kind != kind) continue;
    const auto groups = rank_groups(plan, m, rank);
    if (groups) return groups->place.dp;
  }
  return {};
}

Pace pace_of(const Plan& plan, const PricedBatch& batch, int64_t rank, double scale) {
  const auto llm = replica_of(plan, ModuleKind::kLlm, rank);
  std::vector<std::optional<int64_t>> encoders;
  for (const PricedBatch::Encoder& encoder : batch.encoders) encoders.push_back(replica_of(plan, encoder.kind, rank));
  return [&batch, llm, encoders, scale](const Action& action) {
    const auto encoded = [&] {
      const auto index = static_cast<size_t>(action.stage);
      WEFT_CHECK(encoders[index].has_value(), "{} runs where its module is not", to_text(action));
      return batch.encoders[index].passes[static_cast<size_t>(*encoders[index])].at({0, action.microbatch});
    };
    const auto passes = [&](const std::vector<PassTable>& tables, const std::optional<int64_t>& replica,
                            int32_t place) {
      WEFT_CHECK(replica.has_value(), "{} runs where its module is not", to_text(action));
      return tables[static_cast<size_t>(*replica)].at({place, action.microbatch});
    };
    double ms = 0;
    switch (action.kind) {
      case ActionKind::kForward:
        ms = passes(batch.llm, llm, action.stage).forward_ms;
        break;
      case ActionKind::kBackward:
        ms = passes(batch.llm, llm, action.stage).input_ms + passes(batch.llm, llm, action.stage).weight_ms;
        break;
      case ActionKind::kBackwardInput:
        ms = passes(batch.llm, llm, action.stage).input_ms;
        break;
      case ActionKind::kBackwardWeight:
        ms = passes(batch.llm, llm, action.stage).weight_ms;
        break;
      case ActionKind::kEncodeForward:
        ms = encoded().forward_ms;
        break;
      case ActionKind::kEncodeBackward:
        ms = encoded().input_ms + encoded().weight_ms;
        break;
      case ActionKind::kUpdate:
        ms = batch.update_ms[static_cast<size_t>(action.stage)];
        break;
      default:
        break;
    }
    return scale * ms;
  };
}

struct Compared {
  double measured_ms = 0;
  double simulated_ms = 0;
};

/// The mean over the batches of the fastest of their steps, as if it had not been scaled.
Compared run(const Plan& plan, double scale, const std::vector<PricedBatch>& batches) {
  const Plan tiny = tiny_plan(plan);
  const std::vector<Violation> violations = check_plan(tiny);
  WEFT_CHECK(violations.empty(), "{}: {}", violations.front().field, violations.front().message);
  const bool hears = plan.model.find(ModuleKind::kAudio) != nullptr;
  const VlSample sample = hears ? VlSample{16, {4}, {12}} : VlSample{8, {4}};
  const std::vector<VlSample> samples(static_cast<size_t>(plan.workload.global_batch_samples), sample);
  std::vector<double> fastest(batches.size(), std::numeric_limits<double>::infinity());
  const auto error = run_ranks({.size = plan.world_size}, [&](World& world) {
    at::set_num_threads(1);
    const PricedBatch* current = &batches.front();
    std::vector<Pace> paces;
    for (const PricedBatch& batch : batches) paces.push_back(pace_of(plan, batch, world.rank(), scale));
    TrainingSettings settings{.seed = 1};
    settings.pace = [&](const Action& action) { return paces[static_cast<size_t>(current - batches.data())](action); };
    const auto rank = must(TrainingRank::create(world, tiny, settings));
    for (int round = 0; round <= kRounds; ++round) {
      for (size_t b = 0; b < batches.size(); ++b) {
        current = &batches[b];
        const StepBatch batch = vl_step_batch(*rank, samples, batches[b].assignment,
                                              /*keeps_images=*/!batches[b].is_beside(ModuleKind::kVision),
                                              /*keeps_sound=*/!batches[b].is_beside(ModuleKind::kAudio));
        world.all().barrier().wait();
        const double start = now_ms();
        rank->step(batch, std::ssize(samples) * sample.tokens, 1e-3);
        world.all().barrier().wait();
        if (world.rank() == 0 && round > 0) fastest[b] = std::min(fastest[b], now_ms() - start);
      }
    }
  });
  WEFT_CHECK(!error, "{}", error->message());
  Compared compared;
  for (size_t b = 0; b < batches.size(); ++b) {
    compared.measured_ms += fastest[b] / scale / static_cast<double>(batches.size());
    compared.simulated_ms += batches[b].simulated_ms / static_cast<double>(batches.size());
  }
  return compared;
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<Plan> plans;
  for (int i = 1; i < count; ++i) plans.push_back(must(read_plan_file(arguments[i])));
  if (plans.empty()) {
    fmt::print(stderr, "usage: weft_sleeping_plans PLAN...\n");
    return 2;
  }
  std::vector<std::vector<PricedBatch>> batches;
  double longest_ms = 0;
  for (const Plan& plan : plans) {
    DrawnSamples samples(plan);
    std::vector<PricedBatch>& own = batches.emplace_back();
    for (int64_t b = 0; b < kBatches; ++b) {
      own.push_back(price_batch(plan, samples.batch(b)));
      longest_ms = std::max(longest_ms, own.back().simulated_ms);
    }
  }
  const double scale = std::min(1.0, kSleptMs / longest_ms);
  std::vector<Compared> all;
  for (size_t i = 0; i < plans.size(); ++i) {
    all.push_back(run(plans[i], scale, batches[i]));
    fmt::print("{}: {} ranks, measured {:.1f} ms a step, simulated {:.1f} ({:+.1f} %)\n", arguments[i + 1],
               plans[i].world_size, all[i].measured_ms, all[i].simulated_ms,
               100 * (all[i].simulated_ms / all[i].measured_ms - 1));
    std::fflush(stdout);
  }
  for (size_t i = 0; i + 1 < plans.size(); ++i) {
    fmt::print("{} takes longer than {} by {:.1f} % measured, {:.1f} % simulated\n", arguments[i + 1],
               arguments[plans.size()], 100 * (all[i].measured_ms / all.back().measured_ms - 1),
               100 * (all[i].simulated_ms / all.back().simulated_ms - 1));
  }
  return 0;
}
