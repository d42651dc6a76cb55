#include "tests/golden/plan_gallery.h"

#include <numeric>

#include "weft/meaning/even_layers.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/schedule/generators.h"

namespace weft {
namespace {

std::vector<int64_t> rank_range(int64_t first, int64_t count) {
  std::vector<int64_t> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

std::vector<std::vector<Recompute>> no_recompute(const std::vector<std::vector<int64_t>>& layers) {
  std::vector<std::vector<Recompute>> rows;
  for (const auto& row : layers) rows.emplace_back(row.size());
  return rows;
}

/// Builds plans for one model, cluster and workload.
class Builder {
 public:
  Builder(const Scenarios& scenarios, const std::string& model, const std::string& cluster, int64_t nodes,
          const std::string& workload, int64_t global_batch) {
    plan_.model = *scenarios.model(model);
    plan_.cluster = *scenarios.cluster(cluster, nodes);
    plan_.workload = *scenarios.workload(workload);
    plan_.workload.global_batch_samples = global_batch;
    plan_.world_size = plan_.cluster.num_devices();
  }

  Builder& llm(const Degrees& degrees, const std::string& schedule, int64_t mbs, ModulePlan module = {}) {
    module.degrees() = degrees;
    module.kind = ModuleKind::kLlm;
    module.placement = ModulePlacement::kBase;
    module.axis_order = {"tp", "cp", "dp", "pp"};
    if (module.ranks.empty()) module.ranks = rank_range(0, module.num_ranks());
    if (module.layers.empty())
      module.layers = even_layers(num_layers(ModuleKind::kLlm), Placement::kLoop, module.pp, module.vpp);
    if (module.recompute.empty()) module.recompute = no_recompute(module.layers);
    module.sequence_parallel = module.tp > 1;
    plan_.schedule = {
        .name = schedule, .mbs = mbs, .microbatches = plan_.workload.global_batch_samples / (mbs * module.dp)};
    plan_.modules.push_back(std::move(module));
    return *this;
  }

  /// Call before llm(): modules are in flow order.
  Builder& encoder(ModuleKind kind, const Degrees& degrees, ModulePlan module) {
    module.degrees() = degrees;
    module.kind = kind;
    module.axis_order = {"tp", "cp", "dp"};
    if (module.pp > 1) module.axis_order.push_back("pp");
    if (module.ranks.empty()) module.ranks = rank_range(0, module.num_ranks());
    if (module.layers.empty()) module.layers = even_layers(num_layers(kind), Placement::kLoop, module.pp, 1);
    if (module.recompute.empty()) module.recompute = no_recompute(module.layers);
    plan_.modules.push_back(std::move(module));
    return *this;
  }

  /// The encoder's blocks lie in the llm's first stage, with its degrees.
  Builder& inline_encoder(ModuleKind kind, const Degrees& llm_degrees) {
    ModulePlan module{.kind = kind, .placement = ModulePlacement::kInline, .axis_order = {"tp", "cp", "dp", "pp"}};
    module.degrees() = llm_degrees;
    module.ranks = rank_range(0, module.num_ranks());
    module.layers.assign(static_cast<size_t>(module.pp), std::vector<int64_t>(1, 0));
    module.layers[0][0] = num_layers(kind);
    module.recompute = no_recompute(module.layers);
    plan_.modules.push_back(std::move(module));
    return *this;
  }

  Plan build() { return plan_; }

 private:
  int64_t num_layers(ModuleKind kind) const { return static_cast<int64_t>(plan_.model.find(kind)->layers.size()); }

  Plan plan_;
};

/// Plans the order of an encoder that fills, with an EF of half a stage's forward and backwards of twice that.
Plan with_fill(Plan plan) {
  std::vector<EncoderPlacement> encoders = *encoder_placements(plan);
  for (EncoderPlacement& encoder : encoders) {
    encoder.forward_ms.assign(encoder.rows.groups.size(), 0.5);
    encoder.backward_ms.assign(encoder.rows.groups.size(), 1.0);
  }
  const std::vector<double> ones(static_cast<size_t>(plan.llm().pp * plan.llm().vpp), 1.0);
  const Schedule pipeline = *pipeline_schedule(plan);
  plan.modules[0].actions = stored_rows(*place_encoders(pipeline, encoders, {ones, ones, ones}));
  return plan;
}

}  // namespace

std::vector<NamedPlan> plan_gallery(const Scenarios& scenarios) {
  const auto make = [&](const std::string& model, const std::string& cluster, int64_t nodes,
                        const std::string& workload,
                        int64_t batch) { return Builder(scenarios, model, cluster, nodes, workload, batch); };
  std::vector<NamedPlan> plans;
  plans.push_back({"llama3-8b_zero3_dp8",
                   make("llama3-8b", "dgx_h100", 1, "text_4k", 64).llm({.dp = 8, .zero = 3}, "1f1b", 1).build()});
  plans.push_back({"llama3-8b_gpipe_tp2_pp2_dp2", make("llama3-8b", "hgx_h200", 1, "text_4k", 32)
                                                      .llm({.tp = 2, .pp = 2, .dp = 2, .zero = 1}, "gpipe", 1)
                                                      .build()});
  plans.push_back({"llama3-70b_interleaved_tp8_pp4_vpp5",
                   make("llama3-70b", "dgx_h100", 8, "text_4k", 32)
                       .llm({.tp = 8, .pp = 4, .vpp = 5, .dp = 2, .zero = 1}, "interleaved_1f1b", 1)
                       .build()});
  plans.push_back(
      {"llama3-8b_cp4_ulysses2",
       make("llama3-8b", "hgx_h200", 1, "text_4k", 16).llm({.tp = 2, .cp = 4, .cp_ulysses = 2}, "1f1b", 1).build()});
  plans.push_back({"qwen3-30b-a3b_zb_h1_ep8", make("qwen3-30b-a3b", "hgx_h200", 2, "text_4k", 128)
                                                  .llm({.ep = 8, .pp = 2, .dp = 8, .zero = 1}, "zb_h1", 1)
                                                  .build()});
  plans.push_back(
      {"qwen3-8b_zb_v_pp4",
       make("qwen3-8b", "dgx_h100", 1, "text_4k", 64).llm({.tp = 2, .pp = 4, .vpp = 2}, "zb_v", 2).build()});

  plans.push_back({"qwen2-vl-7b_inline", make("qwen2-vl-7b", "dgx_a100_80g", 1, "vl_sft", 32)
                                             .inline_encoder(ModuleKind::kVision, {.tp = 2, .pp = 4, .dp = 1})
                                             .llm({.tp = 2, .pp = 4}, "1f1b", 1, {.layers = {{4}, {8}, {8}, {8}}})
                                             .build()});
  plans.push_back(
      {"qwen2-vl-7b_colocated_before",
       make("qwen2-vl-7b", "dgx_a100_80g", 1, "vl_sft", 32)
           .encoder(ModuleKind::kVision, {.dp = 8},
                    {.placement = ModulePlacement::kColocated, .mbs_scale = 1, .recompute_from_inputs = true})
           .llm({.tp = 2, .pp = 4, .dp = 1}, "1f1b", 1)
           .build()});
  plans.push_back(
      {"qwen2.5-omni-7b_colocated_dp8",
       make("qwen2.5-omni-7b", "hgx_h200", 1, "omni_short", 64)
           .encoder(ModuleKind::kVision, {.dp = 8}, {.placement = ModulePlacement::kColocated, .mbs_scale = 4})
           .encoder(ModuleKind::kAudio, {.dp = 8}, {.placement = ModulePlacement::kColocated, .mbs_scale = 8})
           .llm({.tp = 4, .dp = 2, .zero = 1}, "1f1b", 1)
           .build()});
  plans.push_back({"qwen2.5-vl-7b_colocated_fill", with_fill(make("qwen2.5-vl-7b", "dgx_h100", 1, "vl_sft", 16)
                                                                 .encoder(ModuleKind::kVision, {.tp = 2, .dp = 4},
                                                                          {.placement = ModulePlacement::kColocated,
                                                                           .mbs_scale = 1,
                                                                           .form = EncoderForm::kFill,
                                                                           .live_macro_batches = 3})
                                                                 .llm({.tp = 2, .pp = 4, .dp = 1}, "1f1b", 1)
                                                                 .build())});
  plans.push_back({"qwen2.5-vl-7b_disjoint_stream", make("qwen2.5-vl-7b", "dgx_h100", 2, "vl_sft", 64)
                                                        .encoder(ModuleKind::kVision, {.tp = 2, .pp = 2, .dp = 2},
                                                                 {.placement = ModulePlacement::kDisjoint,
                                                                  .ranks = rank_range(8, 8),
                                                                  .mbs_scale = 2,
                                                                  .form = EncoderForm::kStream,
                                                                  .live_macro_batches = 4})
                                                        .llm({.tp = 2, .pp = 2, .dp = 2}, "1f1b", 1)
                                                        .build()});
  plans.push_back({"qwen2-vl-7b_partial",
                   make("qwen2-vl-7b", "dgx_h100", 1, "vl_frozen", 32)
                       .encoder(ModuleKind::kVision, {.dp = 2},
                                {.placement = ModulePlacement::kPartial, .ranks = rank_range(6, 2), .mbs_scale = 2})
                       .llm({.tp = 2, .pp = 4, .dp = 1}, "1f1b", 1, {.layers = {{8}, {8}, {8}, {4}}})
                       .build()});
  ModulePlan recomputed;
  recomputed.recompute.assign(16, std::vector<Recompute>{RecomputeCounts{.full = 2, .selective = 1}});
  plans.push_back({"qwen2-vl-72b_16384", make("qwen2-vl-72b", "ascend_910b_16", 1024, "vl_sft", 4096)
                                             .encoder(ModuleKind::kVision, {.dp = 16384},
                                                      {.placement = ModulePlacement::kColocated, .mbs_scale = 1})
                                             .llm({.tp = 8, .pp = 16, .dp = 128, .zero = 1}, "1f1b", 1, recomputed)
                                             .build()});
  plans.push_back({"tiny-vl_one_rank", [&] {
                     Plan plan = make("tiny-vl", "local_cpu", 1, "vl_sft", 8)
                                     .encoder(ModuleKind::kVision, {}, {.placement = ModulePlacement::kColocated})
                                     .llm({}, "1f1b", 2)
                                     .build();
                     plan.idle_ranks = true;
                     return plan;
                   }()});
  return plans;
}

}  // namespace weft
