#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "weft/exchange/megatron_arguments.h"
#include "weft/exchange/target_limits.h"
#include "weft/exchange/targets.h"
#include "weft/meaning/stage_parts.h"
#include "weft/meaning/weight_copies.h"

namespace weft {
namespace {

/// Sections of a TOML file, in the order in which they are first named.
class TomlText {
 public:
  void set(const std::string& section, const std::string& key, const std::string& value) {
    if (!lines_.contains(section)) order_.push_back(section);
    lines_[section] += fmt::format("{} = {}\n", key, value);
  }
  void set(const std::string& section, const std::string& key, int64_t value) {
    set(section, key, std::to_string(value));
  }
  void set(const std::string& section, const std::string& key, const char* value) {
    set(section, key, fmt::format("\"{}\"", value));
  }

  std::string text() const {
    std::string text;
    for (const std::string& section : order_)
      text += fmt::format("{}[{}]\n{}", text.empty() ? "" : "\n", section, lines_.at(section));
    return text;
  }

 private:
  std::vector<std::string> order_;
  std::map<std::string, std::string> lines_;
};

class TorchtitanExport {
 public:
  explicit TorchtitanExport(const Plan& plan) : plan_(plan), llm_(plan.llm()) {}

  Result<std::vector<ExportedFile>> run() {
    for (const ModulePlan& module : plan_.modules) {
      if (!module.is_encoder()) continue;
      refusals_.add(module, "placement",
                    fmt::format("is {}, but torchtitan's job files describe one chain of decoder layers",
                                name_of(module.placement)),
                    "Export the plan to mindspeed-mm.");
    }
    refuse_what_no_target_has(plan_, refusals_);
    add_batch();
    add_precision_types();
    add_replicas();
    add_degrees();
    add_pipeline();
    add_recompute();
    if (!refusals_.empty()) return refusals_.error();
    return std::vector<ExportedFile>{{"torchtitan.toml", toml_.text()}};
  }

 private:
  /// Without a pipeline what a rank has beyond a microbatch is accumulated; a pipeline takes it in microbatches.
  void add_batch() {
    const int64_t local = llm_.pp > 1 ? plan_.schedule.mbs * plan_.schedule.microbatches : plan_.schedule.mbs;
    toml_.set("training", "local_batch_size", local);
    toml_.set("training", "global_batch_size", plan_.workload.global_batch_samples);
  }

  bool is_sharded() const { return llm_.zero == 3; }

  void add_precision_types() {
    const PrecisionPlan& precision = plan_.precision;
    if (precision.compute != Precision::kBf16 && precision.compute != Precision::kFp32) {
      refusals_.add("precision.compute",
                    fmt::format("is {}, but torchtitan trains in bf16 or fp32", name_of(precision.compute)));
    }
    if (precision.master != Precision::kFp32)
      refusals_.add("precision.master",
                    fmt::format("is {}, but torchtitan keeps weights in fp32", name_of(precision.master)));
    if (precision.reduce != Precision::kFp32)
      refusals_.add("precision.reduce",
                    fmt::format("is {}, but torchtitan reduces gradients in fp32", name_of(precision.reduce)));
    if (precision.compute == Precision::kBf16 && !is_sharded() && llm_.tp * llm_.pp * llm_.cp > 1) {
      refusals_.add("precision.compute",
                    "is bf16 without ZeRO 3, but beside tp, cp or pp torchtitan mixes precisions only with "
                    "sharded weights");
    }
    toml_.set("training", "dtype", "float32");
    toml_.set("training", "mixed_precision_param", precision.compute == Precision::kBf16 ? "bfloat16" : "float32");
    toml_.set("training", "mixed_precision_reduce", "float32");
  }

  void add_replicas() {
    const bool has_replicas = num_weight_copies(llm_) > 1;
    if (has_replicas && llm_.zero != 0 && llm_.zero != 3)
      refusals_.add(llm_, "zero", fmt::format("is {}, but torchtitan replicates all (0) or shards all (3)", llm_.zero));
    if (llm_.cp > 1 && !is_sharded())
      refusals_.add(llm_, "zero",
                    fmt::format("is {} with cp {}, but torchtitan shards weights along cp: 3", llm_.zero, llm_.cp));
    if (has_replicas && !plan_.overlap_dp) refusals_.add("overlap.dp", "is false, but torchtitan always overlaps");
    toml_.set("parallelism", "data_parallel_replicate_degree", is_sharded() ? 1 : llm_.dp);
    toml_.set("parallelism", "data_parallel_shard_degree", is_sharded() ? llm_.dp : 1);
    toml_.set("parallelism", "fsdp_reshard_after_forward", llm_.zero_keep_gathered ? "never" : "always");
  }

  void add_degrees() {
    if (!has_axis_order(llm_, {"tp", "cp", "dp", "pp"})) {
      refusals_.add(
          llm_, "axis_order",
          fmt::format("is [{}], but torchtitan lays ranks out as [tp, cp, dp, pp]", fmt::join(llm_.axis_order, ", ")));
    }
    toml_.set("parallelism", "tensor_parallel_degree", llm_.tp);
    if (llm_.tp > 1 && !llm_.sequence_parallel)
      refusals_.add(llm_, "sequence_parallel", fmt::format("is off with tp {}, but torchtitan always has it", llm_.tp));
    if (plan_.overlap_tp && llm_.tp > 1) {
      toml_.set("parallelism", "enable_async_tensor_parallel", std::string("true"));
      toml_.set("compile", "enable", std::string("true"));
    }
    toml_.set("parallelism", "context_parallel_degree", llm_.cp);
    if (llm_.cp > 1) {
      if (llm_.cp_ulysses > 1)
        refusals_.add(llm_, "cp_ulysses",
                      fmt::format("is {}, but torchtitan sends keys and values around a ring", llm_.cp_ulysses));
      toml_.set("parallelism", "context_parallel_rotate_method", "alltoall");
    }
    if (llm_.ep == 1) return;
    if (!is_sharded())
      refusals_.add(llm_, "ep", fmt::format("is {} without ZeRO 3, but torchtitan's experts share its ranks", llm_.ep));
    toml_.set("parallelism", "expert_parallel_degree", llm_.ep);
    toml_.set("parallelism", "expert_tensor_parallel_degree", llm_.experts_over_tp ? 1 : llm_.tp);
    // As it is priced: by all-to-all.
    toml_.set("parallelism", "expert_parallel_comm_backend", "standard");
  }

  void add_pipeline() {
    toml_.set("parallelism", "pipeline_parallel_degree", llm_.pp);
    const std::string& name = plan_.schedule.name;
    if (!torchtitan_limits().has_schedule(name)) {
      refusals_.add("schedule.name",
                    fmt::format("is {}, but torchtitan runs 1f1b, interleaved_1f1b, gpipe and zb_v", name));
    }
    if (llm_.pp == 1) {
      if (name != "1f1b")
        refusals_.add("schedule.name",
                      fmt::format("is {} with pp 1, but torchtitan then accumulates gradients, which is 1f1b", name));
      return;
    }
    toml_.set("parallelism", "pipeline_parallel_schedule",
              name == "1f1b"    ? "1F1B"
              : name == "gpipe" ? "GPipe"
              : name == "zb_v"  ? "ZBVZeroBubble"
                                : "Interleaved1F1B");
    toml_.set("parallelism", "pipeline_parallel_microbatch_size", plan_.schedule.mbs);
    toml_.set("parallelism", "module_fqns_per_model_part", parts());
  }

  /// Names of the modules of every stage, in the order of the data.
  std::string parts() const {
    std::vector<int64_t> stages;
    for (int64_t stage = 0; stage < llm_.pp * llm_.vpp; ++stage) {
      const StagePlace place = place_of_stage(plan_, static_cast<int32_t>(stage));
      stages.push_back(llm_.layers[static_cast<size_t>(place.rank)][static_cast<size_t>(place.chunk)]);
    }
    std::vector<std::string> texts;
    int64_t layer = 0;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      std::vector<std::string> names;
      if (stage == 0) names.push_back("\"tok_embeddings\"");
      for (int64_t i = 0; i < stages[stage]; ++i) names.push_back(fmt::format("\"layers.{}\"", layer++));
      if (stage + 1 == stages.size()) names.insert(names.end(), {"\"norm\"", "\"output\""});
      texts.push_back(fmt::format("[{}]", fmt::join(names, ", ")));
    }
    return fmt::format("[\n    {},\n]", fmt::join(texts, ",\n    "));
  }

  void add_recompute() {
    const auto full = full_recompute(llm_);
    int64_t blocks = 0, recomputed = 0;
    for (size_t rank = 0; rank < full.size(); ++rank) {
      for (size_t chunk = 0; chunk < full[rank].size(); ++chunk) {
        blocks += llm_.layers[rank][chunk];
        recomputed += full[rank][chunk];
      }
    }
    refuse_selective(llm_, "torchtitan selects operators by itself; use full or none", refusals_);
    if (recomputed != 0 && recomputed != blocks) {
      refusals_.add(llm_, "recompute",
                    fmt::format("has {} of {} blocks, but torchtitan recomputes all or none", recomputed, blocks));
    }
    toml_.set("activation_checkpoint", "mode", recomputed > 0 ? "full" : "none");
  }

  const Plan& plan_;
  const ModulePlan& llm_;
  TomlText toml_;
  Refusals refusals_{"torchtitan"};
};

}  // namespace

Result<std::vector<ExportedFile>> export_torchtitan(const Plan& plan) {
  return TorchtitanExport(plan).run();
}

}  // namespace weft
