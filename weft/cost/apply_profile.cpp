#include "weft/cost/apply_profile.h"

#include <algorithm>
#include <cmath>

#include "weft/base/units.h"
#include "weft/cost/state_cost.h"
#include "weft/meaning/busy_ranks.h"
#include "weft/meaning/usual_precision.h"

namespace weft {
namespace {

/// Measured with at most so many busy ranks, and of these the most.
std::vector<UpdateMeasurement> updates_beside(const Profile& profile, int64_t busy_ranks) {
  int64_t best = 0;
  for (const UpdateMeasurement& update : profile.updates) {
    const int64_t busy = update.busy_ranks;
    const bool is_below = busy <= busy_ranks;
    if (best == 0 || (is_below ? best > busy_ranks || busy > best : best > busy_ranks && busy < best)) best = busy;
  }
  std::vector<UpdateMeasurement> updates;
  for (const UpdateMeasurement& update : profile.updates) {
    if (update.busy_ranks == best) updates.push_back(update);
  }
  return updates;
}

/// An update takes so much, and so much for each element.
struct UpdateLine {
  double fixed_ms = 0;
  double ms_per_element = 0;
};

/// Least squares of relative errors; neither part is negative.
UpdateLine fit_line(const std::vector<UpdateMeasurement>& updates) {
  double ee = 0, ec = 0, cc = 0, e1 = 0, c1 = 0;
  for (const UpdateMeasurement& update : updates) {
    const double e = update.elements / update.ms, c = 1 / update.ms;
    ee += e * e;
    ec += e * c;
    cc += c * c;
    e1 += e;
    c1 += c;
  }
  const double determinant = ee * cc - ec * ec;
  if (determinant > 1e-9 * ee * cc) {
    const UpdateLine line{.fixed_ms = (c1 * ee - e1 * ec) / determinant,
                          .ms_per_element = (e1 * cc - c1 * ec) / determinant};
    if (line.fixed_ms >= 0 && line.ms_per_element > 0) return line;
  }
  return {.ms_per_element = e1 / ee};
}

bool has_bytes_of_all_blocks(const Profile& profile, const Model& model) {
  const auto has = [&](ModuleKind kind, const Block& block) {
    return block.ops.empty() || std::any_of(profile.blocks.begin(), profile.blocks.end(), [&](const auto& m) {
             return m.shape.module == kind && m.shape.block == block.name &&
                    std::max(m.forward_peak_bytes, m.backward_peak_bytes) > 0;
           });
  };
  return std::all_of(model.modules.begin(), model.modules.end(), [&](const Module& module) {
    return has(module.kind, module.entry) && has(module.kind, module.exit) &&
           std::all_of(module.distinct_layers.begin(), module.distinct_layers.end(),
                       [&](const Block& block) { return has(module.kind, block); });
  });
}

}  // namespace

MachineSource apply_profile(const Profile& profile, Plan& plan) {
  MachineSource source;
  Cluster& cluster = plan.cluster;
  source.warnings = apply_links(profile, cluster, &source.links);
  MeasuredMachine& measured = cluster.measured;
  if (profile.action_ms > 0) {
    measured.action_ms = profile.action_ms;
    source.has_action = true;
  }
  measured.step_ms = profile.step_ms;
  source.has_step = profile.step_ms > 0;
  const std::vector<UpdateMeasurement> updates = updates_beside(profile, busy_ranks(plan));
  if (!updates.empty()) {
    const UpdateLine line = fit_line(updates);
    constexpr double kBytesPerMs = 1e6;  // 1 GB/s
    // A profile's updates are of usual states, whatever the plan's are.
    cluster.efficiency.update = update_traffic_bytes(usual_precision(profile.precision)) /
                                (line.ms_per_element * cluster.device.memory_bandwidth_gb_per_s * kBytesPerMs);
    measured.step_ms += line.fixed_ms;
    source.update_points = static_cast<int64_t>(updates.size());
    for (const UpdateMeasurement& update : updates) {
      const double ms = line.fixed_ms + line.ms_per_element * update.elements;
      source.update_error_percent = std::max(source.update_error_percent, 100 * std::abs(ms / update.ms - 1));
    }
  }
  if (profile.reserved_bytes > 0) {
    cluster.device.reserved_memory_gib = profile.reserved_bytes / kGiB;
    source.has_reserved = true;
  }
  if (has_bytes_of_all_blocks(profile, plan.model)) {
    measured.allocator_rounding = 0;
    source.has_memory = true;
  }
  return source;
}

}  // namespace weft
