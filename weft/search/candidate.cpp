#include "weft/search/candidate.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/meaning/bucket_layout.h"
#include "weft/meaning/even_layers.h"
#include "weft/meaning/usual_precision.h"
#include "weft/meaning/weight_copies.h"
#include "weft/plan/head_limit.h"
#include "weft/plan/mbs_scale.h"

namespace weft {
namespace {

/// The ranks of the llm's last pipeline ranks, those of a replica together.
void set_last_stages(const Candidate& c, int64_t stages, ModulePlan& module) {
  const int64_t inner = c.tp * c.cp;
  module.ranks.clear();
  if (!c.stages_are_neighbours) {
    const int64_t per_stage = inner * c.dp;
    for (int64_t rank = per_stage * (c.pp - stages); rank < per_stage * c.pp; ++rank) module.ranks.push_back(rank);
    return;
  }
  for (int64_t replica = 0; replica < c.dp; ++replica) {
    const int64_t begin = replica * inner * c.pp;
    for (int64_t rank = begin + inner * (c.pp - stages); rank < begin + inner * c.pp; ++rank)
      module.ranks.push_back(rank);
  }
}

void recompute_nothing(ModulePlan& module) {
  module.recompute.clear();
  for (const auto& row : module.layers) module.recompute.emplace_back(row.size());
}

std::string text_of(const EncoderChoice& e) {
  if (e.is_inline()) return "inline";
  std::string text = e.placement == ModulePlacement::kColocated ? std::string("colocated")
                     : e.placement == ModulePlacement::kDisjoint
                         ? fmt::format("on {} ranks of its own", e.ranks)
                         : fmt::format("on the last {} pipeline ranks", e.stages);
  text += fmt::format(" with tp {}, ", e.tp);
  if (e.cp > 1) text += fmt::format("cp {}, ", e.cp);
  text += e.mbs_parts > 1 ? fmt::format("mbs_scale {}/{}", e.mbs_scale, e.mbs_parts)
                          : fmt::format("mbs_scale {}", e.mbs_scale);
  text += fmt::format(", {}", name_of(e.form));
  if (e.sequence_parallel) text += ", sequence parallel";
  if (e.zero != kUsualZero) text += fmt::format(", zero {}{}", e.zero, e.zero_keep_gathered ? " (kept gathered)" : "");
  if (e.recompute_layers > 0) text += fmt::format(", {} recomputed", counted(e.recompute_layers, "layer"));
  return e.recompute_from_inputs ? text + ", recomputed from inputs" : text;
}

/// Of a module in the pipeline.
Degrees pipeline_degrees(const Candidate& c, const Module& module) {
  Degrees degrees = c;
  degrees.cp_ulysses = head_limit(module).largest_divisor(c.tp, c.cp_ulysses);
  if (module.kind != ModuleKind::kLlm) {
    degrees.ep = degrees.vpp = 1;
    degrees.experts_over_tp = false;
  }
  return degrees;
}

/// Of an encoder beside it.
Degrees encoder_degrees(const Candidate& c, const EncoderChoice& e, const Module& module, int64_t num_ranks) {
  Degrees degrees{.tp = e.tp, .cp = e.cp, .dp = num_ranks / (e.tp * e.cp), .sequence_parallel = e.sequence_parallel};
  if (e.cp > 1) degrees.cp_ulysses = head_limit(module).largest_divisor(e.tp, e.cp);
  if (num_weight_copies(degrees) > 1) degrees.zero = e.zero != kUsualZero ? e.zero : c.zero == 0 ? 0 : 1;
  degrees.zero_keep_gathered = may_keep_gathered(degrees.zero) && e.zero_keep_gathered;
  return degrees;
}

void set_ranks(ModulePlan& module, int64_t first, int64_t count) {
  if (module.ranks.size() != static_cast<size_t>(count)) module.ranks.resize(static_cast<size_t>(count));
  if (count > 0 && module.ranks.front() == first && module.ranks.back() == first + count - 1) return;
  std::iota(module.ranks.begin(), module.ranks.end(), first);
}

}  // namespace

std::string Candidate::text(const Plan& plan) const {
  std::string text = fmt::format("tp {}, pp {}, dp {}", tp, pp, dp);
  if (vpp > 1) text += fmt::format(", vpp {}", vpp);
  if (cp > 1) text += fmt::format(", cp {} (ulysses {})", cp, cp_ulysses);
  if (ep > 1) text += fmt::format(", ep {}{}", ep, experts_over_tp ? " (over tp ranks, too)" : "");
  text += fmt::format(", mbs {}, zero {}{}", mbs, zero, zero_keep_gathered ? " (weights kept gathered)" : "");
  if (sequence_parallel) text += ", sequence parallel";
  if (stages_are_neighbours) text += ", stages side by side";
  text += fmt::format(", {}", name_of(schedule));
  if (recompute_logits) text += ", logits recomputed";
  size_t encoder = 0;
  for (const Module& module : plan.model.modules) {
    if (module.kind == ModuleKind::kLlm) continue;
    text += fmt::format(", {} {}", name_of(module.kind), text_of(encoders[encoder++]));
  }
  if (balance != Balance::kNone) text += fmt::format(", balance {}", name_of(balance));
  return text;
}

bool Candidate::is_separable() const {
  return std::all_of(encoders.begin(), encoders.end(), [](const EncoderChoice& e) {
    return e.is_inline() || (e.placement == ModulePlacement::kColocated && e.form == EncoderForm::kBefore);
  });
}

EncoderSet inline_encoders(const Candidate& candidate, size_t num_encoders) {
  EncoderSet encoders = 0;
  for (size_t e = 0; e < num_encoders; ++e) encoders |= candidate.encoders[e].is_inline() ? 1u << e : 0u;
  return encoders;
}

Candidate with_inline(const Candidate& degrees, EncoderSet encoders) {
  Candidate c = degrees;
  for (size_t e = 0; e < kMostEncoders; ++e) {
    if (c.encoders[e].placement == ModulePlacement::kDisjoint) continue;
    c.encoders[e] = {};
    if ((encoders >> e & 1u) == 0) c.encoders[e].placement = ModulePlacement::kColocated;
  }
  return c;
}

Plan plan_without_settings(Model model, Cluster cluster, Workload workload) {
  Plan plan;
  plan.precision = usual_precision(workload.precision);
  plan.world_size = cluster.num_devices();
  plan.batches = 0;
  for (const Module& module : model.modules) {
    ModulePlan m{.kind = module.kind};
    m.ranks.resize(static_cast<size_t>(plan.world_size));
    std::iota(m.ranks.begin(), m.ranks.end(), 0);
    plan.modules.push_back(std::move(m));
  }
  plan.model = std::move(model);
  plan.cluster = std::move(cluster);
  plan.workload = std::move(workload);
  return plan;
}

void fill_plan(const Candidate& c, Plan& plan) {
  static const std::vector<std::string> kApart = {"tp", "cp", "dp", "pp"}, kNeighbours = {"tp", "cp", "pp", "dp"},
                                        kEncoder = {"tp", "cp", "dp"};
  const int64_t llm_ranks = c.num_ranks();
  int64_t next_own = llm_ranks;
  size_t encoder = 0;
  for (ModulePlan& m : plan.modules) {
    const Module& module = *plan.model.find(m.kind);
    const auto layers = static_cast<int64_t>(module.layers.size());
    const bool is_llm = m.kind == ModuleKind::kLlm;
    const EncoderChoice& e = is_llm ? EncoderChoice{} : c.encoders[encoder++];
    m.recompute_from_inputs = false;
    m.recompute_logits = is_llm && c.recompute_logits;
    if (is_llm || e.is_inline()) {
      m.placement = is_llm ? ModulePlacement::kBase : ModulePlacement::kInline;
      set_ranks(m, 0, llm_ranks);
      m.axis_order = c.stages_are_neighbours ? kNeighbours : kApart;
      m.degrees() = pipeline_degrees(c, module);
      m.layers = even_layers(layers, Placement::kLoop, c.pp, c.vpp);
      m.mbs_scale = m.mbs_parts = 1;
      m.form = EncoderForm::kBefore;
    } else {
      m.placement = e.placement;
      m.axis_order = kEncoder;
      if (e.placement == ModulePlacement::kColocated) {
        set_ranks(m, 0, llm_ranks);
      } else if (e.placement == ModulePlacement::kDisjoint) {
        set_ranks(m, next_own, e.ranks);
        next_own += e.ranks;
      } else {
        set_last_stages(c, e.stages, m);
      }
      m.degrees() = encoder_degrees(c, e, module, std::ssize(m.ranks));
      m.layers = {{layers}};
      set_mbs_scale(m, e.mbs_scale, e.mbs_parts);
      m.form = e.form;
      m.recompute_from_inputs = e.recompute_from_inputs;
    }
    m.actions.clear();
    m.live_macro_batches = 0;
    recompute_nothing(m);
    if (!m.is_in_pipeline() && e.recompute_layers > 0)
      m.recompute = {{RecomputeCounts{.full = std::min(e.recompute_layers, layers)}}};
  }
  plan.balance = c.balance;
  plan.buckets_mb = searched_buckets_mb(num_weight_copies(c));
  plan.schedule = {
      .name = name_of(c.schedule), .mbs = c.mbs, .microbatches = c.microbatches(plan.workload.global_batch_samples)};
}

}  // namespace weft
