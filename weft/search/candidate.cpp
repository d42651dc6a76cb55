#include "weft/search/candidate.h"

#include <numeric>

#include <fmt/format.h>

namespace weft {
namespace {

std::vector<std::vector<int64_t>> even_layers(int64_t layers, int64_t pp, int64_t vpp) {
  std::vector<std::vector<int64_t>> rows(static_cast<size_t>(pp), std::vector<int64_t>(static_cast<size_t>(vpp)));
  const int64_t stages = pp * vpp;
  for (int64_t stage = 0; stage < stages; ++stage) {
    rows[static_cast<size_t>(stage % pp)][static_cast<size_t>(stage / pp)] =
        layers / stages + (stage < layers % stages ? 1 : 0);
  }
  return rows;
}

void recompute_nothing(ModulePlan& module) {
  module.recompute.clear();
  for (const auto& row : module.layers) module.recompute.emplace_back(row.size());
}

}  // namespace

std::string Candidate::text(bool has_encoders) const {
  std::string text = fmt::format("tp {}, pp {}, dp {}", tp, pp, dp);
  if (vpp > 1) text += fmt::format(", vpp {}", vpp);
  if (cp > 1) text += fmt::format(", cp {} (ulysses {})", cp, cp_ulysses);
  if (ep > 1) text += fmt::format(", ep {}", ep);
  text += fmt::format(", mbs {}, zero {}", mbs, zero);
  if (sequence_parallel) text += ", sequence parallel";
  if (stages_are_neighbours) text += ", stages side by side";
  text += fmt::format(", {}", name_of(schedule));
  if (!has_encoders) return text;
  if (encoders.is_inline) return text + ", encoders inline";
  return text + fmt::format(", encoders colocated with tp {}, mbs_scale {}, {}{}", encoders.tp, encoders.mbs_scale,
                            name_of(encoders.form), encoders.recompute_from_inputs ? ", recomputed from inputs" : "");
}

Plan plan_without_settings(Model model, Cluster cluster, Workload workload) {
  Plan plan;
  plan.precision.compute = workload.precision;
  if (num_bytes(workload.precision) >= 4) plan.precision.master = plan.precision.reduce = workload.precision;
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
  const std::vector<std::string> order = c.stages_are_neighbours ? std::vector<std::string>{"tp", "cp", "pp", "dp"}
                                                                 : std::vector<std::string>{"tp", "cp", "dp", "pp"};
  for (ModulePlan& m : plan.modules) {
    const auto layers = static_cast<int64_t>(plan.model.find(m.kind)->layers.size());
    if (m.kind == ModuleKind::kLlm || c.encoders.is_inline) {
      const bool is_llm = m.kind == ModuleKind::kLlm;
      m.placement = is_llm ? ModulePlacement::kBase : ModulePlacement::kInline;
      m.axis_order = order;
      m.tp = c.tp;
      m.cp = c.cp;
      m.cp_ulysses = c.cp_ulysses;
      m.ep = is_llm ? c.ep : 1;
      m.pp = c.pp;
      m.vpp = is_llm ? c.vpp : 1;
      m.dp = c.dp;
      m.sequence_parallel = c.sequence_parallel;
      m.zero = c.zero;
      m.layers = even_layers(layers, c.pp, c.vpp);
      m.mbs_scale = 1;
      m.form = EncoderForm::kBefore;
    } else {
      m.placement = ModulePlacement::kColocated;
      m.axis_order = {"tp", "cp", "dp"};
      m.tp = c.encoders.tp;
      m.cp = m.cp_ulysses = m.ep = m.pp = m.vpp = 1;
      m.dp = plan.world_size / m.tp;
      m.sequence_parallel = false;
      m.zero = c.zero == 0 ? 0 : 1;
      m.layers = {{layers}};
      m.mbs_scale = c.encoders.mbs_scale;
      m.form = c.encoders.form;
      m.recompute_from_inputs = c.encoders.recompute_from_inputs;
    }
    m.actions.clear();
    m.live_macro_batches = 0;
    recompute_nothing(m);
  }
  plan.schedule = {
      .name = name_of(c.schedule), .mbs = c.mbs, .microbatches = c.microbatches(plan.workload.global_batch_samples)};
}

}  // namespace weft
