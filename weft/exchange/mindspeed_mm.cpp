#include "weft/exchange/mindspeed_mm.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include <fmt/format.h>

#include "weft/exchange/mindspeed_entries.h"
#include "weft/exchange/refusals.h"
#include "weft/exchange/target_limits.h"
#include "weft/exchange/targets.h"
#include "weft/spec/sample_load.h"

namespace weft {
namespace {

constexpr const char* kPredictFirst = "Simulate the plan first, or make it with weft plan.";

std::string array_of(const std::vector<std::vector<int64_t>>& rows) {
  std::vector<int64_t> stages;
  for (const auto& row : rows) stages.push_back(row.front());
  return fmt::format("[{}]", fmt::join(stages, ", "));
}

/// A number that prints as one is used to: without the last digits of binary arithmetic.
double rounded(double value) {
  constexpr double kMillionths = 1e6;
  return std::round(value * kMillionths) / kMillionths;
}

class SearchResult {
 public:
  explicit SearchResult(const Plan& plan) : plan_(plan), llm_(plan.llm()) {}

  Result<std::vector<ExportedFile>> run() {
    refuse_settings();
    refuse_missing_prediction();
    if (!refusals_.empty()) return refusals_.error();
    WEFT_TRY(const SampleLoad sample, average_sample(plan_.model, plan_.workload));
    const double tokens_per_s = plan_.predicted.throughput_samples_per_s * num_tokens(sample.llm);
    return std::vector<ExportedFile>{
        {"auto_parallel_search_optimal_config.json", text(tokens_per_s / static_cast<double>(plan_.world_size))}};
  }

  std::optional<Error> refused() {
    refuse_settings();
    if (refusals_.empty()) return std::nullopt;
    return refusals_.error();
  }

 private:
  void refuse_settings() {
    refuse_what_no_target_has(plan_, refusals_);
    refuse_degrees();
    refuse_modules();
  }

  void refuse_degrees() {
    if (!limits_.has_schedule(plan_.schedule.name))
      refusals_.add("schedule.name",
                    fmt::format("is {}, but MindSpeed-MM's search result is for 1f1b", plan_.schedule.name));
    for (const auto& [name, value, most] : {std::tuple{"cp", llm_.cp, limits_.most_cp},
                                            {"ep", llm_.ep, limits_.most_ep},
                                            {"vpp", llm_.vpp, limits_.most_vpp}}) {
      if (value > most) {
        refusals_.add(llm_, name,
                      fmt::format("is {}, but MindSpeed-MM's search result has only PP, TP, DP and MBS", value));
      }
    }
    refuse_mindspeed_order(llm_, refusals_);
  }

  void refuse_modules() {
    for (const ModulePlan& module : plan_.modules) {
      if (module.kind == ModuleKind::kAudio)
        refusals_.add(module, "placement",
                      "is inline, but MindSpeed-MM's search result places vision and llm layers only");
      if (module.zero > limits_.most_zero) {
        refusals_.add(
            module, "zero",
            fmt::format("is {}, but the distributed optimizer of MindSpeed-MM's search is ZeRO 1", module.zero));
      }
      refuse_scattered(module, refusals_);
      refuse_selective(module, "layer_recompute counts whole layers; use full or none", refusals_);
    }
  }

  void refuse_missing_prediction() {
    const Prediction& predicted = plan_.predicted;
    if (predicted.step_time_ms <= 0) {
      refusals_.add("predicted.step_time_ms", "is 0, but e2e_time comes from it: the plan was never simulated",
                    kPredictFirst);
    } else if (predicted.throughput_samples_per_s <= 0) {
      refusals_.add("predicted.throughput_samples_per_s", "is 0, but throughput comes from it", kPredictFirst);
    }
  }

  std::string text(double tokens_per_s_per_device) const {
    const ModulePlan* vision = plan_.find(ModuleKind::kVision);
    const std::vector<std::vector<int64_t>> none(static_cast<size_t>(llm_.pp), {0});
    return fmt::format(
        R"({{
    "parallel_config": {{"PP": {}, "TP": {}, "DP": {}, "MBS": {}}},
    "layer_placement": {{
        "vit_layer_placement": {},
        "llm_layer_placement": {}
    }},
    "layer_recompute": {{
        "vit_layer_recompute": {},
        "llm_layer_recompute": {}
    }},
    "e2e_time": {},
    "throughput": {}
}}
)",
        llm_.pp, llm_.tp, llm_.dp, plan_.schedule.mbs, array_of(vision == nullptr ? none : vision->layers),
        array_of(llm_.layers), array_of(vision == nullptr ? none : full_recompute(*vision)),
        array_of(full_recompute(llm_)), Json(rounded(plan_.predicted.step_time_ms)).dump(),
        Json(rounded(tokens_per_s_per_device)).dump());
  }

  const Plan& plan_;
  const ModulePlan& llm_;
  const TargetLimits& limits_ = mindspeed_search_limits();
  Refusals refusals_{"MindSpeed-MM"};
};

}  // namespace

Result<std::vector<ExportedFile>> export_mindspeed_search(const Plan& plan) {
  return SearchResult(plan).run();
}

std::optional<Error> refused_by_mindspeed_search(const Plan& plan) {
  return SearchResult(plan).refused();
}

bool is_one_pipeline(const Plan& plan) {
  return std::all_of(plan.modules.begin(), plan.modules.end(), [](const ModulePlan& module) {
    return !module.is_encoder() || mindspeed_search_limits().has_encoder_placement(module.placement);
  });
}

Result<std::vector<ExportedFile>> export_mindspeed_mm(const Plan& plan) {
  if (!is_one_pipeline(plan)) return export_mindspeed_modules(plan);
  const bool has_encoders = plan.modules.size() > 1;
  if (!has_encoders || !refused_by_mindspeed_search(plan)) return export_mindspeed_search(plan);
  Result<std::vector<ExportedFile>> files = export_mindspeed_pipeline(plan);
  // What the search's file never has a place for is refused by the other one's reasons.
  const bool needs_model = plan.find(ModuleKind::kAudio) != nullptr || plan.llm().cp > 1;
  return files || needs_model ? std::move(files) : export_mindspeed_search(plan);
}

}  // namespace weft
