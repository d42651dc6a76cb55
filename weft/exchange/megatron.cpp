#include <algorithm>

#include <fmt/format.h>

#include "weft/exchange/megatron_arguments.h"
#include "weft/exchange/megatron_keys.h"
#include "weft/exchange/megatron_layout.h"
#include "weft/exchange/target_limits.h"
#include "weft/exchange/targets.h"

namespace weft {
namespace {

namespace key = megatron_key;

class MegatronExport {
 public:
  explicit MegatronExport(const Plan& plan) : plan_(plan), llm_(plan.llm()) {}

  Result<std::vector<ExportedFile>> run() {
    refuse_encoders();
    refuse_what_no_target_has(plan_, refusals_);
    add_degrees();
    add_stages();
    add_context();
    add_order();
    line_.add(key::kMbs, plan_.schedule.mbs);
    line_.add(key::kBatch, plan_.workload.global_batch_samples);
    add_recompute();
    add_replicas();
    add_precision(plan_.precision, line_, refusals_);
    if (!refusals_.empty()) return refusals_.error();
    return std::vector<ExportedFile>{{"megatron_args.txt", line_.text()}};
  }

 private:
  void refuse_encoders() {
    for (const ModulePlan& module : plan_.modules) {
      if (!module.is_encoder() || limits_.has_encoder_placement(module.placement)) continue;
      refusals_.add(module, "placement",
                    fmt::format("is {}, but the arguments of Megatron-LM describe one chain of decoder layers, without "
                                "encoders",
                                name_of(module.placement)),
                    "Export the plan to mindspeed-mm.");
    }
  }

  void add_degrees() {
    line_.add(key::kTp, llm_.tp);
    if (llm_.sequence_parallel) line_.add(key::kSequenceParallel);
    if (llm_.tp > 1 && llm_.sequence_parallel && plan_.overlap_tp) line_.add(key::kTpOverlap);
    line_.add(key::kPp, llm_.pp);
    if (llm_.ep > 1) {
      line_.add(key::kEp, llm_.ep);
      // As it was priced; Megatron-LM's own default gathers all rows instead.
      line_.add(key::kDispatcher, "alltoall");
    }
    if (llm_.experts_over_tp) line_.add(key::kExpertTp, 1);
    if (llm_.ep > 1 && llm_.tp > 1 && !llm_.sequence_parallel) {
      refusals_.add(llm_, "sequence_parallel",
                    fmt::format("is off, but with tp {} and ep {} Megatron-LM needs it", llm_.tp, llm_.ep));
    }
  }

  void add_stages() {
    const std::string& name = plan_.schedule.name;
    if (!limits_.has_schedule(name)) {
      refusals_.add("schedule.name", fmt::format("is {}, but Megatron-LM runs 1f1b and interleaved_1f1b", name));
    }
    if (llm_.vpp > 1) check_interleaving();
    if (!is_even(llm_.layers)) {
      line_.add(key::kLayout, megatron_layout(llm_.layers));
    } else if (llm_.vpp > 1) {
      line_.add(key::kLayersPerChunk, llm_.layers.front().front());
    }
  }

  void check_interleaving() {
    if (llm_.pp == 1) {
      refusals_.add(llm_, "vpp",
                    fmt::format("is {} with pp 1, but Megatron-LM interleaves only with pp above 1", llm_.vpp));
    }
    if (plan_.schedule.microbatches % llm_.pp != 0) {
      refusals_.add("schedule.microbatches",
                    fmt::format("is {}, but with interleaving Megatron-LM needs a multiple of pp {}",
                                plan_.schedule.microbatches, llm_.pp));
    }
  }

  void add_context() {
    line_.add(key::kCp, llm_.cp);
    if (llm_.cp == 1) return;
    if (llm_.cp_ulysses == 1) {
      line_.add(key::kCpKind, "p2p");
    } else if (llm_.cp_ulysses == llm_.cp) {
      line_.add(key::kCpKind, "a2a");
    } else {
      line_.add(key::kCpKind, "a2a+p2p");
      line_.add(key::kCpSizes, fmt::format("{} {}", llm_.cp_ulysses, llm_.cp / llm_.cp_ulysses));
    }
  }

  void add_order() {
    if (has_axis_order(llm_, {"tp", "cp", "dp", "pp"})) return;
    const std::string order = fmt::format("{}", fmt::join(llm_.axis_order, ", "));
    if (!limits_.allows_stages_side_by_side || !has_axis_order(llm_, {"tp", "cp", "pp", "dp"})) {
      refusals_.add(
          llm_, "axis_order",
          fmt::format("is [{}], but Megatron-LM lays ranks out as [tp, cp, dp, pp] or [tp, cp, pp, dp]", order));
    } else if (llm_.ep > 1) {
      // The experts' pipeline groups would not be the dense layers'.
      refusals_.add(
          llm_, "axis_order",
          fmt::format("is [{}], but with ep {} Megatron-LM lays ranks out as [tp, cp, dp, pp]", order, llm_.ep));
    } else {
      line_.add(key::kStagesInside);
    }
  }

  void add_recompute() {
    const auto recompute = megatron_recompute(llm_, refusals_);
    if (!recompute || recompute->kind == MegatronRecompute::Kind::kNone) return;
    if (recompute->kind == MegatronRecompute::Kind::kSelective) {
      line_.add(key::kRecompute, "selective");
      line_.add(key::kRecomputeModules, "core_attn");
    } else {
      line_.add(key::kRecompute, "full");
      line_.add(key::kRecomputeMethod, "block");
      line_.add(key::kRecomputeLayers, recompute->num_layers);
    }
  }

  void add_replicas() {
    if (llm_.zero < 2) {
      add_data_parallel(plan_, line_);
    } else {
      add_fully_sharded();
    }
  }

  void add_fully_sharded() {
    if (llm_.pp > 1) {
      refusals_.add(llm_, "zero",
                    fmt::format("is {} with pp {}, but Megatron-LM's fully sharded data parallelism is "
                                "not documented for pipelines; use zero 0 or 1",
                                llm_.zero, llm_.pp));
    }
    if (llm_.zero_keep_gathered) {
      refusals_.add(llm_, "zero_keep_gathered",
                    "is true, but Megatron-LM's fully sharded data parallelism gathers weights again for the backward");
    }
    if (!plan_.overlap_dp) {
      refusals_.add("overlap.dp", fmt::format("is false, but with zero {} Megatron-LM always overlaps", llm_.zero));
    }
    line_.add(key::kFsdp);
    line_.add(key::kDistributedOptimizer);
    line_.add(key::kSharding, llm_.zero == 2 ? "optim_grads" : "optim_grads_params");
    line_.add(key::kCheckpointFormat, "fsdp_dtensor");
    line_.add(key::kOverlapReduce);
    line_.add(key::kOverlapGather);
    line_.add(key::kFsdpBucket, bucket_elements(plan_));
  }

  const Plan& plan_;
  const ModulePlan& llm_;
  const TargetLimits& limits_ = megatron_limits();
  ArgumentLine line_;
  Refusals refusals_{"Megatron-LM"};
};

}  // namespace

Result<std::vector<ExportedFile>> export_megatron(const Plan& plan) {
  return MegatronExport(plan).run();
}

}  // namespace weft
