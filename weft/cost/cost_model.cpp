#include "weft/cost/cost_model.h"

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/cost/bridge_time.h"
#include "weft/meaning/busy_ranks.h"
#include "weft/meaning/macro_batch.h"

namespace weft {
namespace {

Segments scaled(const Segments& segments, double factor) {
  Segments result = segments;
  for (Segment& segment : result) segment.count *= factor;
  return result;
}

void count_by_share(double share, ModuleCosts& costs) {
  const auto count = [&](BlockTime& time) {
    for (PassTime* pass : {&time.forward, &time.backward_input, &time.backward_weight, &time.attention})
      *pass = share * *pass;
    time.hidden_input_tp_ms *= share;
    time.hidden_weight_tp_ms *= share;
  };
  count(costs.entry.time);
  for (BlockCost& block : costs.distinct_layers) count(block.time);
  count(costs.exit.time);
  count(costs.output);
  costs.boundary_bytes *= share;
  costs.output_bytes *= share;
}

Error lacking(const Plan& plan, std::string field, std::string problem, std::string advice) {
  return {.source = plan.cluster.name,
          .field = std::move(field),
          .problem = std::move(problem),
          .advice = std::move(advice)};
}

/// What the plan needs of its cluster.
std::optional<Error> find_lack(const Plan& plan) {
  const Cluster& cluster = plan.cluster;
  const Precision precision = plan.precision.compute;
  if (!cluster.device.matrix_tflops.contains(precision)) {
    std::vector<std::string> given;
    for (const auto& [has, ignored] : cluster.device.matrix_tflops) given.push_back(name_of(has));
    return lacking(plan, "device.matrix_tflops",
                   fmt::format("has no rate for {}, in which the plan computes; given are {}", name_of(precision),
                               joined_or(given)),
                   "Add the device's rate to the cluster, or plan in another precision.");
  }
  if (!plan.offload.is_empty() && cluster.host.bandwidth_gb_per_s == 0) {
    return lacking(plan, "links.host", "is missing, but the plan offloads to the host",
                   "Add its bandwidth_gb_per_s and latency_us to the cluster, or leave the plan's offload empty.");
  }
  return std::nullopt;
}

std::optional<Error> find_mismatch(const Plan& plan, const Profile& profile) {
  if (profile.device != plan.cluster.device.name) {
    return Error{.source = profile.source,
                 .field = "device",
                 .problem = fmt::format("is {}, but the cluster {} has {}", in_quotes(profile.device),
                                        plan.cluster.name, in_quotes(plan.cluster.device.name)),
                 .advice = "Use a profile of this device, or leave the profile out."};
  }
  const std::string hash = hash_of(plan.model.config);
  if (profile.model_hash != hash) {
    return Error{.source = profile.source,
                 .field = "model_hash",
                 .problem = fmt::format("is {} (of {}), but the plan's model {} has {}", in_quotes(profile.model_hash),
                                        in_quotes(profile.model), plan.model.name, hash),
                 .advice = "Use a profile of this model, or leave the profile out."};
  }
  if (profile.precision != plan.precision.compute) {
    return Error{.source = profile.source,
                 .field = "precision",
                 .problem = fmt::format("is {}, but the plan computes in {}", name_of(profile.precision),
                                        name_of(plan.precision.compute)),
                 .advice = "Use a profile in this precision, or leave the profile out."};
  }
  return std::nullopt;
}

}  // namespace

Result<CostModel> CostModel::without_times(const Plan& plan) {
  if (auto error = find_lack(plan)) return *error;
  CostModel model;
  WEFT_TRY(SampleLoad average, average_sample(plan.model, plan.workload));
  // Fails when nothing is left to train.
  WEFT_TRY([[maybe_unused]] const double flops, training_step_flops(plan.model, plan.workload, average));
  model.given_ = std::make_unique<Given>(Given{plan.model, plan.cluster, plan.workload, std::move(average), {}});
  Given& given = *model.given_;
  for (const Module& module : given.model.modules) {
    given.spreads[static_cast<size_t>(module.kind)] =
        token_spread(given.model, given.workload, given.average, module.kind);
  }
  return model;
}

Result<CostModel> CostModel::create(const Plan& plan, std::unique_ptr<BlockTimes> times) {
  WEFT_TRY(CostModel model, without_times(plan));
  model.times_ = std::move(times);
  return model;
}

Result<CostModel> CostModel::create(const Plan& plan, const Profile* profile) {
  WEFT_TRY(CostModel model, without_times(plan));
  const Given& given = *model.given_;
  if (profile == nullptr) {
    model.times_ = std::make_unique<AnalyticTimes>(given.cluster);
    return model;
  }
  if (auto error = find_mismatch(plan, *profile)) return *error;
  auto measured = std::make_unique<MeasuredTimes>(given.cluster, given.model, *profile, busy_ranks(plan));
  model.measured_ = measured.get();
  model.times_ = std::move(measured);
  return model;
}

Segments CostModel::high_load(ModuleKind kind, double samples) const {
  const TokenSpread& spread = given_->spreads[static_cast<size_t>(kind)];
  const Segments& average = given_->average.of(kind);
  const double tokens = high_tokens(spread, samples);
  // The llm's longest sample has as many sequences as all; how media of a heavy sample are cut is not known.
  if (kind != ModuleKind::kLlm) return scaled(average, tokens / spread.mean);
  Segments high = scaled(average, (tokens - spread.most) / spread.mean);
  const double parts = given_->workload.sequences_per_sample;
  high.push_back({spread.most / parts, parts});
  return high;
}

std::array<double, 3> CostModel::media_rows_per_token() const {
  const SampleLoad& sample = assumed_ ? assumed_->sample : given_->average;
  const double tokens = num_tokens(sample.of(ModuleKind::kLlm));
  std::array<double, 3> rows{};
  for (const Module& module : given_->model.modules) {
    if (module.kind != ModuleKind::kLlm && tokens > 0)
      rows[static_cast<size_t>(module.kind)] = num_tokens(sample.of(module.kind)) * module.output_rows.value() / tokens;
  }
  return rows;
}

CostKey CostModel::key_of(const Plan& plan, const ModulePlan& module, double samples) {
  const double taken = assumed_ ? samples * assumed_->factor(plan, module) : samples;
  return keys_.key_of(plan, module, samples, taken);
}

const ModuleCosts& CostModel::module_costs(const Plan& plan, const ModulePlan& module, double samples) {
  const CostKey key = key_of(plan, module, samples);
  if (const auto found = cache_.find(key); found != cache_.end()) return found->second;
  Placed& placed = placements_of(plan, module, key);
  if (!placed.has_all) place_copies_and_stages(plan.cluster, module, placed.placements);
  placed.has_all = true;
  ModuleCosts costs = blocks_of(plan, module, key, placed.placements);
  set_links(plan.cluster, module, placed.placements, costs);
  return cache_.emplace(key, std::move(costs)).first->second;
}

const ModuleCosts& CostModel::block_costs(const Plan& plan, const ModulePlan& module, double samples) {
  const CostKey key = key_of(plan, module, samples);
  return blocks_of(plan, module, key, placements_of(plan, module, key).placements);
}

const ModuleCosts& CostModel::blocks_of(const Plan& plan, const ModulePlan& module, const CostKey& key,
                                        const ModulePlacements& placements) {
  const BlocksKey blocks{
      .kind = module.kind, .setting = setting_of(plan, module, placements), .samples = key.samples, .taken = key.taken};
  if (const auto found = blocks_.find(blocks); found != blocks_.end()) return found->second;
  return blocks_.emplace(blocks, price_anew(plan, module, blocks)).first->second;
}

ModuleCosts CostModel::price_anew(const Plan& plan, const ModulePlan& module, const BlocksKey& key) const {
  const double share = assumed_ ? assumed_->share[static_cast<size_t>(module.kind)] : 1;
  const Segments segments = scaled((assumed_ ? assumed_->sample : given_->average).of(module.kind), key.taken / share);
  ModuleCosts costs = price_blocks(plan, module, key.setting, *times_, segments);
  if (module.kind == ModuleKind::kLlm) costs.media_rows_per_token = media_rows_per_token();
  if (share < 1) count_by_share(share, costs);
  // Memory has to do for the largest microbatches too.
  const TokenSpread& spread = given_->spreads[static_cast<size_t>(module.kind)];
  const double tokens = num_tokens(segments);
  if (tokens > 0 && spread.deviation > 0) {
    const Segments high = high_load(module.kind, key.samples);
    const Module& spec = *given_->model.find(module.kind);
    costs.entry.memory = times_->memory_of(spec, spec.entry, costs.setting, high);
    for (size_t i = 0; i < costs.distinct_layers.size(); ++i)
      costs.distinct_layers[i].memory = times_->memory_of(spec, spec.distinct_layers[i], costs.setting, high);
    costs.exit.memory = times_->memory_of(spec, spec.exit, costs.setting, high);
    costs.output_memory_bytes *= num_tokens(high) / tokens;
  }
  return costs;
}

ModuleCosts CostModel::module_costs(const Plan& plan, const ModulePlan& module, const Segments& segments) const {
  ModuleCosts costs = price_module(plan, module, place_module(plan.cluster, module), *times_, segments);
  if (module.kind == ModuleKind::kLlm) costs.media_rows_per_token = media_rows_per_token();
  return costs;
}

void CostModel::price_load(const Plan& plan, const ModulePlan& module, const Segments& segments,
                           ModuleCosts& costs) const {
  if (plan.offload.activations > 0) {
    costs = module_costs(plan, module, segments);
  } else {
    weft::price_load(plan, module, *times_, segments, costs);
  }
}

CostModel::Placed& CostModel::placements_of(const Plan& plan, const ModulePlan& module, const CostKey& key) {
  const CostKey where = key.of_placement();
  if (const auto found = placements_.find(where); found != placements_.end()) return found->second;
  return placements_.emplace(where, Placed{.placements = place_blocks(plan.cluster, module)}).first->second;
}

void CostModel::price(const Plan& plan, PlanCosts& costs) {
  list_stage_parts(plan, costs.parts);
  costs.modules.resize(plan.modules.size());
  for (size_t m = 0; m < plan.modules.size(); ++m) {
    const ModulePlan& module = plan.modules[m];
    costs.modules[m] = &module_costs(plan, module, static_cast<double>(samples_at_once(plan, module)));
  }
  price_stages(plan, costs.parts, costs.modules, costs.stages);
  price_encoders(plan, costs);
  share_with_bridges(plan, costs.parts, *costs.modules.back(), costs.bridges, costs.stages);
}

void CostModel::price_encoders(const Plan& plan, PlanCosts& costs_of_plan) {
  std::vector<PlanCosts::Encoder>& encoders = costs_of_plan.encoders;
  std::vector<BridgeTime>& bridges = costs_of_plan.bridges;
  size_t next = 0;
  bridges.clear();
  for (size_t m = 0; m < plan.modules.size(); ++m) {
    const ModulePlan& module = plan.modules[m];
    if (module.is_in_pipeline()) continue;
    const ModuleCosts& costs = module_costs(plan, module, static_cast<double>(samples_at_once(plan, module)));
    if (next == encoders.size()) encoders.emplace_back();
    PlanCosts::Encoder& encoder = encoders[next++];
    encoder.module = static_cast<int32_t>(m);
    price_encoder(plan, encoder.module, costs, encoder.stages);
    bridges.push_back(bridge_alone(plan, module, costs));
    encoder.output_bytes = costs.output_memory_bytes;
  }
  encoders.resize(next);
  if (next == 0) return;
  const ModulePlan& llm = plan.llm();
  const ModuleCosts& llm_costs = module_costs(plan, llm, static_cast<double>(samples_at_once(plan, llm)));
  for (size_t e = 0; e < next; ++e) encoders[e].bridge_ms = shared_bridge_ms(plan, llm_costs, bridges, e);
}

std::vector<std::string> CostModel::warnings() const {
  return measured_ == nullptr ? std::vector<std::string>{} : measured_->warnings();
}

std::vector<BlockSource> CostModel::sources() const {
  return measured_ == nullptr ? std::vector<BlockSource>{} : measured_->sources();
}

}  // namespace weft
