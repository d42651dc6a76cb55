#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "weft/exchange/megatron_arguments.h"
#include "weft/exchange/megatron_keys.h"
#include "weft/exchange/mindspeed_entries.h"
#include "weft/exchange/mindspeed_mm.h"
#include "weft/exchange/target_limits.h"
#include "weft/meaning/macro_batch.h"
#include "weft/plan/mbs_scale.h"

namespace weft {
namespace {

/// --hetero-parallel: every module has its degrees in model.json, and those of the command line are all 1.
class ModuleSettings {
 public:
  explicit ModuleSettings(const Plan& plan) : plan_(plan), llm_(plan.llm()) {}

  Result<std::vector<ExportedFile>> run() {
    refuse_what_no_target_has(plan_, refusals_);
    if (!limits_.has_schedule(plan_.schedule.name)) {
      refusals_.add("schedule.name", fmt::format("is {}, but MindSpeed-MM's encoders with degrees of their own run "
                                                 "beside 1f1b",
                                                 plan_.schedule.name));
    }
    Json model = Json::object();
    for (const ModulePlan& module : plan_.modules) {
      if (module.is_encoder()) check_encoder(module);
      check_shared_settings(module);
      model[mindspeed_key(module.kind)] = entries_of(module);
    }
    const ArgumentLine line = arguments();
    if (!refusals_.empty()) return refusals_.error();
    return std::vector<ExportedFile>{{"model.json", model.dump(4) + "\n"}, {"mindspeed_mm_args.txt", line.text()}};
  }

 private:
  void check_encoder(const ModulePlan& encoder) {
    if (!limits_.has_encoder_placement(encoder.placement)) {
      refusals_.add(encoder, "placement",
                    fmt::format("is {}, but beside an encoder with degrees of its own MindSpeed-MM has all modules on "
                                "all ranks, each with its own: colocated",
                                name_of(encoder.placement)));
      return;
    }
    check_form(encoder);
    if (encoder.recompute_from_inputs && !limits_.allows_recompute_from_inputs) {
      refusals_.add(encoder, "recompute_from_inputs",
                    "is true, but MindSpeed-MM recomputes an encoder layer by layer; use recompute");
    }
    check_macro_batch(encoder);
  }

  /// Without a pipeline MindSpeed-MM runs encoders before each microbatch, which needs no more memory than all before.
  void check_form(const ModulePlan& encoder) {
    const bool has_its_turn = encoder.form != EncoderForm::kOnDemand || llm_.pp == 1;
    if (limits_.has_encoder_form(encoder.form) && has_its_turn) return;
    refusals_.add(encoder, "form",
                  fmt::format("is {}, but MindSpeed-MM runs encoders before the llm's pipeline, and without one before "
                              "each microbatch",
                              name_of(encoder.form)));
  }

  /// MindSpeed-MM's scale counts the llm's microbatches that one pass of the encoders covers. Their samples are spread
  /// over the encoder's data-parallel ranks, so a rank's macro batch is scale × dp of the llm / dp of the encoder.
  void check_macro_batch(const ModulePlan& encoder) {
    const int64_t covered = encoder.mbs_scale * encoder.dp, whole = encoder.mbs_parts * llm_.dp;
    const std::string macro_batch = fmt::format("is {} on dp {}", mbs_scale_text(encoder), encoder.dp);
    if (covered % whole != 0) {
      refusals_.add(
          encoder, "mbs_scale",
          fmt::format("{}, which covers {}/{} of the llm's microbatches, but MindSpeed-MM needs a whole number",
                      macro_batch, covered, whole));
      return;
    }
    const int64_t scale = covered / whole;
    if (scale_ && *scale_ != scale) {
      refusals_.add(encoder, "mbs_scale",
                    fmt::format("{}, which covers {} of the llm's microbatches where another encoder covers {}, but "
                                "MindSpeed-MM has one --hetero-encoder-mbs-scale",
                                macro_batch, scale, *scale_));
    } else if (scale > 1 && llm_.pp == 1) {
      refusals_.add(
          encoder, "mbs_scale",
          fmt::format("{}, which covers {} of the llm's microbatches, but where the llm has no pipeline "
                      "MindSpeed-MM runs encoders once for each",
                      macro_batch, scale),
          fmt::format("Use pp above 1 for the llm, or an mbs_scale of {} for the encoder.", one_microbatch(encoder)));
    } else if (plan_.schedule.microbatches % scale != 0) {
      refusals_.add(encoder, "mbs_scale",
                    fmt::format("{}, which covers {} of the llm's microbatches, but MindSpeed-MM needs a number that "
                                "divides all {} of them",
                                macro_batch, scale, plan_.schedule.microbatches));
    }
    scale_ = scale;
  }

  /// The scale of an encoder whose macro batch is one microbatch of all llm ranks.
  std::string one_microbatch(const ModulePlan& encoder) const {
    ModulePlan one = encoder;
    set_mbs_scale(one, llm_.dp, encoder.dp);
    return mbs_scale_text(one);
  }

  /// What the command line says once for all modules.
  void check_shared_settings(const ModulePlan& module) {
    refuse_mindspeed_order(module, refusals_);
    for (const auto& [name, value, most] :
         {std::tuple{"ep", module.ep, limits_.most_ep}, {"vpp", module.vpp, limits_.most_vpp}}) {
      if (value > most) {
        refusals_.add(
            module, name,
            fmt::format("is {}, but the modules of MindSpeed-MM's model.json have only tp, pp and cp", value));
      }
    }
    if (module.zero > limits_.most_zero) {
      refusals_.add(module, "zero",
                    fmt::format("is {}, but with modules of their own degrees MindSpeed-MM has zero 0 "
                                "and 1",
                                module.zero));
    } else {
      refuse_mindspeed_mixed_zero(plan_, module, refusals_);
    }
    if (module.tp > 1 && module.sequence_parallel != llm_.sequence_parallel) {
      refusals_.add(module, "sequence_parallel",
                    fmt::format("is {} where the llm's is {}, but MindSpeed-MM has it for all modules or none",
                                module.sequence_parallel, llm_.sequence_parallel));
    }
    if (module.cp > 1) check_context(module);
  }

  void check_context(const ModulePlan& module) {
    const std::string flags = mindspeed_context_flags(module);
    if (context_ != nullptr && mindspeed_context_flags(*context_) != flags) {
      refusals_.add(module, "cp_ulysses",
                    fmt::format("is {} of cp {}, which is {}, but another module has {}, and MindSpeed-MM has one for "
                                "all",
                                module.cp_ulysses, module.cp, flags, mindspeed_context_flags(*context_)));
    }
    context_ = &module;
  }

  Json entries_of(const ModulePlan& module) {
    Json entries = {{"tp", module.tp}, {"pp", module.pp}, {"cp", module.cp}, {"mbs", samples_at_once(plan_, module)}};
    if (module.pp > 1 && module.vpp == 1) entries["pipeline_num_layers"] = mindspeed_layers(module);
    const Json recompute = mindspeed_recompute(module, refusals_);
    if (recompute.empty()) return entries;
    // The degrees of an encoder stand beside its network, and what the layers do inside it.
    if (module.is_encoder()) {
      entries[mindspeed_network_key(module.kind)] = recompute;
    } else {
      entries.update(recompute);
    }
    return entries;
  }

  ArgumentLine arguments() {
    ArgumentLine line;
    line.add(megatron_key::kHetero);
    line.add(megatron_key::kHeteroScale, scale_.value_or(1));
    for (const char* key : {megatron_key::kTp, megatron_key::kPp, megatron_key::kCp}) line.add(key, 1);
    line.add(megatron_key::kMbs, plan_.schedule.mbs);
    // MindSpeed-MM takes the batch to be meant for the command line's degrees, that is, for dp = world_size, and
    // divides it by the ranks of one replica of the llm.
    line.add(megatron_key::kBatch, plan_.schedule.mbs * plan_.schedule.microbatches * plan_.world_size);
    if (context_ != nullptr) add_mindspeed_context(*context_, line);
    bool is_sequence_parallel = false;
    for (const ModulePlan& module : plan_.modules) is_sequence_parallel |= module.sequence_parallel;
    if (is_sequence_parallel) line.add(megatron_key::kSequenceParallel);
    if (is_sequence_parallel && plan_.overlap_tp) line.add(megatron_key::kTpOverlapAscend);
    add_data_parallel(plan_, line);
    add_precision(plan_.precision, line, refusals_);
    return line;
  }

  const Plan& plan_;
  const ModulePlan& llm_;
  const TargetLimits& limits_ = mindspeed_modules_limits();
  Refusals refusals_{"MindSpeed-MM"};
  std::optional<int64_t> scale_;
  const ModulePlan* context_ = nullptr;  ///< a module with cp above 1
};

}  // namespace

Result<std::vector<ExportedFile>> export_mindspeed_modules(const Plan& plan) {
  return ModuleSettings(plan).run();
}

}  // namespace weft
