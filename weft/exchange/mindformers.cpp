#include <cmath>

#include <fmt/format.h>

#include "weft/exchange/mindformers_keys.h"
#include "weft/exchange/refusals.h"
#include "weft/exchange/target_limits.h"
#include "weft/exchange/targets.h"
#include "weft/exchange/yaml_text.h"

namespace weft {
namespace {

/// [rank][chunk] as MindFormers has it: per rank, or with interleaving a list per chunk of them.
std::string per_stage(const std::vector<std::vector<int64_t>>& rows) {
  std::vector<std::string> chunks;
  for (size_t chunk = 0; chunk < rows.front().size(); ++chunk) {
    std::vector<int64_t> ranks;
    for (const auto& row : rows) ranks.push_back(row[chunk]);
    chunks.push_back(fmt::format("[{}]", fmt::join(ranks, ", ")));
  }
  return chunks.size() == 1 ? chunks.front() : fmt::format("[{}]", fmt::join(chunks, ", "));
}

std::string type_of(Precision precision) {
  return precision == Precision::kBf16 ? "bfloat16" : precision == Precision::kFp16 ? "float16" : "float32";
}

class MindformersExport {
 public:
  explicit MindformersExport(const Plan& plan) : plan_(plan), llm_(plan.llm()) {}

  Result<std::vector<ExportedFile>> run() {
    refuse_modules();
    refuse_what_no_target_has(plan_, refusals_);
    refuse_overlap();
    add_parallel_config();
    add_recompute();
    add_parallel_context();
    add_batch();
    add_model();
    if (!refusals_.empty()) return refusals_.error();
    return std::vector<ExportedFile>{{"mindformers.yaml", yaml_.text()}};
  }

 private:
  void refuse_modules() {
    for (const ModulePlan& module : plan_.modules) {
      if (!module.is_encoder() || limits_.has_encoder_placement(module.placement)) continue;
      refusals_.add(module, "placement",
                    fmt::format("is {}, but MindFormers' parallel_config is for one chain of layers, without encoders",
                                name_of(module.placement)),
                    "Export the plan to mindspeed-mm.");
    }
  }

  void refuse_overlap() {
    if (plan_.overlap_dp) return;
    refusals_.add("overlap.dp",
                  "is false, but MindSpore's graph compiler orders communication by itself; only true can be "
                  "exported");
  }

  void add_parallel_config() {
    if (!has_axis_order(llm_, {"tp", "cp", "dp", "pp"})) {
      refusals_.add(
          llm_, "axis_order",
          fmt::format("is [{}], but MindFormers lays ranks out as [tp, cp, dp, pp]", fmt::join(llm_.axis_order, ", ")));
    }
    if (llm_.experts_over_tp) {
      refusals_.add(
          llm_, "experts_over_tp",
          "is true, but MindFormers' expert_parallel divides data_parallel, and model_parallel cuts each expert");
    }
    yaml_.set(mindformers_key::kDp, llm_.dp);
    yaml_.set(mindformers_key::kTp, llm_.tp);
    if (llm_.cp > 1) add_context();
    if (llm_.ep > 1) yaml_.set(mindformers_key::kEp, llm_.ep);
    yaml_.set(mindformers_key::kPp, llm_.pp);
    // Without a pipeline MindFormers sets this back to 1 and accumulates gradients instead.
    yaml_.set(mindformers_key::kMicrobatches, llm_.pp > 1 ? plan_.schedule.microbatches : 1);
    yaml_.set(mindformers_key::kSequenceParallel, llm_.sequence_parallel);
    if (llm_.pp > 1 && plan_.schedule.microbatches < llm_.pp) {
      refusals_.add("schedule.microbatches", fmt::format("is {}, but MindFormers needs at least pp {} in a pipeline",
                                                         plan_.schedule.microbatches, llm_.pp));
    }
  }

  void add_context() {
    yaml_.set(mindformers_key::kCp, llm_.cp);
    if (llm_.cp_ulysses == 1) {
      yaml_.set(mindformers_key::kCpAlgorithm, std::string("colossalai_cp"));
    } else if (llm_.cp_ulysses == llm_.cp) {
      yaml_.set(mindformers_key::kCpAlgorithm, std::string("ulysses_cp"));
    } else {
      yaml_.set(mindformers_key::kCpAlgorithm, std::string("hybrid_cp"));
      yaml_.set(mindformers_key::kUlysses, llm_.cp_ulysses);
    }
    if (llm_.sequence_parallel) {
      refusals_.add(
          llm_, "sequence_parallel",
          fmt::format("is on with cp {}, but MindFormers ignores use_seq_parallel beside context_parallel", llm_.cp));
    }
  }

  void add_recompute() {
    refuse_scattered(llm_, refusals_);
    refuse_selective(llm_, "MindFormers selects by the names of a model's operators; use full or none", refusals_);
    yaml_.set(mindformers_key::kRecompute, per_stage(full_recompute(llm_)));
    yaml_.set(mindformers_key::kSelectRecompute, false);
  }

  void add_parallel_context() {
    add_optimizer();
    add_fusion();
    if (llm_.pp > 1) add_pipeline();
    if (llm_.pp == 1) refuse_schedule_without_pipeline();
  }

  /// MindSpore shards weights too on every level and gathers them for the forward. Only its level 3 frees them again
  /// before the backward, so ZeRO 3 that keeps them is its level 2.
  void add_optimizer() {
    yaml_.set(mindformers_key::kZero, llm_.zero > 0);
    if (llm_.zero == 0) return;
    const int64_t level = llm_.zero == 3 && llm_.zero_keep_gathered ? 2 : llm_.zero;
    yaml_.set(mindformers_key::kZeroLevel, fmt::format("level{}", level));
  }

  void add_fusion() {
    const PrecisionPlan& precision = plan_.precision;
    if (precision.reduce != Precision::kFp32 && precision.reduce != precision.compute) {
      refusals_.add("precision.reduce",
                    fmt::format("is {}, but MindFormers reduces gradients in fp32 or in the precision of compute, {}",
                                name_of(precision.reduce), name_of(precision.compute)));
    }
    yaml_.set(mindformers_key::kReduceFp32, precision.reduce == Precision::kFp32);
    if (plan_.buckets_mb != std::floor(plan_.buckets_mb)) {
      refusals_.add("buckets_mb",
                    fmt::format("is {}, but MindFormers' comm_fusion takes whole megabytes", plan_.buckets_mb));
    }
    for (const char* collective : {"allreduce", "allgather", "reducescatter"}) {
      const bool is_sharded = std::string_view(collective) != "allreduce";
      if (is_sharded != (llm_.zero > 0)) continue;
      yaml_.set(fmt::format("{}.{}", mindformers_key::kFusion, collective),
                fmt::format("{{mode: size, config: {}}}", std::llround(plan_.buckets_mb)));
    }
  }

  void add_pipeline() {
    const std::string& name = plan_.schedule.name;
    const bool is_interleaved = name == "interleaved_1f1b";
    if (!limits_.has_schedule(name)) {
      refusals_.add("schedule.name",
                    fmt::format("is {}, but MindFormers places stages for gpipe, 1f1b and interleaved_1f1b", name));
    }
    yaml_.set(mindformers_key::kInterleave, is_interleaved);
    yaml_.set(mindformers_key::kScheduler, std::string(name == "gpipe" ? "gpipe" : "1f1b"));
  }

  void refuse_schedule_without_pipeline() {
    if (plan_.schedule.name == "1f1b") return;
    refusals_.add("schedule.name", fmt::format("is {} with pp 1, but MindFormers then accumulates gradients "
                                               "microbatch by microbatch, which is 1f1b",
                                               plan_.schedule.name));
  }

  void add_batch() {
    yaml_.set(mindformers_key::kBatch, plan_.schedule.mbs);
    yaml_.set(mindformers_key::kAccumulation, llm_.pp > 1 ? 1 : plan_.schedule.microbatches);
  }

  void add_model() {
    const PrecisionPlan& precision = plan_.precision;
    for (const auto& [name, value] :
         {std::pair{"precision.compute", precision.compute}, {"precision.master", precision.master}}) {
      if (value == Precision::kFp64) refusals_.add(name, "is fp64, but MindFormers trains in bf16, fp16 or fp32");
    }
    // What every stage has, or misses, against an even share.
    std::vector<std::vector<int64_t>> offset = llm_.layers;
    int64_t num_layers = 0;
    for (const auto& row : offset) {
      for (const int64_t count : row) num_layers += count;
    }
    if (num_layers < llm_.pp * llm_.vpp) {
      refusals_.add(
          llm_, "layers",
          fmt::format("are {} on {} stages, but MindFormers needs a layer a stage", num_layers, llm_.pp * llm_.vpp));
    }
    for (auto& row : offset) {
      for (int64_t& count : row) count -= num_layers / (llm_.pp * llm_.vpp);
    }
    yaml_.set(mindformers_key::kOffset, per_stage(offset));
    if (llm_.vpp > 1) yaml_.set(mindformers_key::kVpp, llm_.vpp);
    if (llm_.ep > 1) yaml_.set(mindformers_key::kDispatcher, std::string("alltoall"));
    yaml_.set(mindformers_key::kComputeType, type_of(precision.compute));
    yaml_.set(mindformers_key::kParameterType, type_of(precision.master));
  }

  const Plan& plan_;
  const ModulePlan& llm_;
  const TargetLimits& limits_ = mindformers_limits();
  YamlText yaml_;
  Refusals refusals_{"MindFormers"};
};

}  // namespace

Result<std::vector<ExportedFile>> export_mindformers(const Plan& plan) {
  return MindformersExport(plan).run();
}

}  // namespace weft
