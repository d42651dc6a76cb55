#include "tests/support/meaning/random_plan.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>
#include <optional>
#include <random>

#include <fmt/format.h>

#include "tests/support/meaning/random_rows.h"
#include "weft/base/check.h"
#include "weft/base/divisors.h"
#include "weft/meaning/check.h"
#include "weft/meaning/expert_ranks.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/meaning/stage_parts.h"
#include "weft/plan/head_limit.h"
#include "weft/plan/mbs_scale.h"
#include "weft/plan/module_mesh.h"
#include "weft/program/name_weights.h"
#include "weft/schedule/generators.h"
#include "weft/spec/num_experts.h"

namespace weft {
namespace {

Cluster one_node(int64_t devices) {
  Cluster cluster{.name = "drawn", .nodes = 1, .devices_per_node = devices};
  cluster.device.name = "drawn device";
  cluster.device.memory_gib = 80;
  cluster.device.memory_bandwidth_gb_per_s = 1000;
  for (const Precision precision : {Precision::kBf16, Precision::kFp32, Precision::kFp64})
    cluster.device.matrix_tflops[precision] = 100;
  cluster.within_node.bandwidth_gb_per_s = cluster.between_nodes.bandwidth_gb_per_s = 100;
  cluster.cards_per_node = 1;
  return cluster;
}

std::string common_beginning(const std::vector<std::vector<std::string>>& weights) {
  std::string common = weights.front().front();
  for (const auto& names : weights) {
    for (const std::string& name : names)
      common.resize(static_cast<size_t>(std::mismatch(common.begin(), common.end(), name.begin(), name.end()).first -
                                        common.begin()));
  }
  return common;
}

/// Patterns of all sizes over the names that a model's weights have: modules, blocks, weights of all layers, one
/// weight.
std::vector<std::string> weight_patterns(const Model& model) {
  std::vector<std::string> patterns = {"*.bias", "*norm*", "*.0.*", "*.mlp.*"};
  for (const Module& module : model.modules) {
    const int64_t exit = num_blocks(module) - 1;
    for (const int64_t place : {int64_t{0}, exit}) {
      const auto weights = weight_names(module, place);
      if (weights.empty()) continue;
      patterns.push_back(common_beginning(weights) + "*");
      patterns.push_back(weights.back().front());
    }
    const std::string layer = module.paths.layer;
    patterns.push_back(layer.substr(0, layer.find('.')) + ".*");
    const std::string all_layers = numbered(layer, 0).replace(layer.find("{}"), 1, "?");
    patterns.push_back(all_layers + "*");
    const std::string first = path_of_block(module, 1);
    for (const auto& names : weight_names(module, 1))
      patterns.push_back(all_layers + names.front().substr(first.size()));
  }
  return patterns;
}

class PlanDrawer {
 public:
  PlanDrawer(const Model& model, uint64_t seed, const RandomPlanSpace& space)
      : model_(model), space_(space), random_(seed) {}

  Plan draw() {
    constexpr int kMostTries = 1000;
    for (int i = 0; i < kMostTries; ++i) {
      plan_ = {};
      if (try_once() && check_plan(plan_).empty()) return std::move(plan_);
    }
    WEFT_CHECK(false, "no legal plan for {} on {} ranks in {} tries", model_.name, space_.world_size, kMostTries);
  }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool one_in(int64_t n) { return below(n) == 0; }
  template <typename T>
  const T& pick(const std::vector<T>& values) {
    return values[static_cast<size_t>(below(static_cast<int64_t>(values.size())))];
  }
  template <typename T>
  void shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i)
      std::swap(values[i - 1], values[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
  }

  ModulePlan& llm() { return plan_.modules.back(); }

  bool try_once() {
    plan_.model = model_;
    plan_.world_size = space_.world_size;
    plan_.cluster = one_node(space_.world_size);
    for (const Module& module : model_.modules) {
      ModulePlan own{.kind = module.kind};
      if (own.is_encoder()) own.placement = pick(space_.placements);
      plan_.modules.push_back(std::move(own));
    }
    if (!deal_ranks() || !draw_llm()) return false;
    draw_batch();
    for (ModulePlan& module : plan_.modules) {
      if (!module.is_encoder()) continue;
      if (!(module.placement == ModulePlacement::kInline ? draw_inline(module) : draw_beside(module))) return false;
    }
    draw_pipeline_layers();
    for (ModulePlan& module : plan_.modules) draw_memory_settings(module);
    // Inline encoders lie in the llm's stages.
    for (ModulePlan& module : plan_.modules) {
      if (module.placement == ModulePlacement::kInline) module.zero = llm().zero;
    }
    return draw_orders();
  }

  /// Encoders with ranks of their own take theirs, before the llm's or behind them.
  bool deal_ranks() {
    std::vector<std::pair<ModulePlan*, int64_t>> parts;
    int64_t left = space_.world_size;
    for (ModulePlan& module : plan_.modules) {
      if (module.placement != ModulePlacement::kDisjoint) continue;
      const int64_t count = between(1, std::max<int64_t>(1, space_.world_size / 2));
      left -= count;
      parts.emplace_back(&module, count);
    }
    if (left < 1) return false;
    parts.insert(parts.begin(), {&llm(), left});
    if (one_in(3)) shuffle(parts);
    int64_t next = 0;
    for (auto& [module, count] : parts) {
      module->ranks.resize(static_cast<size_t>(count));
      std::iota(module->ranks.begin(), module->ranks.end(), next);
      next += count;
    }
    return true;
  }

  std::optional<Degrees> draw_degrees(int64_t ranks, const HeadLimit& heads, int64_t most_pp) {
    std::vector<Degrees> possible;
    for (const int64_t tp : divisors(ranks)) {
      if (tp > heads.heads) break;
      for (const int64_t cp : divisors(ranks / tp)) {
        if (cp > space_.most_cp) break;
        for (const int64_t pp : divisors(ranks / tp / cp)) {
          if (pp > most_pp) break;
          for (const int64_t ulysses : divisors(cp)) {
            if (!heads.allows(tp, ulysses)) continue;
            possible.push_back({.tp = tp, .cp = cp, .cp_ulysses = ulysses, .pp = pp, .dp = ranks / tp / cp / pp});
          }
        }
      }
    }
    if (possible.empty()) return std::nullopt;
    return pick(possible);
  }

  void set_degrees(ModulePlan& module, const Degrees& d) {
    module.degrees() = d;
    module.sequence_parallel = d.tp > 1 && one_in(2);
    module.axis_order = {"tp", "cp", "dp"};
    if (d.pp > 1 || one_in(2)) module.axis_order.push_back("pp");
    if (space_.allows_any_axis_order && one_in(2)) shuffle(module.axis_order);
  }

  bool draw_llm() {
    const Module& spec = *model_.find(ModuleKind::kLlm);
    const auto layers = static_cast<int64_t>(spec.layers.size());
    const auto degrees = draw_degrees(static_cast<int64_t>(llm().ranks.size()), head_limit(spec), layers);
    if (!degrees) return false;
    set_degrees(llm(), *degrees);
    llm().experts_over_tp = space_.allows_ep && num_experts(spec) > 1 && llm().sequence_parallel && one_in(2);
    if (space_.allows_ep) llm().ep = pick(divisors(std::gcd(num_experts(spec), num_expert_ranks(llm()))));
    if (llm().ep == 1) llm().experts_over_tp = false;
    plan_.schedule.name = pick(space_.schedules);
    if (plan_.schedule.name == kExplicitSchedule) return true;
    const ScheduleName name = *parse_schedule_name(plan_.schedule.name);
    if (name == ScheduleName::kZbV) llm().vpp = 2;
    if (name == ScheduleName::kInterleaved1f1b) llm().vpp = between(2, 3);
    if (llm().pp == 1) return llm().vpp == 1;
    return llm().pp * llm().vpp <= (space_.allows_empty_stages ? 3 : 1) * layers;
  }

  void draw_batch() {
    plan_.schedule.mbs = between(1, space_.most_mbs);
    plan_.schedule.microbatches = between(1, space_.most_microbatches);
    if (plan_.schedule.name == kExplicitSchedule) draw_rows();
    Workload& workload = plan_.workload;
    workload.name = workload.source = "drawn";
    workload.global_batch_samples = plan_.schedule.mbs * plan_.schedule.microbatches * llm().dp;
    workload.tokens = Distribution::weighted({{4, 0.5}, {12, 0.5}});
    if (model_.find(ModuleKind::kVision) != nullptr) {
      const auto merged = static_cast<double>(model_.media.patches_per_embedding);
      workload.images = {.pieces_per_sample = Distribution::weighted({{0, 0.3}, {1, 0.4}, {2, 0.3}}),
                         .size = Distribution::weighted({{2 * merged, 0.5}, {6 * merged, 0.5}})};
    }
    if (model_.find(ModuleKind::kAudio) != nullptr) {
      workload.audio = {.pieces_per_sample = Distribution::weighted({{0, 0.5}, {1, 0.5}}),
                        .size = Distribution::constant(0.2)};
    }
    if (space_.allows_frozen && one_in(3)) {
      for (const Module& module : model_.modules) {
        if (one_in(2)) workload.frozen.push_back(module.kind);
      }
      if (workload.frozen.size() == model_.modules.size()) workload.frozen.pop_back();
    }
    if (space_.allows_rules && one_in(3)) draw_rules();
    if (space_.allows_balance) plan_.balance = static_cast<Balance>(below(4));
  }

  /// Rules that do not fit the model, or that leave nothing to train, are drawn again with the rest.
  void draw_rules() {
    const std::vector<std::string> patterns = weight_patterns(model_);
    for (int64_t left = between(1, 3); left > 0; --left) plan_.trainable.push_back({pick(patterns), one_in(2)});
  }

  void draw_rows() {
    const auto layers = static_cast<int64_t>(model_.find(ModuleKind::kLlm)->layers.size());
    const int64_t most = std::max(llm().pp, space_.allows_empty_stages ? 2 * layers : layers);
    plan_.schedule.rows =
        explicit_rows(random_rows({.num_ranks = static_cast<int32_t>(llm().pp),
                                   .num_stages = static_cast<int32_t>(between(llm().pp, std::min(most, 3 * llm().pp))),
                                   .num_microbatches = static_cast<int32_t>(plan_.schedule.microbatches)},
                                  random_));
    const std::vector<int64_t>& chunks = plan_.schedule.rows->chunks;
    llm().vpp = *std::max_element(chunks.begin(), chunks.end());
  }

  bool draw_inline(ModulePlan& module) {
    const HeadLimit heads = head_limit(*model_.find(module.kind));
    if (llm().tp > heads.heads) return false;
    const bool divides_rows = llm().tp > 1 && one_in(2);
    module.ranks = llm().ranks;
    module.axis_order = llm().axis_order;
    module.tp = llm().tp;
    module.cp = llm().cp;
    module.pp = llm().pp;
    module.dp = llm().dp;
    module.sequence_parallel = divides_rows;
    for (const int64_t ulysses : divisors(llm().cp_ulysses)) {
      if (heads.allows(module.tp, ulysses)) module.cp_ulysses = ulysses;
    }
    return true;
  }

  bool draw_beside(ModulePlan& module) {
    const bool has_own = module.placement == ModulePlacement::kDisjoint;
    if (module.placement == ModulePlacement::kColocated) module.ranks = llm().ranks;
    if (module.placement == ModulePlacement::kPartial && !draw_stages(module)) return false;
    if (one_in(4)) shuffle(module.ranks);
    const Module& spec = *model_.find(module.kind);
    const auto layers = static_cast<int64_t>(spec.layers.size());
    const auto degrees =
        draw_degrees(static_cast<int64_t>(module.ranks.size()), head_limit(spec), has_own ? layers : 1);
    if (!degrees) return false;
    set_degrees(module, *degrees);
    module.layers.clear();
    for (const int64_t count : composition(layers, module.pp)) module.layers.push_back({count});
    // Of a rank's samples of a microbatch any part is whole.
    const int64_t scale = between(1, space_.most_scale);
    const int64_t parts = space_.allows_fractions && one_in(2) ? pick(divisors(plan_.schedule.mbs * scale)) : 1;
    set_mbs_scale(module, scale, parts);
    module.form = has_own ? EncoderForm::kStream : pick(space_.forms);
    module.recompute_from_inputs = space_.allows_recompute && one_in(3);
    return true;
  }

  /// Some pipeline ranks of the llm, neither none nor all.
  bool draw_stages(ModulePlan& module) {
    if (llm().pp == 1) return false;
    const Mesh mesh = *mesh_of(llm());
    const size_t axis = *mesh.grid().find("pp");
    std::vector<bool> is_taken(static_cast<size_t>(llm().pp));
    const int64_t always = below(llm().pp), never = (always + between(1, llm().pp - 1)) % llm().pp;
    for (int64_t stage = 0; stage < llm().pp; ++stage)
      is_taken[static_cast<size_t>(stage)] = stage == always || (stage != never && one_in(2));
    for (const int64_t rank : llm().ranks) {
      if (is_taken[static_cast<size_t>(mesh.coordinates_of(rank)[axis])]) module.ranks.push_back(rank);
    }
    return true;
  }

  /// So many layers in so many parts, uneven.
  std::vector<int64_t> composition(int64_t layers, int64_t parts) {
    std::vector<int64_t> counts(static_cast<size_t>(parts), 0);
    const bool keeps_one = !space_.allows_empty_stages || one_in(2);
    if (keeps_one && layers >= parts) {
      for (int64_t& count : counts) count = 1;
      layers -= parts;
    }
    for (int64_t i = 0; i < layers; ++i) ++counts[static_cast<size_t>(below(parts))];
    return counts;
  }

  /// The last stage with blocks of encoders, and the first with the llm's.
  int64_t draw_border(int64_t stages) {
    int64_t least_layers = INT64_MAX;
    for (const ModulePlan& module : plan_.modules) {
      if (module.placement == ModulePlacement::kInline)
        least_layers = std::min(least_layers, static_cast<int64_t>(model_.find(module.kind)->layers.size()));
    }
    return below(space_.allows_empty_stages ? stages : std::min(stages, least_layers));
  }

  /// Inline encoders end where the llm begins, or before.
  void draw_pipeline_layers() {
    const int64_t stages = num_stages(plan_);
    const bool has_inline = std::any_of(plan_.modules.begin(), plan_.modules.end(),
                                        [](const ModulePlan& m) { return m.placement == ModulePlacement::kInline; });
    const int64_t border = has_inline && one_in(2) ? draw_border(stages) : 0;
    for (ModulePlan& module : plan_.modules) {
      if (!module.is_in_pipeline()) continue;
      const auto layers = static_cast<int64_t>(model_.find(module.kind)->layers.size());
      const std::vector<int64_t> counts = composition(layers, module.is_encoder() ? border + 1 : stages - border);
      module.layers.clear();
      for (int64_t rank = 0; rank < llm().pp; ++rank)
        module.layers.emplace_back(static_cast<size_t>(num_chunks(plan_, rank)), 0);
      for (size_t i = 0; i < counts.size(); ++i) {
        const auto stage = static_cast<int32_t>(i) + static_cast<int32_t>(module.is_encoder() ? 0 : border);
        const StagePlace place = place_of_stage(plan_, stage);
        module.layers[static_cast<size_t>(place.rank)][static_cast<size_t>(place.chunk)] = counts[i];
      }
    }
  }

  void draw_memory_settings(ModulePlan& module) {
    module.zero = pick(space_.zeros);
    module.zero_keep_gathered = module.zero == 3 && one_in(2);
    const bool recomputes = space_.allows_recompute && one_in(2);
    for (const auto& row : module.layers) {
      auto& chunks = module.recompute.emplace_back();
      for (const int64_t count : row) {
        Recompute& drawn = chunks.emplace_back();
        for (int64_t block = 0; block < count && recomputes; ++block)
          drawn.add(static_cast<BlockRecompute>(below(3)), 1);
      }
    }
  }

  /// How many macro batches may be alive, and the order of encoders that fill bubbles.
  bool draw_orders() {
    const Result<Schedule> pipeline = pipeline_schedule(plan_);
    Result<std::vector<EncoderPlacement>> encoders = encoder_placements(plan_);
    if (!pipeline || !encoders) return false;
    std::vector<ModulePlan*> beside;
    for (ModulePlan& module : plan_.modules) {
      if (!module.is_in_pipeline()) beside.push_back(&module);
    }
    ModulePlan* filler = nullptr;
    for (size_t e = 0; e < beside.size(); ++e) {
      EncoderPlacement& encoder = (*encoders)[e];
      ScheduledEncoder& rows = encoder.rows;
      if (encoder.form == EncoderForm::kFill && filler == nullptr) filler = beside[e];
      const bool has_bound = encoder.form == EncoderForm::kFill || (encoder.form == EncoderForm::kStream && one_in(2));
      if (has_bound) {
        const int32_t least = least_live_macro_batches(*pipeline, rows) + rows.num_stages - 1;
        rows.live_macro_batches = std::max(1, least) + static_cast<int32_t>(below(3));
        beside[e]->live_macro_batches = rows.live_macro_batches;
      }
      encoder.forward_ms.assign(rows.groups.size(), static_cast<double>(between(1, 8)));
      encoder.backward_ms.assign(rows.groups.size(), static_cast<double>(between(1, 16)));
    }
    if (filler == nullptr) return true;
    StageDurations durations;
    for (int32_t stage = 0; stage < pipeline->num_stages(); ++stage) {
      durations.forward_ms.push_back(static_cast<double>(between(2, 8)));
      durations.backward_input_ms.push_back(static_cast<double>(between(2, 8)));
      durations.backward_weight_ms.push_back(static_cast<double>(between(2, 8)));
    }
    const Result<Schedule> woven = place_encoders(*pipeline, *encoders, durations);
    if (!woven) return false;
    filler->actions = stored_rows(*woven);
    return true;
  }

  const Model& model_;
  const RandomPlanSpace& space_;
  std::mt19937_64 random_;
  Plan plan_;
};

const std::array<const char*, 5> kPlacementWords = {"base", "inline", "colocated", "disjoint", "partial"};
const std::array<const char*, 4> kBalanceSuffixes = {"", "_balance_encoder", "_balance_llm", "_balance_both"};

std::string layers_text(const ModulePlan& module) {
  std::vector<std::string> rows;
  for (const auto& row : module.layers) rows.push_back(fmt::format("{}", fmt::join(row, "v")));
  return fmt::format("{}", fmt::join(rows, "r"));
}

}  // namespace

Plan random_plan(const Model& model, uint64_t seed, const RandomPlanSpace& space) {
  return PlanDrawer(model, seed, space).draw();
}

std::string settings_text(const Plan& plan) {
  std::string text = fmt::format("{}_mbs{}x{}", plan.schedule.name, plan.schedule.mbs, plan.schedule.microbatches);
  text += kBalanceSuffixes[static_cast<size_t>(plan.balance)];
  for (const TrainRule& rule : plan.trainable) {
    text += rule.train ? "_train_" : "_freeze_";
    for (const char c : rule.weights) text += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  for (const ModulePlan& m : plan.modules) {
    text += fmt::format("__{}{}", name_of(m.kind), plan.workload.is_frozen(m.kind) ? "_frozen" : "");
    if (m.is_encoder()) text += fmt::format("_{}", kPlacementWords[static_cast<size_t>(m.placement)]);
    text += fmt::format("_tp{}{}", m.tp, m.sequence_parallel ? "sp" : "");
    if (m.cp > 1) text += fmt::format("_cp{}u{}", m.cp, m.cp_ulysses);
    if (m.ep > 1) text += fmt::format("_ep{}{}", m.ep, m.experts_over_tp ? "tp" : "");
    text += m.vpp > 1 ? fmt::format("_pp{}x{}", m.pp, m.vpp) : fmt::format("_pp{}", m.pp);
    text += fmt::format("_dp{}_zero{}{}_l{}", m.dp, m.zero, m.zero_keep_gathered ? "g" : "", layers_text(m));
    for (const auto& row : m.recompute) {
      for (const Recompute& recompute : row) {
        if (!recompute.runs().empty()) text += "_";
        for (const RecomputeRun& run : recompute.runs())
          text += fmt::format("{}{}", name_of(run.what).front(), run.blocks);
      }
    }
    if (m.is_in_pipeline()) continue;
    text += fmt::format("_{}_scale{}", name_of(m.form), m.mbs_scale);
    if (m.mbs_parts > 1) text += fmt::format("of{}", m.mbs_parts);
    if (m.live_macro_batches > 0) text += fmt::format("_live{}", m.live_macro_batches);
    if (m.recompute_from_inputs) text += "_again";
  }
  return text;
}

}  // namespace weft
