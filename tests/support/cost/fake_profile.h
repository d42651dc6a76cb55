#pragma once

#include <cmath>

#include "weft/cost/measured_shape.h"
#include "weft/cost/state_cost.h"
#include "weft/plan/plan.h"
#include "weft/profile/profile.h"

namespace weft {

/// A device that follows a law of its own, nothing like the formula: a start, products whose rate falls with few rows,
/// attention by pairs, and ranks that slow one another down.
struct FakeDevice {
  double flops_per_ms = 4e7;
  double start_ms = 0.05;

  BlockMeasurement measure(const Model& model, const BlockShape& shape) const {
    const Module& module = *model.find(shape.module);
    const Block* block = &module.exit;
    if (module.entry.name == shape.block) block = &module.entry;
    for (const Block& kind : module.distinct_layers) {
      if (kind.name == shape.block) block = &kind;
    }
    const BlockSetting setting{.tp = shape.tp, .ep = shape.ep, .experts_over_tp = shape.experts_over_tp};
    const auto elements = static_cast<double>(local_parameters(*block, setting).total());
    const double rows = shape.tokens / static_cast<double>(shape.cp);
    const double slowness = 1 + 0.1 * static_cast<double>(shape.busy_ranks - 1);
    const double products_ms = 2 * rows * elements / flops_per_ms * (1 + 12 / std::sqrt(rows));
    const double attention_ms = has_attention(*block) ? rows * shape.sequence_tokens *
                                                            static_cast<double>(module.width / shape.tp) / flops_per_ms
                                                      : 0;
    const double forward_ms = slowness * (start_ms + products_ms + attention_ms);
    const double kept_bytes = 10 * rows * static_cast<double>(module.width);
    return {.shape = shape,
            .forward_ms = forward_ms,
            .backward_input_ms = 1.3 * forward_ms,
            .backward_weight_ms = slowness * products_ms,
            .attention_ms = attention_ms > 0 ? slowness * (start_ms + attention_ms) : 0,
            .kept_bytes = kept_bytes,
            .forward_peak_bytes = 1.5 * kept_bytes,
            .backward_peak_bytes = 2.5 * kept_bytes,
            .sureness = {.runs = 20, .spread_percent = 0.5}};
  }

  /// Of shapes of a plan's model, on its cluster.
  Profile profile_of(const Plan& plan, const std::vector<BlockShape>& shapes) const {
    Profile profile{.source = "fake.json",
                    .device = plan.cluster.device.name,
                    .model = plan.model.name,
                    .model_hash = hash_of(plan.model.config),
                    .precision = plan.precision.compute,
                    .action_ms = 0.3,
                    .step_ms = 1.5};
    for (const BlockShape& shape : shapes) profile.blocks.push_back(measure(plan.model, shape));
    for (const double elements : {1e5, 1e6, 1e7})
      profile.updates.push_back({.elements = elements, .ms = 0.2 + elements * 5e-7});
    for (const double bytes : {1e4, 1e6, 1e8}) {
      profile.links.push_back({.collective = "all_reduce", .ranks = 2, .bytes = bytes, .ms = 0.02 + bytes / 2e6});
      profile.links.push_back({.collective = "all_gather", .ranks = 2, .bytes = bytes, .ms = 0.01 + bytes / 5e6});
      profile.links.push_back({.collective = "send", .ranks = 2, .bytes = bytes, .ms = 0.03 + bytes / 3e6});
    }
    return profile;
  }
};

}  // namespace weft
