#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "weft/exchange/megatron_arguments.h"
#include "weft/exchange/megatron_keys.h"
#include "weft/exchange/mindspeed_entries.h"
#include "weft/exchange/mindspeed_mm.h"
#include "weft/exchange/target_limits.h"

namespace weft {
namespace {

/// Encoders in the llm's pipeline, with its degrees: model.json says which layers lie where, the command line the rest.
class PipelineSettings {
 public:
  explicit PipelineSettings(const Plan& plan) : plan_(plan), llm_(plan.llm()) {}

  Result<std::vector<ExportedFile>> run() {
    refuse_what_no_target_has(plan_, refusals_);
    if (!limits_.has_schedule(plan_.schedule.name)) {
      refusals_.add("schedule.name",
                    fmt::format("is {}, but MindSpeed-MM runs encoders in a pipeline with 1f1b", plan_.schedule.name));
    }
    check_degrees();
    Json model = Json::object();
    for (const ModulePlan& module : plan_.modules) {
      if (module.is_encoder()) check_encoder(module);
      Json entries = mindspeed_recompute(module, refusals_);
      if (module.pp > 1) entries["pipeline_num_layers"] = mindspeed_layers(module);
      if (entries.empty()) continue;
      if (module.is_encoder()) entries = {{mindspeed_network_key(module.kind), entries}};
      model[mindspeed_key(module.kind)] = std::move(entries);
    }
    const ArgumentLine line = arguments();
    if (!refusals_.empty()) return refusals_.error();
    return std::vector<ExportedFile>{{"model.json", model.dump(4) + "\n"}, {"mindspeed_mm_args.txt", line.text()}};
  }

 private:
  void check_degrees() {
    for (const auto& [name, value, most] :
         {std::tuple{"ep", llm_.ep, limits_.most_ep}, {"vpp", llm_.vpp, limits_.most_vpp}}) {
      if (value > most)
        refusals_.add(llm_, name, fmt::format("is {}, but Weft knows no settings of MindSpeed-MM for it", value));
    }
    refuse_mindspeed_order(llm_, refusals_);
    if (llm_.zero > limits_.most_zero) {
      refusals_.add(llm_, "zero",
                    fmt::format("is {}, but the distributed optimizer of MindSpeed-MM is ZeRO 1", llm_.zero));
    }
  }

  void check_encoder(const ModulePlan& encoder) {
    refuse_mindspeed_mixed_zero(plan_, encoder, refusals_);
    if (encoder.cp > 1 && encoder.cp_ulysses != llm_.cp_ulysses) {
      refusals_.add(encoder, "cp_ulysses",
                    fmt::format("is {} where the llm's is {}, but MindSpeed-MM has one for all modules",
                                encoder.cp_ulysses, llm_.cp_ulysses));
    }
  }

  ArgumentLine arguments() {
    ArgumentLine line;
    line.add(megatron_key::kTp, llm_.tp);
    line.add(megatron_key::kPp, llm_.pp);
    line.add(megatron_key::kCp, llm_.cp);
    if (llm_.cp > 1) add_mindspeed_context(llm_, line);
    line.add(megatron_key::kMbs, plan_.schedule.mbs);
    line.add(megatron_key::kBatch, plan_.workload.global_batch_samples);
    if (llm_.sequence_parallel) line.add(megatron_key::kSequenceParallel);
    if (llm_.sequence_parallel && plan_.overlap_tp) line.add(megatron_key::kTpOverlapAscend);
    add_data_parallel(plan_, line);
    add_precision(plan_.precision, line, refusals_);
    return line;
  }

  const Plan& plan_;
  const ModulePlan& llm_;
  const TargetLimits& limits_ = mindspeed_pipeline_limits();
  Refusals refusals_{"MindSpeed-MM"};
};

}  // namespace

Result<std::vector<ExportedFile>> export_mindspeed_pipeline(const Plan& plan) {
  return PipelineSettings(plan).run();
}

}  // namespace weft
