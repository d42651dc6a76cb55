#include "weft/simulate/drawn_batch.h"

#include <algorithm>
#include <numeric>

namespace weft {
namespace {

/// Replicas that are played: the step ends with the slowest, and work tells it nearly always.
constexpr size_t kMostPlayed = 3;

/// Multiply-adds with weights: what tells heavy samples from light ones.
double work_of(const Plan& plan, const SampleLoad& sample) {
  double work = 0;
  for (const ModulePlan& module : plan.modules) {
    if (module.is_in_pipeline())
      work += num_tokens(sample.of(module.kind)) * static_cast<double>(num_parameters(*plan.model.find(module.kind)));
  }
  return work;
}

}  // namespace

DrawnBatch::DrawnBatch(const Plan& plan, const CostModel& model, uint64_t seed) : plan_(plan), model_(model) {
  SampleDrawer drawer(plan.model, plan.workload, seed);
  samples_.reserve(static_cast<size_t>(plan.workload.global_batch_samples));
  for (int64_t i = 0; i < plan.workload.global_batch_samples; ++i) samples_.push_back(drawer.draw());
  if (balances(Balance::kLlm)) deal();
}

bool DrawnBatch::balances(Balance which) const {
  return plan_.balance == which || plan_.balance == Balance::kBoth;
}

/// Heaviest first, forwards and backwards over the replicas in turn, so that each gets as much.
void DrawnBatch::deal() {
  std::vector<std::pair<double, size_t>> by_work;
  for (size_t i = 0; i < samples_.size(); ++i) by_work.emplace_back(-work_of(plan_, samples_[i]), i);
  std::sort(by_work.begin(), by_work.end());
  const auto replicas = static_cast<size_t>(plan_.llm().dp);
  const auto mbs = static_cast<size_t>(plan_.schedule.mbs);
  std::vector<SampleLoad> dealt(samples_.size());
  for (size_t i = 0; i < by_work.size(); ++i) {
    const size_t round = i / replicas;
    const size_t replica = round % 2 == 0 ? i % replicas : replicas - 1 - i % replicas;
    const size_t microbatch = round / mbs;
    dealt[(microbatch * replicas + replica) * mbs + round % mbs] = std::move(samples_[by_work[i].second]);
  }
  samples_ = std::move(dealt);
}

const SampleLoad& DrawnBatch::sample(int64_t microbatch, int64_t replica, int64_t index) const {
  return samples_[static_cast<size_t>((microbatch * plan_.llm().dp + replica) * plan_.schedule.mbs + index)];
}

Segments DrawnBatch::joined(int64_t first, int64_t count, ModuleKind kind) const {
  Segments all;
  const int64_t end = std::min(first + count, static_cast<int64_t>(samples_.size()));
  for (int64_t i = first; i < end; ++i) {
    const Segments& segments = samples_[static_cast<size_t>(i)].of(kind);
    all.insert(all.end(), segments.begin(), segments.end());
  }
  return all;
}

std::vector<int64_t> DrawnBatch::slowest_replicas() const {
  std::vector<std::pair<double, int64_t>> by_work;
  for (int64_t replica = 0; replica < plan_.llm().dp; ++replica) {
    double work = 0;
    for (int64_t microbatch = 0; microbatch < plan_.schedule.microbatches; ++microbatch) {
      for (int64_t i = 0; i < plan_.schedule.mbs; ++i) work += work_of(plan_, sample(microbatch, replica, i));
    }
    by_work.emplace_back(-work, replica);
  }
  const size_t count = std::min(kMostPlayed, by_work.size());
  std::partial_sort(by_work.begin(), by_work.begin() + static_cast<int64_t>(count), by_work.end());
  std::vector<int64_t> slowest;
  for (size_t i = 0; i < count; ++i) slowest.push_back(by_work[i].second);
  return slowest;
}

void DrawnBatch::apply(int64_t replica, const Schedule& schedule, const PlanCosts& mean, PipelineCosts& times) const {
  const auto microbatches = static_cast<int32_t>(plan_.schedule.microbatches);
  const size_t num_stages = mean.stages.size();
  const size_t num_cells = num_stages * static_cast<size_t>(microbatches);
  std::vector<double> forward(num_cells), input(num_cells), weight(num_cells), latency(num_cells), busy(num_cells),
      back_latency(num_cells), back_busy(num_cells);
  std::vector<ModuleCosts> own(plan_.modules.size());
  ModuleCostsOf modules = mean.modules;
  std::vector<StageCost> stages;
  for (int32_t microbatch = 0; microbatch < microbatches; ++microbatch) {
    const int64_t first = (microbatch * plan_.llm().dp + replica) * plan_.schedule.mbs;
    for (size_t m = 0; m < plan_.modules.size(); ++m) {
      if (!plan_.modules[m].is_in_pipeline()) continue;
      own[m] = model_.module_costs(plan_, plan_.modules[m], joined(first, plan_.schedule.mbs, plan_.modules[m].kind));
      modules[m] = &own[m];
    }
    price_stages(plan_, mean.parts, modules, stages);
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
  for (size_t e = 0; e < mean.encoders.size(); ++e)
    apply_encoder(mean.encoders[e], schedule.encoders[e], times.encoders[e]);
}

/// What the encoder's busiest data-parallel rank takes of a macro batch; with balancing all take the same.
Segments DrawnBatch::macro_load(const ModulePlan& encoder, int32_t macro) const {
  const int64_t per_rank = encoder.mbs_scale * plan_.schedule.mbs;
  const int64_t first = macro * per_rank * encoder.dp;
  if (balances(Balance::kEncoder)) {
    Segments all = joined(first, per_rank * encoder.dp, encoder.kind);
    for (Segment& segment : all) segment.count /= static_cast<double>(encoder.dp);
    return all;
  }
  Segments heaviest;
  for (int64_t rank = 0; rank < encoder.dp; ++rank) {
    Segments load = joined(first + rank * per_rank, per_rank, encoder.kind);
    if (num_tokens(load) > num_tokens(heaviest)) heaviest = std::move(load);
  }
  return heaviest;
}

void DrawnBatch::apply_encoder(const PlanCosts::Encoder& mean, const EncoderRows& rows, EncoderCosts& times) const {
  const ModulePlan& encoder = plan_.modules[static_cast<size_t>(mean.module)];
  const auto num_groups = static_cast<size_t>(rows.num_groups());
  const auto num_macros = static_cast<size_t>(rows.num_macro_batches);
  std::vector<double> forward(num_groups * num_macros), backward(num_groups * num_macros);
  std::vector<StageCost> stages;
  for (size_t macro = 0; macro < num_macros; ++macro) {
    const ModuleCosts costs = model_.module_costs(plan_, encoder, macro_load(encoder, static_cast<int32_t>(macro)));
    price_encoder(plan_, mean.module, costs, stages);
    for (size_t group = 0; group < num_groups; ++group) {
      const StageCost& stage = stages[group % static_cast<size_t>(rows.num_stages)];
      forward[group * num_macros + macro] = stage.forward_ms();
      backward[group * num_macros + macro] = stage.backward_input_ms() + stage.backward_weight_ms();
    }
  }
  times.forward_ms = CostTable(rows.num_groups(), rows.num_macro_batches, std::move(forward));
  times.backward_ms = CostTable(rows.num_groups(), rows.num_macro_batches, std::move(backward));
}

}  // namespace weft
