#include <algorithm>

#include <fmt/format.h>

#include "weft/exchange/megatron_arguments.h"
#include "weft/exchange/megatron_keys.h"
#include "weft/exchange/megatron_layout.h"
#include "weft/exchange/target_limits.h"
#include "weft/exchange/targets.h"
#include "weft/exchange/yaml_text.h"

namespace weft {
namespace {

namespace key = megatron_key;

/// MindSpeed-RL's actor_config has keys of Megatron-LM and MindSpeed, and refuses those that it does not list.
class ActorConfig {
 public:
  explicit ActorConfig(const Plan& plan) : plan_(plan), llm_(plan.llm()) {}

  Result<std::vector<ExportedFile>> run() {
    refuse_encoders();
    refuse_what_no_target_has(plan_, refusals_);
    add_degrees();
    add_stages();
    line_.add(key::kMbs, plan_.schedule.mbs);
    add_recompute();
    add_replicas();
    add_types();
    if (!refusals_.empty()) return refusals_.error();
    return std::vector<ExportedFile>{{"mindspeed_rl.yaml", text()}};
  }

 private:
  void refuse_encoders() {
    for (const ModulePlan& module : plan_.modules) {
      if (!module.is_encoder()) continue;
      refusals_.add(
          module, "placement",
          fmt::format("is {}, but actor_config describes one chain of decoder layers", name_of(module.placement)),
          "Export the plan to mindspeed-mm.");
    }
  }

  void add_degrees() {
    line_.add(key::kTp, llm_.tp);
    line_.add(key::kSequenceParallel, llm_.sequence_parallel ? "true" : "false");
    if (plan_.overlap_tp && llm_.sequence_parallel && llm_.tp > 1)
      refusals_.add("overlap.tp", "is true, but Weft knows no setting of MindSpeed-RL for it");
    line_.add(key::kPp, llm_.pp);
    line_.add(key::kCp, llm_.cp);
    if (llm_.cp > 1) {
      if (llm_.cp_ulysses != 1 && llm_.cp_ulysses != llm_.cp) {
        refusals_.add(llm_, "cp_ulysses",
                      fmt::format("is {} of cp {}, but MindSpeed-RL has no degree for both kinds at once",
                                  llm_.cp_ulysses, llm_.cp));
      }
      add_mindspeed_context(llm_, line_);
    }
    if (llm_.ep > 1) add_experts();
    if (has_axis_order(llm_, {"tp", "cp", "dp", "pp"})) return;
    if (!has_axis_order(llm_, {"tp", "cp", "pp", "dp"}) || llm_.ep > 1) {
      refusals_.add(llm_, "axis_order",
                    fmt::format("is [{}], but MindSpeed-RL lays ranks out as [tp, cp, dp, pp], or without experts as "
                                "[tp, cp, pp, dp]",
                                fmt::join(llm_.axis_order, ", ")));
    }
    line_.add(key::kStagesInside, "true");
  }

  void add_experts() {
    if (llm_.tp > 1 && !llm_.sequence_parallel) {
      refusals_.add(llm_, "sequence_parallel",
                    fmt::format("is off, but with tp {} and ep {} MindSpeed-RL needs it", llm_.tp, llm_.ep));
    }
    if (llm_.experts_over_tp && llm_.ep % llm_.tp != 0) {
      refusals_.add(llm_, "ep",
                    fmt::format("is {} over tp {} too, but MindSpeed-RL needs a multiple of tp", llm_.ep, llm_.tp));
    }
    line_.add(key::kEp, llm_.experts_over_tp ? llm_.ep / llm_.tp : llm_.ep);
    if (llm_.experts_over_tp) line_.add("moe-tp-extend-ep", "true");
    line_.add(key::kDispatcher, "alltoall");
  }

  void add_stages() {
    if (!mindspeed_rl_limits().has_schedule(plan_.schedule.name)) {
      refusals_.add("schedule.name",
                    fmt::format("is {}, but MindSpeed-RL runs 1f1b and interleaved_1f1b", plan_.schedule.name));
    }
    if (llm_.vpp > 1 && (llm_.pp == 1 || plan_.schedule.microbatches % llm_.pp != 0)) {
      refusals_.add("schedule.microbatches",
                    fmt::format("is {} with pp {}, but interleaving needs a pipeline, and a multiple of its ranks",
                                plan_.schedule.microbatches, llm_.pp));
    }
    if (is_even(llm_.layers)) {
      if (llm_.vpp > 1) line_.add(key::kLayersPerChunk, llm_.layers.front().front());
      return;
    }
    if (llm_.vpp > 1) {
      refusals_.add(llm_, "layers",
                    "differ between stages of an interleaved pipeline, but MindSpeed-RL's are all equal then");
      return;
    }
    std::vector<int64_t> counts;
    for (const auto& row : llm_.layers) counts.push_back(row.front());
    line_.add("num-layer-list", fmt::format("'{}'", fmt::join(counts, ",")));
  }

  void add_recompute() {
    const auto recompute = megatron_recompute(llm_, refusals_);
    if (!recompute || recompute->kind == MegatronRecompute::Kind::kNone) return;
    if (recompute->kind == MegatronRecompute::Kind::kSelective) return line_.add(key::kRecompute, "selective");
    line_.add(key::kRecompute, "full");
    line_.add(key::kRecomputeMethod, "block");
    line_.add(key::kRecomputeLayers, recompute->num_layers);
  }

  void add_replicas() {
    if (llm_.zero > 1) {
      refusals_.add(llm_, "zero",
                    fmt::format("is {}, but the distributed optimizer of MindSpeed-RL is ZeRO 1", llm_.zero));
      return;
    }
    ArgumentLine flags;
    add_data_parallel(plan_, flags);
    for (const auto& [name, value] : flags.arguments()) line_.add(name, value.empty() ? "true" : value);
  }

  void add_types() {
    ArgumentLine flags;
    add_precision(plan_.precision, flags, refusals_);
    if (plan_.precision.compute == Precision::kFp16)
      refusals_.add("precision.compute", "is fp16, but MindSpeed-RL trains in bf16 or fp32");
    if (plan_.precision.compute == Precision::kBf16 && plan_.precision.reduce == Precision::kBf16)
      refusals_.add("precision.reduce", "is bf16, but MindSpeed-RL reduces gradients in fp32");
    if (plan_.precision.compute == Precision::kFp32) line_.add(key::kBf16, "false");
    for (const auto& [name, value] : flags.arguments()) line_.add(name, "true");
  }

  std::string text() const {
    YamlText yaml;
    for (const auto& [name, value] : line_.arguments()) {
      std::string path = name;
      std::replace(path.begin(), path.end(), '-', '_');
      yaml.set("actor_config." + path, value);
    }
    // A step takes mini_batch_size prompts with n_samples_per_prompt samples each.
    yaml.set("rl_config.mini_batch_size", plan_.workload.global_batch_samples);
    yaml.set("rl_config.n_samples_per_prompt", int64_t{1});
    yaml.set("rl_config.actor_resource.num_npus", plan_.world_size);
    return yaml.text();
  }

  const Plan& plan_;
  const ModulePlan& llm_;
  ArgumentLine line_;
  Refusals refusals_{"MindSpeed-RL"};
};

}  // namespace

Result<std::vector<ExportedFile>> export_mindspeed_rl(const Plan& plan) {
  return ActorConfig(plan).run();
}

}  // namespace weft
