#include "weft/search/layer_strategies.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/base/clock.h"
#include "weft/base/divisors.h"
#include "weft/cost/apply_profile.h"
#include "weft/cost/block_setting.h"
#include "weft/cost/measured_times.h"
#include "weft/meaning/busy_ranks.h"
#include "weft/meaning/macro_batch.h"
#include "weft/program/program_blocks.h"
#include "weft/search/block_choices.h"
#include "weft/search/plan_pricer.h"

namespace weft {
namespace {

/// Of what layers take: where a strategy gains less, no plan is tried with it.
constexpr double kLeastLayerGain = 3e-3;
/// Of the time that the search took, what must be left: one plan on drawn batches can take as long.
constexpr double kLeastShareLeft = 0.2, kLeastTime_s = 0.02;
/// Of those that were found, the fastest.
constexpr size_t kMostPlans = 8;
/// What a strategy hardly ever gains: degrees whose layers alone take longer than the best plan by more are left out.
constexpr double kMostGain = 0.15;

/// A strategy of one kind of layer, and what all layers of the kind take by it in a microbatch.
struct KindOption {
  BlockEntries entries;
  double ms = 0;
};

/// One module of a plan and what its layers could do.
struct ModuleOptions {
  const ModulePlan* module = nullptr;
  double times_a_step = 0;  ///< that a rank goes through its part of the layers
  std::vector<double> usual_ms;
  std::vector<std::vector<KindOption>> by_kind;  ///< faster than the usual, fastest first

  bool has_any() const {
    return std::any_of(by_kind.begin(), by_kind.end(), [](const auto& options) { return !options.empty(); });
  }
};

class LayerOptions {
 public:
  /// Plan and profile must outlive it; the plan's cluster is as the profile says.
  LayerOptions(const Plan& plan, const Profile* profile, const SampleLoad& average)
      : plan_(plan), profile_(profile), average_(average) {}

  /// Without what layers could do instead.
  ModuleOptions usual(const ModulePlan& module) const {
    const double rounds = rounds_of(module);
    ModuleOptions made{.module = &module,
                       .times_a_step = rounds / static_cast<double>(module.pp),
                       .usual_ms = kinds_ms(*plan_.model.find(module.kind), setting_in_plan(module), load_of(module)),
                       .by_kind = {}};
    made.by_kind.resize(made.usual_ms.size());
    return made;
  }

  Result<ModuleOptions> of(const ModulePlan& module) const {
    const Module& usual_module = *plan_.model.find(module.kind);
    const Segments segments = load_of(module);
    const BlockSetting setting = setting_in_plan(module);
    ModuleOptions made = usual(module);
    if (num_tokens(segments) <= 0) return made;
    const ShardSetting shared{.cluster = plan_.cluster,
                              .links = AxisLinks::of_one({"tp", module.tp}, setting.tp_link),
                              .precision = setting.precision,
                              .attention = setting.attention,
                              .microbatches = static_cast<int64_t>(rounds_of(module)),
                              .segments = &segments,
                              .context = context_sharing(setting)};
    const int64_t rows = std::max<int64_t>(1, std::llround(num_tokens(segments) / static_cast<double>(module.cp)));
    for (size_t kind = 0; kind < made.usual_ms.size(); ++kind) {
      const std::string& name = usual_module.distinct_layers[kind].name;
      // As a program, a layer keeps rows that its own code gathers once more.
      std::vector<BlockEntries> tried(1);
      tried.front()[name];
      const Result<Module> as_program = with_strategy(usual_module, tried.front(), module.tp);
      if (!as_program) continue;  // experts, adapters
      const Block& block = as_program->distinct_layers[kind];
      WEFT_TRY(const auto offered, choices_of_block(*block.program, shared, rows, module.sequence_parallel));
      for (const BlockChoices& choices : offered) {
        BlockEntries entries = entries_for(block, choices, module.sequence_parallel);
        if (!entries.empty()) tried.push_back(std::move(entries));
      }
      for (BlockEntries& entries : tried) {
        WEFT_TRY(const Module changed, with_strategy(usual_module, entries, module.tp));
        const BlockProgram& made_block = *changed.distinct_layers[kind].program;
        if (module.cp > 1 && attention_of_some_rows(made_block, module.sequence_parallel)) continue;
        const double ms = kinds_ms(changed, setting, segments)[kind];
        if (ms < made.usual_ms[kind]) made.by_kind[kind].push_back({std::move(entries), ms});
      }
      std::stable_sort(made.by_kind[kind].begin(), made.by_kind[kind].end(),
                       [](const KindOption& a, const KindOption& b) { return a.ms < b.ms; });
    }
    return made;
  }

 private:
  /// Microbatches of its own that a rank of the module has in a step.
  double rounds_of(const ModulePlan& module) const {
    return module.is_in_pipeline() ? std::max(1.0, static_cast<double>(plan_.schedule.microbatches))
                                   : std::ceil(num_macro_batches(plan_, module));
  }

  Segments load_of(const ModulePlan& module) const {
    Segments segments = average_.of(module.kind);
    for (Segment& segment : segments) segment.count *= static_cast<double>(samples_at_once(plan_, module));
    return segments;
  }

  BlockSetting setting_in_plan(const ModulePlan& module) const {
    return setting_of(plan_, module, place_module(plan_.cluster, module));
  }

  /// What layers of every kind take in a microbatch, forward and back, as often as the module has them.
  std::vector<double> kinds_ms(const Module& module, const BlockSetting& setting, const Segments& segments) const {
    if (profile_ == nullptr) return kinds_ms(AnalyticTimes(plan_.cluster), module, setting, segments);
    Model model = plan_.model;
    for (Module& own : model.modules) {
      if (own.kind == module.kind) own = module;
    }
    const MeasuredTimes times(plan_.cluster, model, *profile_, busy_ranks(plan_));
    return kinds_ms(times, *model.find(module.kind), setting, segments);
  }

  static std::vector<double> kinds_ms(const BlockTimes& times, const Module& module, const BlockSetting& setting,
                                      const Segments& segments) {
    std::vector<double> all;
    for (size_t kind = 0; kind < module.distinct_layers.size(); ++kind) {
      const BlockTime time = times.time_of(module, module.distinct_layers[kind], setting, segments);
      const auto count = std::count(module.layers.begin(), module.layers.end(), kind);
      all.push_back(static_cast<double>(count) *
                    (time.forward.total_ms() + time.backward_input.total_ms() + time.backward_weight.total_ms()));
    }
    return all;
  }

  const Plan& plan_;
  const Profile* profile_;
  const SampleLoad& average_;
};

/// Of every kind of the chosen modules the option of that place, or the last that it has.
template <typename Chosen>
FasterLayers joined(const std::vector<ModuleOptions>& modules, size_t place, Chosen is_chosen) {
  FasterLayers made;
  double all_ms = 0, saved_ms = 0;
  for (const ModuleOptions& each : modules) {
    ModuleGain gain{.module = each.module->kind};
    ModuleStrategy strategy{.mesh = {{"tp", each.module->tp}}, .blocks = {}};
    for (size_t kind = 0; kind < each.usual_ms.size(); ++kind) {
      gain.usual_ms += each.usual_ms[kind];
      const std::vector<KindOption>& options = each.by_kind[kind];
      if (options.empty() || !is_chosen(each)) {
        gain.ms += each.usual_ms[kind];
        continue;
      }
      const KindOption& option = options[std::min(place, options.size() - 1)];
      gain.ms += option.ms;
      strategy.blocks.insert(option.entries.begin(), option.entries.end());
    }
    all_ms += each.times_a_step * gain.usual_ms;
    saved_ms += each.times_a_step * (gain.usual_ms - gain.ms);
    if (strategy.blocks.empty()) continue;
    made.gains.push_back(gain);
    made.strategy.push_back({.module = each.module->kind,
                             .is_inline = each.module->placement == ModulePlacement::kInline,
                             .strategy = std::move(strategy)});
  }
  made.gain = all_ms > 0 ? saved_ms / all_ms : 0;
  return made;
}

/// Only the encoder as it was found.
EncoderSpace around(const EncoderChoice& found, EncoderSpace space) {
  const auto is_at = [&](ModulePlacement placement) { return found.placement == placement; };
  const auto runs = [&](EncoderForm form) { return found.form == form; };
  space.allows_inline = is_at(ModulePlacement::kInline);
  space.allows_colocated = is_at(ModulePlacement::kColocated);
  space.allows_disjoint = is_at(ModulePlacement::kDisjoint);
  space.allows_partial = is_at(ModulePlacement::kPartial);
  space.allows_before = runs(EncoderForm::kBefore);
  space.allows_fill = runs(EncoderForm::kFill);
  space.allows_on_demand = runs(EncoderForm::kOnDemand);
  if (!found.is_inline()) space.tp = {.values = {found.tp}};
  space.mbs_scale = {.values = {found.mbs_scale}};
  space.mbs_parts = {.values = {found.mbs_parts}};
  if (found.ranks > 0) space.ranks = {.values = {found.ranks}};
  if (found.stages > 0) space.stages = {.values = {found.stages}};
  space.cp = {.values = {found.cp}};
  space.sequence_parallel = found.sequence_parallel;
  space.recompute_from_inputs = found.recompute_from_inputs;
  if (found.zero != kUsualZero) space.zero = {.values = {found.zero}, .at_least = 0};
  return space;
}

/// Only plans like the one that was found: its degrees, microbatches, schedule and encoders.
PlanSpace around(const FoundPlan& found, const Model& model, PlanSpace space) {
  const Candidate& candidate = found.candidate;
  const std::array<Allowed*, kDegreeNames.size()> allowed = space.all();
  for (size_t i = 0; i < kDegreeNames.size(); ++i) {
    *allowed[i] = {.values = {candidate.*kDegreeNames[i].value}};
    space.given.insert(kDegreeNames[i].name);
  }
  space.mbs = {.values = {candidate.mbs}};
  space.zero = {.values = {candidate.zero}, .at_least = 0};
  space.sequence_parallel = candidate.sequence_parallel;
  space.stages_are_neighbours = candidate.stages_are_neighbours;
  space.schedules = {candidate.schedule};
  space.given.insert({"mbs", "zero", "sequence_parallel", "schedule"});
  for (size_t e = 0; e + 1 < model.modules.size() && e < kMostEncoders; ++e) {
    EncoderSpace& encoder = space.encoders[model.modules[e].kind];
    encoder = around(candidate.encoders[e], encoder);
  }
  return space;
}

/// Tries strategies until the time is over.
class LayerImprover {
 public:
  LayerImprover(const PlanProblem& problem, const PlanSearchOptions& options, PlanSearchResult& result)
      : problem_(problem),
        options_(options),
        end_ms_(now_ms() + options.time_limit_s * 1e3),
        usual_(result),
        result_(result) {}

  void run() {
    for (size_t i = 0; i < std::min(kMostPlans, usual_.best.size()); ++i) try_on(usual_.best[i]);
    try_degrees(usual_.best.front());
    if (!gain_) return;
    gain_->num_tried = num_tried_;
    // Other plans were not tried with it.
    result_.is_optimal = false;
    result_.improved_by = 0;
    result_.bound_ms = std::min(usual_.bound_ms, result_.best.front().step_time_ms);
    gain_->usual = std::move(usual_);
  }

  std::optional<StrategyGain> gain() const { return gain_; }

 private:
  bool is_over() const { return (options_.stop != nullptr && options_.stop->load()) || now_ms() >= end_ms_; }
  /// A plan without a strategy is simpler, and may be slower by as much as others that are.
  double least_gain() const { return std::max(kLeastStrategyGain, options_.within); }

  PlanSearchOptions options_left() const {
    PlanSearchOptions how = options_;
    how.time_limit_s = (end_ms_ - now_ms()) / 1e3;
    if (result_.batches > 0) how.batches = result_.batches;
    how.limit_ms = result_.best.front().step_time_ms * (1 - least_gain());
    how.progress = {};
    return how;
  }

  void keep(const FasterLayers& layers) {
    gain_ = StrategyGain{.strategy = layers.strategy,
                         .usual_ms = usual_.best.front().step_time_ms,
                         .ms = result_.best.front().step_time_ms,
                         .modules = layers.gains};
  }

  /// As the search prices plans.
  Plan priced(Plan plan) const {
    plan.cluster = problem_.cluster;
    plan.cluster.device.memory_gib *= 1 - options_.memory_margin;
    if (options_.profile != nullptr) apply_profile(*options_.profile, plan);
    return plan;
  }

  void try_on(const FoundPlan& found) {
    if (is_over()) return;
    Plan plan = priced(found.plan);
    plan.model = problem_.model;
    const Result<std::vector<FasterLayers>> offered = faster_layers(plan, options_.profile);
    if (!offered) return;
    for (const FasterLayers& layers : *offered) {
      if (is_over()) return;
      ++num_tried_;
      const bool fits = take_same_plan(found, plan, layers);
      // Its own placement for what it holds and takes.
      if (is_over()) return;
      PlanProblem near = problem_;
      near.space = around(found, problem_.model, problem_.space);
      Result<PlanSearchResult> searched = search_with(layers.strategy, near, options_left());
      if (searched && take_over(*std::move(searched))) keep(layers);
      if (fits) return;  // what is slimmer is slower
    }
  }

  /// The plan itself with a strategy, all else as it is; whether it fits.
  bool take_same_plan(const FoundPlan& found, const Plan& usual, const FasterLayers& layers) {
    Plan plan = usual;
    Result<Model> model = model_with(layers.strategy, problem_.model);
    if (!model) return false;
    plan.model = *std::move(model);
    put_words(layers.strategy, plan);
    Result<PlanSimulator> simulator = PlanSimulator::create(plan, options_.profile);
    if (!simulator) return false;
    const Plan drawn = plan;
    DrawnSamples samples(drawn);
    PlanPricer pricer(*std::move(simulator), samples, result_.batches);
    const std::optional<PlanPrice> price = pricer.price(plan);
    if (!price) return false;
    if (price->step_ms >= result_.best.front().step_time_ms * (1 - least_gain())) return true;
    FoundPlan made = found;
    made.plan = std::move(plan);
    made.plan.cluster = problem_.cluster;
    made.step_time_ms = price->step_ms;
    made.steps_ms = price->steps_ms;
    made.bound_ms = std::min(made.bound_ms, made.step_time_ms);
    made.simplicity.lacks_export = true;
    made.ties.clear();
    ++result_.num_drawn;
    result_.chosen = made;
    put_in_front({std::move(made)});
    keep(layers);
    return true;
  }

  /// Plans of a search with a strategy, where its best is faster: whether it is.
  bool take_over(PlanSearchResult found) {
    result_.num_drawn += found.num_drawn;
    if (!is_faster(found, least_gain(), result_)) return false;
    result_.chosen = std::move(found.chosen);
    result_.is_beyond_space = found.is_beyond_space;
    put_in_front(std::move(found.best));
    return true;
  }

  /// Of the plans that were there those stay that are among the fastest.
  void put_in_front(std::vector<FoundPlan> plans) {
    std::vector<FoundPlan>& best = result_.best;
    best.insert(best.begin(), std::make_move_iterator(plans.begin()), std::make_move_iterator(plans.end()));
    std::stable_sort(best.begin(), best.end(),
                     [](const FoundPlan& a, const FoundPlan& b) { return a.step_time_ms < b.step_time_ms; });
    best.resize(std::min(best.size(), std::max<size_t>(1, options_.top)));
  }

  /// Whether layers of the llm alone, spread evenly, take longer than the best plan by more than a strategy gains.
  bool is_far(const Plan& plan) const {
    const Result<SampleLoad> average = average_sample(plan.model, plan.workload);
    if (!average) return true;
    const ModuleOptions llm = LayerOptions(plan, options_.profile, *average).usual(plan.llm());
    const double layers_ms = llm.times_a_step * std::accumulate(llm.usual_ms.begin(), llm.usual_ms.end(), 0.0);
    return (1 - kMostGain) * layers_ms > result_.best.front().step_time_ms;
  }

  /// Plans with other degrees may win with a strategy where they do not without one.
  void try_degrees(const FoundPlan& found) {
    std::vector<std::pair<FasterLayers, PlanProblem>> offered;
    for (const int64_t tp : divisors(problem_.cluster.devices_per_node)) {
      if (tp == 1 || !problem_.space.tp.contains(tp) || !problem_.space.cp.contains(1)) continue;
      for (const bool divides_rows : {true, false}) {
        if (problem_.space.sequence_parallel.value_or(divides_rows) != divides_rows) continue;
        if (is_over()) return;
        Candidate c;
        c.tp = tp;
        c.dp = problem_.cluster.num_devices() / tp;
        c.mbs = found.candidate.mbs;
        c.sequence_parallel = divides_rows;
        Plan plan = priced(plan_without_settings(problem_.model, problem_.cluster, found.plan.workload));
        fill_plan(c, plan);
        if (is_far(plan)) continue;
        const Result<std::vector<FasterLayers>> layers = faster_layers(plan, options_.profile, ModuleKind::kLlm);
        if (!layers || layers->empty()) continue;
        PlanProblem other = problem_;
        other.space.tp = {.values = {tp}};
        other.space.cp = {.values = {1}};
        other.space.sequence_parallel = divides_rows;
        offered.emplace_back(layers->front(), std::move(other));
      }
    }
    std::stable_sort(offered.begin(), offered.end(),
                     [](const auto& a, const auto& b) { return a.first.gain > b.first.gain; });
    for (const auto& [layers, problem] : offered) {
      if (is_over()) return;
      ++num_tried_;
      PlanSearchOptions how = options_left();
      how.improves = false;
      Result<PlanSearchResult> searched = search_with(layers.strategy, problem, how);
      if (!searched || !take_over(*std::move(searched))) continue;
      keep(layers);
      // Its encoders may have strategies, too.
      try_on(FoundPlan(result_.best.front()));
    }
  }

  const PlanProblem& problem_;
  const PlanSearchOptions& options_;
  double end_ms_;
  PlanSearchResult usual_;
  PlanSearchResult& result_;
  std::optional<StrategyGain> gain_;
  int64_t num_tried_ = 0;
};

}  // namespace

Result<std::vector<FasterLayers>> faster_layers(const Plan& plan, const Profile* profile,
                                                std::optional<ModuleKind> only) {
  std::vector<FasterLayers> all;
  if (plan.model.numbers.program) return all;
  WEFT_TRY(const SampleLoad average, average_sample(plan.model, plan.workload));
  const LayerOptions options(plan, profile, average);
  std::vector<ModuleOptions> modules;
  size_t most = 0;
  for (const ModulePlan& module : plan.modules) {
    if (module.tp == 1 || only.value_or(module.kind) != module.kind) continue;
    WEFT_TRY(ModuleOptions made, options.of(module));
    for (const auto& kind : made.by_kind) most = std::max(most, kind.size());
    modules.push_back(std::move(made));
  }
  const auto add = [&](FasterLayers layers) {
    const bool is_new = std::none_of(all.begin(), all.end(),
                                     [&](const FasterLayers& other) { return other.strategy == layers.strategy; });
    if (is_new && !layers.strategy.empty() && layers.gain >= kLeastLayerGain) all.push_back(std::move(layers));
  };
  for (size_t place = 0; place < most; ++place) add(joined(modules, place, [](const ModuleOptions&) { return true; }));
  if (std::count_if(modules.begin(), modules.end(), [](const ModuleOptions& m) { return m.has_any(); }) > 1) {
    for (const ModuleOptions& alone : modules)
      add(joined(modules, 0, [&](const ModuleOptions& each) { return &each == &alone; }));
  }
  return all;
}

Result<std::optional<StrategyGain>> improve_layers(const PlanProblem& problem, const PlanSearchOptions& options,
                                                   PlanSearchResult& result, double spent_s) {
  if (result.best.empty()) return std::optional<StrategyGain>();
  if (options.time_limit_s < std::max(kLeastTime_s, kLeastShareLeft * spent_s)) return std::optional<StrategyGain>();
  LayerImprover improver(problem, options, result);
  improver.run();
  return improver.gain();
}

}  // namespace weft
