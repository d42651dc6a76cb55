#include "weft/schedule/step_metrics.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/units.h"

namespace weft {
namespace {

/// JSON has no word for what is not finite.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value));
}

Json of_ranks(const std::vector<RankStep>& ranks, double RankStep::*field, double scale) {
  Json list = Json::array();
  for (const RankStep& rank : ranks) list.push_back(rank.*field * scale);
  return list;
}

}  // namespace

Json to_json(const StepMetrics& metrics) {
  constexpr double kGibibyte = 0x1p30;
  Json json = {{"step", metrics.step},
               {"loss", number(metrics.loss)},
               {"gradient_norm", number(metrics.gradient_norm)},
               {"learning_rate", metrics.learning_rate},
               {"tokens", metrics.num_tokens},
               {"target_tokens", metrics.num_targets},
               {"step_ms", metrics.step_ms},
               {"tokens_per_s", metrics.tokens_per_s()},
               {"model_flops", metrics.model_flops},
               {"model_flops_utilization", metrics.utilization ? Json(*metrics.utilization) : Json()},
               {"compute_ms", of_ranks(metrics.ranks, &RankStep::compute_ms, 1)},
               {"communication_ms", of_ranks(metrics.ranks, &RankStep::communication_ms, 1)},
               {"bubble_ms", of_ranks(metrics.ranks, &RankStep::bubble_ms, 1)},
               {"data_ms", of_ranks(metrics.ranks, &RankStep::data_ms, 1)},
               {"peak_memory_gib", of_ranks(metrics.ranks, &RankStep::peak_memory_bytes, 1 / kGibibyte)}};
  for (const auto& [module, norm] : metrics.module_gradient_norms) json["module_gradient_norms"][module] = number(norm);
  if (metrics.experts) {
    json["expert_rows"] = metrics.experts->rows;
    json["expert_imbalance"] = metrics.experts->imbalance;
    json["expert_bytes"] = metrics.experts->moved_bytes;
  }
  if (metrics.balance_loss != 0) json["balance_loss"] = number(metrics.balance_loss);
  return json;
}

std::string progress_line(const StepMetrics& metrics, int64_t num_steps) {
  double memory = 0;
  for (const RankStep& rank : metrics.ranks) memory = std::max(memory, rank.peak_memory_bytes);
  std::string line =
      fmt::format("step {}/{}  loss {:.4f}  norm {:.3g}  lr {:.2e}  {:.0f} tokens/s", metrics.step, num_steps,
                  metrics.loss, metrics.gradient_norm, metrics.learning_rate, metrics.tokens_per_s());
  if (metrics.utilization) line += fmt::format("  MFU {:.1f} %", *metrics.utilization * 100);
  if (memory > 0) line += "  " + format_bytes(memory);
  return line;
}

}  // namespace weft
