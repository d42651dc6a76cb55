#include "weft/cost/measured_times.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/cost/collective_time.h"

namespace weft {
namespace {

const Block* find_block(const Module& module, const std::string& name) {
  if (module.entry.name == name) return &module.entry;
  if (module.exit.name == name) return &module.exit;
  for (const Block& kind : module.layer_kinds) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

double ratio_of(double measured_ms, double formula_ms) {
  return formula_ms > 0 ? measured_ms / formula_ms : 1;
}

/// How far between a and b x lies, 0 to 1; beyond them it stays at the end.
double between(double x, double a, double b) {
  return b > a ? std::clamp((x - a) / (b - a), 0.0, 1.0) : 0.0;
}

}  // namespace

MeasuredTimes::MeasuredTimes(const Cluster& cluster, const Model& model, const Profile& profile)
    : analytic_(cluster), precision_(profile.precision) {
  // A block on one device knows nothing of the cluster's size.
  Cluster one_node = cluster;
  one_node.nodes = 1;
  const AnalyticTimes formula(one_node);
  for (const BlockMeasurement& m : profile.blocks) {
    const BlockShape& shape = m.shape;
    if (shape.cp > 1 || shape.experts_over_tp) continue;
    const Module* module = model.find(shape.module);
    const Block* block = module == nullptr ? nullptr : find_block(*module, shape.block);
    if (block == nullptr) {
      warnings_.insert(fmt::format("{}: measures the block '{}' of {}, which {} does not have", profile.source,
                                   shape.block, name_of(shape.module), model.name));
      continue;
    }
    BlockSetting setting{.tp = shape.tp,
                         .ep = shape.ep,
                         .sequence_parallel = shape.sequence_parallel,
                         .precision = profile.precision,
                         .attention = shape.attention};
    setting.ep_link.num_ranks = setting.tp_link.num_ranks = 1;  // compute alone
    const Segments segments = {{shape.sequence_tokens, shape.tokens / shape.sequence_tokens}};
    const BlockTime time = formula.time_of(*module, *block, setting, segments);
    const Point point{.log_tokens = std::log(shape.tokens),
                      .ratios = {ratio_of(m.forward_ms, time.forward.compute_ms),
                                 ratio_of(m.backward_input_ms, time.backward_input.compute_ms),
                                 ratio_of(m.backward_weight_ms, time.backward_weight.compute_ms)}};
    for (const auto& [key, measured_ratio] : {std::pair{"forward_ms", point.ratios.forward},
                                              {"backward_input_ms", point.ratios.backward_input},
                                              {"backward_weight_ms", point.ratios.backward_weight}}) {
      constexpr NumberRange kUsual{0.1, 10};
      if (measured_ratio >= kUsual.min && measured_ratio <= kUsual.max) continue;
      warnings_.insert(fmt::format(
          "{}: {} of {} '{}' at tp {} is {:.3g} times what the formula says, usual are {} to {}: is "
          "it in milliseconds?",
          profile.source, key, name_of(shape.module), shape.block, shape.tp, measured_ratio, kUsual.min, kUsual.max));
    }
    auto table = std::find_if(tables_.begin(), tables_.end(), [&](const Table& t) {
      return t.module == shape.module && t.block == shape.block && t.tp == shape.tp && t.ep == shape.ep &&
             t.sequence_parallel == shape.sequence_parallel && t.attention == shape.attention;
    });
    if (table == tables_.end()) {
      tables_.push_back({shape.module, shape.block, shape.tp, shape.ep, shape.sequence_parallel, shape.attention, {}});
      table = tables_.end() - 1;
    }
    const double log_length = std::log(shape.sequence_tokens);
    auto row =
        std::find_if(table->rows.begin(), table->rows.end(), [&](const Row& r) { return r.log_length == log_length; });
    if (row == table->rows.end()) row = table->rows.insert(row, Row{.log_length = log_length});
    row->points.push_back(point);
  }
  for (Table& table : tables_) {
    std::sort(table.rows.begin(), table.rows.end(),
              [](const Row& a, const Row& b) { return a.log_length < b.log_length; });
    for (Row& row : table.rows) {
      std::sort(row.points.begin(), row.points.end(),
                [](const Point& a, const Point& b) { return a.log_tokens < b.log_tokens; });
    }
  }
}

const MeasuredTimes::Table* MeasuredTimes::find(const Module& module, const Block& block,
                                                const BlockSetting& setting) const {
  // Blocks are measured with experts that tensor parallelism cuts.
  if (setting.precision != precision_ || setting.experts_over_tp) return nullptr;
  for (const Table& t : tables_) {
    const bool is_it = t.module == module.kind && t.block == block.name && t.tp == setting.tp && t.ep == setting.ep &&
                       t.sequence_parallel == setting.sequence_parallel && t.attention == setting.attention;
    if (is_it) return &t;
  }
  return nullptr;
}

MeasuredTimes::Ratios MeasuredTimes::interpolate(const Row& row, double log_tokens) {
  size_t next = 0;
  while (next < row.points.size() && row.points[next].log_tokens < log_tokens) ++next;
  const Point& high = row.points[std::min(next, row.points.size() - 1)];
  const Point& low = row.points[next == 0 ? 0 : next - 1];
  const double share = between(log_tokens, low.log_tokens, high.log_tokens);
  const auto mix = [&](double Ratios::*part) { return (1 - share) * (low.ratios.*part) + share * (high.ratios.*part); };
  return {mix(&Ratios::forward), mix(&Ratios::backward_input), mix(&Ratios::backward_weight)};
}

BlockTime MeasuredTimes::time_of(const Module& module, const Block& block, const BlockSetting& setting,
                                 const Segments& segments) const {
  BlockTime time = analytic_.time_of(module, block, setting, segments);
  const double tokens = num_tokens(segments);
  if (tokens <= 0) return time;
  const Table* table = find(module, block, setting);
  if (table == nullptr) {
    warnings_.insert(fmt::format(
        "the profile has no {} '{}' at tp {}{}{}, attention {}: its time comes from the formula", name_of(module.kind),
        block.name, setting.tp, setting.ep > 1 ? fmt::format(", ep {}", setting.ep) : "",
        setting.sequence_parallel ? ", sequence parallel" : "", name_of(setting.attention)));
    return time;
  }
  double squares = 0;
  for (const Segment& segment : segments) squares += segment.count * segment.length * segment.length;
  const double log_tokens = std::log(tokens / static_cast<double>(setting.cp));
  const double log_length = std::log(squares / tokens);
  constexpr double kTolerance = 1e-6;
  size_t next = 0;
  while (next < table->rows.size() && table->rows[next].log_length < log_length - kTolerance) ++next;
  const Row& high = table->rows[std::min(next, table->rows.size() - 1)];
  // On a row, its neighbours' ends do not matter.
  const bool is_on_row = std::abs(high.log_length - log_length) <= kTolerance;
  const Row& low = is_on_row ? high : table->rows[next == 0 ? 0 : next - 1];
  const bool is_outside =
      log_length < table->rows.front().log_length - kTolerance ||
      log_length > table->rows.back().log_length + kTolerance ||
      log_tokens < std::max(low.points.front().log_tokens, high.points.front().log_tokens) - kTolerance ||
      log_tokens > std::min(low.points.back().log_tokens, high.points.back().log_tokens) + kTolerance;
  if (is_outside) {
    warnings_.insert(fmt::format("{} '{}' at tp {} is asked for outside the profile's table and extrapolated",
                                 name_of(module.kind), block.name, setting.tp));
  }
  const Ratios a = interpolate(low, log_tokens);
  const Ratios b = interpolate(high, log_tokens);
  const double share = between(log_length, low.log_length, high.log_length);
  // Measured is a device by itself, whose host does not get ahead while it communicates.
  BlockSetting alone = setting;
  alone.tp_link = alone.ulysses_link = alone.ring_link = alone.ep_link = {};
  const BlockTime own = analytic_.time_of(module, block, alone, segments);
  const double forward = (1 - share) * a.forward + share * b.forward;
  time.forward.compute_ms = forward * own.forward.compute_ms;
  time.attention.compute_ms = forward * own.attention.compute_ms;
  time.backward_input.compute_ms =
      ((1 - share) * a.backward_input + share * b.backward_input) * own.backward_input.compute_ms;
  time.backward_weight.compute_ms =
      ((1 - share) * a.backward_weight + share * b.backward_weight) * own.backward_weight.compute_ms;
  return time;
}

std::vector<std::string> apply_links(const Profile& profile, Cluster& cluster) {
  std::vector<std::string> warnings;
  for (const bool is_between : {false, true}) {
    const LinkMeasurement* largest = nullptr;
    const LinkMeasurement* smallest = nullptr;
    for (const LinkMeasurement& m : profile.links) {
      if (m.is_between_nodes != is_between) continue;
      if (largest == nullptr || m.bytes > largest->bytes) largest = &m;
      if (smallest == nullptr || m.bytes < smallest->bytes) smallest = &m;
    }
    if (largest == nullptr) continue;
    // Two measurements, two unknowns: time = passes · (share · bytes / bandwidth + hops · latency).
    const auto passes = [](const LinkMeasurement& m) { return m.collective == "all_reduce" ? 2.0 : 1.0; };
    const auto share = [](const LinkMeasurement& m) { return 1 - 1.0 / static_cast<double>(m.ranks); };
    // Of a group with several ranks on a node, the hops inside are left to the bandwidth.
    const auto hops = [&](const LinkMeasurement& m) {
      const int64_t nodes = is_between ? m.ranks / std::max<int64_t>(1, m.ranks_per_node) : m.ranks;
      const auto ring = static_cast<double>(nodes - 1);
      return m.collective == "all_reduce" ? std::min(ring, num_tree_hops(m.ranks)) : ring;
    };
    Link& link = is_between ? cluster.between_nodes : cluster.within_node;
    const double large_ms = largest->ms / passes(*largest), large_bytes = share(*largest) * largest->bytes;
    const double small_ms = smallest->ms / passes(*smallest), small_bytes = share(*smallest) * smallest->bytes;
    const double determinant = large_bytes * hops(*smallest) - small_bytes * hops(*largest);
    if (determinant > 0)
      link.latency_us = 1e3 * std::max(0.0, (large_bytes * small_ms - small_bytes * large_ms) / determinant);
    const double moving_ms = large_ms - hops(*largest) * link.latency_us * 1e-3;
    if (moving_ms <= 0) continue;
    const double reached = large_bytes / moving_ms * 1e-6;
    double& efficiency = is_between ? cluster.efficiency.between_nodes : cluster.efficiency.within_node;
    // What such a group could have at best: its share of a node's cards.
    Cluster ideal = cluster;
    ideal.efficiency.within_node = ideal.efficiency.between_nodes = 1;
    const GroupPlacement placement{.link = is_between ? LinkKind::kBetweenNodes : LinkKind::kWithinNode,
                                   .num_ranks = largest->ranks,
                                   .most_ranks_per_node = largest->ranks_per_node,
                                   .groups_per_node = is_between ? 1 : 0};
    const double share_reached = reached * 1e6 / link_of(ideal, placement).ring_bytes_per_ms;
    efficiency = std::clamp(share_reached, 0.01, 1.0);
    if (share_reached > 1.02 || share_reached < 0.01) {
      warnings.push_back(
          fmt::format("{}: links: {} over {} ranks reached {:.4g} GB/s, {:.3g} times what the cluster's links allow; "
                      "usual are 0.3 to "
                      "0.95: are bytes and ms right, and links.{}.bandwidth_gb_per_s?",
                      profile.source, largest->collective, largest->ranks, reached, share_reached,
                      is_between ? "between_nodes" : "within_node"));
    }
  }
  return warnings;
}

}  // namespace weft
