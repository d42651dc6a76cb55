#include "weft/simulate/drawn_batch.h"

#include <algorithm>
#include <map>

#include "weft/meaning/plan_batch.h"

namespace weft {
namespace {

/// Replicas that are played: the step ends with the slowest, and what samples cost tells it nearly always.
constexpr size_t kMostPlayed = 3;

/// Loads that were met before: where few lengths occur, most microbatches are like others, and pricing takes long.
class MetLoads {
 public:
  /// The first place with these loads, by module; `place` itself where they are new.
  size_t first_with(const std::vector<Segments>& loads, size_t place) {
    std::vector<double> key;
    for (const Segments& load : loads) {
      key.push_back(static_cast<double>(load.size()));
      for (const Segment& segment : load) key.insert(key.end(), {segment.length, segment.count});
    }
    return places_.try_emplace(std::move(key), place).first->second;
  }

 private:
  std::map<std::vector<double>, size_t> places_;
};

}  // namespace

BatchCosts SampleWork::of(const std::vector<SampleLoad>& samples) const {
  BatchCosts costs;
  costs.llm.reserve(samples.size());
  for (const SampleLoad& sample : samples) costs.llm.push_back(costs_.llm_ms(sample));
  for (const ModulePlan& module : plan_.modules) {
    if (module.is_in_pipeline()) continue;
    std::vector<double>& own = costs.encoders[module.kind];
    own.reserve(samples.size());
    for (const SampleLoad& sample : samples) own.push_back(costs_.encoder_ms(module.kind, sample));
  }
  return costs;
}

DrawnBatch::DrawnBatch(const Plan& plan, const CostModel& model, const SampleWork& work,
                       const std::vector<SampleLoad>& samples)
    : plan_(plan),
      model_(model),
      samples_(samples),
      costs_(work.of(samples)),
      assignment_(assign_batch(plan, costs_)) {}

Segments DrawnBatch::joined(const std::vector<int64_t>& samples, ModuleKind kind) const {
  Segments all;
  for (const int64_t sample : samples) {
    const Segments& segments = samples_[static_cast<size_t>(sample)].of(kind);
    all.insert(all.end(), segments.begin(), segments.end());
  }
  return all;
}

double DrawnBatch::sum_of(const std::vector<int64_t>& samples, const std::vector<double>& costs) {
  double sum = 0;
  for (const int64_t sample : samples) sum += costs[static_cast<size_t>(sample)];
  return sum;
}

std::vector<DrawnBatch::Turns> DrawnBatch::slowest() const {
  const BatchAssignment::Shares& replicas = assignment_.llm;
  if (balanced_modules(plan_).ranks_in_lockstep) {
    Turns longest = replicas.front();
    for (size_t turn = 0; turn < longest.size(); ++turn) {
      double most_ms = -1;
      for (const Turns& own : replicas) {
        const double ms = sum_of(own[turn], costs_.llm);
        if (ms <= most_ms) continue;
        most_ms = ms;
        longest[turn] = own[turn];
      }
    }
    return {std::move(longest)};
  }
  std::vector<std::pair<double, size_t>> by_cost;
  for (size_t replica = 0; replica < replicas.size(); ++replica) {
    double ms = 0;
    for (const std::vector<int64_t>& microbatch : replicas[replica]) ms += sum_of(microbatch, costs_.llm);
    by_cost.emplace_back(-ms, replica);
  }
  const size_t count = std::min(kMostPlayed, by_cost.size());
  std::partial_sort(by_cost.begin(), by_cost.begin() + static_cast<int64_t>(count), by_cost.end());
  std::vector<Turns> slowest;
  for (size_t i = 0; i < count; ++i) slowest.push_back(replicas[by_cost[i].second]);
  return slowest;
}

std::vector<DrawnBatch::Turns> DrawnBatch::replicas() const {
  if (!balanced_modules(plan_).ranks_in_lockstep) return assignment_.llm;
  return std::vector<Turns>(assignment_.llm.size(), slowest().front());
}

void DrawnBatch::apply(const Turns& turns, const Schedule& schedule, const PlanCosts& mean,
                       PipelineCosts& times) const {
  const auto microbatches = static_cast<int32_t>(plan_.schedule.microbatches);
  const size_t num_stages = mean.stages.size();
  const size_t num_cells = num_stages * static_cast<size_t>(microbatches);
  std::vector<double> forward(num_cells), input(num_cells), weight(num_cells), latency(num_cells), busy(num_cells),
      back_latency(num_cells), back_busy(num_cells);
  std::vector<ModuleCosts> own(plan_.modules.size());
  ModuleCostsOf modules = mean.modules;
  for (size_t m = 0; m < plan_.modules.size(); ++m) {
    if (!plan_.modules[m].is_in_pipeline()) continue;
    own[m] = *mean.modules[m];
    modules[m] = &own[m];
  }
  std::vector<StageCost> stages;
  MetLoads met;
  std::vector<Segments> loads(plan_.modules.size()), priced(plan_.modules.size());
  for (int32_t microbatch = 0; microbatch < microbatches; ++microbatch) {
    const std::vector<int64_t>& samples = turns[static_cast<size_t>(microbatch)];
    for (size_t m = 0; m < plan_.modules.size(); ++m) {
      if (plan_.modules[m].is_in_pipeline()) loads[m] = joined(samples, plan_.modules[m].kind);
    }
    const size_t like = met.first_with(loads, static_cast<size_t>(microbatch));
    if (like != static_cast<size_t>(microbatch)) {
      for (auto* values : {&forward, &input, &weight, &latency, &busy, &back_latency, &back_busy}) {
        for (size_t row = 0; row < num_cells; row += static_cast<size_t>(microbatches))
          (*values)[row + static_cast<size_t>(microbatch)] = (*values)[row + like];
      }
      continue;
    }
    for (size_t m = 0; m < plan_.modules.size(); ++m) {
      // Sequences of one length are the same load in every microbatch, whatever its pictures.
      if (!plan_.modules[m].is_in_pipeline() || (microbatch > 0 && loads[m] == priced[m])) continue;
      model_.price_load(plan_, plan_.modules[m], loads[m], own[m]);
      priced[m] = loads[m];
    }
    price_stages(plan_, mean.parts, modules, stages);
    share_with_bridges(plan_, mean.parts, *modules.back(), mean.bridges, stages);
    for (size_t s = 0; s < num_stages; ++s) {
      const size_t cell = s * static_cast<size_t>(microbatches) + static_cast<size_t>(microbatch);
      const StageCost& before = stages[s == 0 ? 0 : s - 1];
      forward[cell] = stages[s].forward_ms();
      input[cell] = stages[s].backward_input_ms();
      weight[cell] = stages[s].backward_weight_ms();
      latency[cell] = stages[s].transfer_ms;
      busy[cell] = stages[s].transfer_busy_ms;
      back_latency[cell] = before.transfer_ms;
      back_busy[cell] = before.transfer_busy_ms;
    }
  }
  const auto table = [&](std::vector<double> values) {
    return CostTable(static_cast<int32_t>(num_stages), microbatches, std::move(values));
  };
  times.forward_ms = table(std::move(forward));
  times.backward_input_ms = table(std::move(input));
  times.backward_weight_ms = table(std::move(weight));
  times.p2p_ms = table(std::move(latency));
  times.p2p_busy_ms = table(std::move(busy));
  times.gradient_p2p_ms = table(std::move(back_latency));
  times.gradient_p2p_busy_ms = table(std::move(back_busy));
  for (size_t e = 0; e < mean.encoders.size(); ++e) apply_encoder(mean, e, schedule.encoders[e], times.encoders[e]);
}

Segments DrawnBatch::macro_load(const ModulePlan& encoder, int32_t macro) const {
  const std::vector<double>& costs = costs_.encoders.at(encoder.kind);
  const std::vector<int64_t>* busiest = nullptr;
  double most_ms = -1;
  for (const auto& macros : assignment_.encoders.at(encoder.kind)) {
    const std::vector<int64_t>& samples = macros[static_cast<size_t>(macro)];
    const double ms = sum_of(samples, costs);
    if (ms <= most_ms) continue;
    most_ms = ms;
    busiest = &samples;
  }
  return joined(*busiest, encoder.kind);
}

void DrawnBatch::apply_encoder(const PlanCosts& mean, size_t index, const ScheduledEncoder& rows,
                               EncoderCosts& times) const {
  const int32_t module = mean.encoders[index].module;
  const ModulePlan& encoder = plan_.modules[static_cast<size_t>(module)];
  ModuleCosts costs = *mean.modules[static_cast<size_t>(module)];
  const auto num_groups = static_cast<size_t>(rows.num_groups());
  const auto num_macros = static_cast<size_t>(rows.num_macro_batches);
  const size_t num_cells = num_groups * num_macros;
  std::vector<double> forward(num_cells), backward(num_cells), busy(num_cells), latency(num_cells);
  std::vector<StageCost> stages;
  MetLoads met;
  for (size_t macro = 0; macro < num_macros; ++macro) {
    const std::vector<Segments> load = {macro_load(encoder, static_cast<int32_t>(macro))};
    const size_t like = met.first_with(load, macro);
    if (like != macro) {
      for (auto* values : {&forward, &backward, &busy, &latency}) {
        for (size_t row = 0; row < num_cells; row += num_macros) (*values)[row + macro] = (*values)[row + like];
      }
      continue;
    }
    model_.price_load(plan_, encoder, load.front(), costs);
    price_encoder(plan_, module, costs, stages);
    for (size_t group = 0; group < num_groups; ++group) {
      const StageCost& stage = stages[group % static_cast<size_t>(rows.num_stages)];
      const size_t cell = group * num_macros + macro;
      forward[cell] = stage.forward_ms();
      backward[cell] = stage.backward_input_ms() + stage.backward_weight_ms();
      busy[cell] = stage.transfer_busy_ms;
      latency[cell] = stage.transfer_ms;
    }
  }
  const auto table = [&](std::vector<double> values) {
    return CostTable(rows.num_groups(), rows.num_macro_batches, std::move(values));
  };
  times.forward_ms = table(std::move(forward));
  times.backward_ms = table(std::move(backward));
  times.p2p_busy_ms = table(std::move(busy));
  times.p2p_ms = table(std::move(latency));
}

}  // namespace weft
