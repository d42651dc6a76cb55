#include "weft/simulate/asked_shapes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/base/as_double.h"
#include "weft/cost/measured_shape.h"

namespace weft {
namespace {

/// How often a module runs the block.
double num_copies(const Module& module, const Block& block) {
  for (size_t kind = 0; kind < module.distinct_layers.size(); ++kind) {
    if (&module.distinct_layers[kind] == &block)
      return as_double(std::count(module.layers.begin(), module.layers.end(), kind));
  }
  return 1;
}

/// A length that sequences of the module can have: images are rectangles of whole embeddings, not far from squares.
double possible_length(ModuleKind kind, const MediaGeometry& media, double length) {
  if (kind == ModuleKind::kLlm) return std::max(1.0, std::round(length));
  if (kind == ModuleKind::kVision && media.patches_per_tile > 0) return as_double(media.rows_per_tile());
  const int64_t unit = kind == ModuleKind::kVision ? media.patches_per_embedding : media.audio_positions_per_embedding;
  const double each = as_double(std::max<int64_t>(1, unit));
  const double embeddings = std::max(1.0, std::round(length / each));
  if (kind == ModuleKind::kAudio) return each * embeddings;
  const double height = std::max(1.0, std::round(std::sqrt(embeddings)));
  return each * height * std::max(1.0, std::round(embeddings / height));
}

}  // namespace

void AskedShapes::add(const Module& module, const Block& block, const BlockSetting& setting, const Segments& segments,
                      const BlockTime& time) {
  const Load load = load_of(segments);
  if (load.tokens <= 0 || block.ops.empty()) return;
  // The plan's model may be gone before this is; blocks are looked up by place in this one's.
  const Module& own = *model_.find(module.kind);
  const Block* own_block = &own.exit;
  if (&block == &module.entry) own_block = &own.entry;
  for (size_t kind = 0; kind < module.distinct_layers.size(); ++kind) {
    if (&block == &module.distinct_layers[kind]) own_block = &own.distinct_layers[kind];
  }
  const BlockShape shape = shape_of(module.kind, block, setting, load.tokens, load.length);
  const Key key{
      own_block,      shape.tp, shape.cp, shape.cp_ulysses, shape.ep, shape.sequence_parallel, shape.experts_over_tp,
      shape.attention};
  Asked& asked = asked_[key];
  if (asked.block == nullptr) asked = {.module = &own, .block = own_block, .setting = shape, .points = {}};
  const Point next{.log_tokens = std::log(shape.tokens),
                   .log_length = has_attention(block) ? std::log(load.length) : 0,
                   .log_sequence = std::log(load.length),
                   .ms = weight_ * num_copies(own, *own_block) *
                         (time.forward.compute_ms + time.backward_input.compute_ms + time.backward_weight.compute_ms)};
  constexpr double kCells = 20;  // in a factor of e
  Point& point = asked.points[{std::llround(kCells * next.log_tokens), std::llround(kCells * next.log_length)}];
  // The middle of what fell into the cell.
  const double all_ms = point.ms + next.ms;
  const double share = all_ms > 0 ? next.ms / all_ms : 1;
  point = {.log_tokens = point.log_tokens + share * (next.log_tokens - point.log_tokens),
           .log_length = point.log_length + share * (next.log_length - point.log_length),
           .log_sequence = point.log_sequence + share * (next.log_sequence - point.log_sequence),
           .ms = all_ms};
}

BlockShape AskedShapes::measurable(const Asked& asked, const Point& point) const {
  const ModuleKind kind = asked.module->kind;
  const double tokens = std::exp(point.log_tokens);
  const double length = std::min(tokens, std::exp(point.log_sequence));
  const double count = std::max(1.0, std::round(tokens / length));
  const double sequence = possible_length(kind, model_.media, tokens / count);
  BlockShape shape = asked.setting;
  shape.busy_ranks = busy_ranks_;
  shape.tokens = count * sequence;
  shape.sequence_tokens = sequence;
  return shape;
}

void AskedShapes::add_wanted(const Asked& asked, std::vector<Wanted>& wanted) const {
  constexpr size_t kMostOfABlock = 6;
  const bool attends = has_attention(*asked.block);
  const auto distance = [](const Point& a, const Point& b) {
    return std::hypot(a.log_tokens - b.log_tokens, a.log_length - b.log_length);
  };
  std::vector<Point> points;
  double all_ms = 0;
  Point middle;
  for (const auto& [ignored, point] : asked.points) {
    points.push_back(point);
    all_ms += point.ms;
    middle.log_tokens += point.ms * point.log_tokens;
    middle.log_length += point.ms * point.log_length;
  }
  if (all_ms > 0) {
    middle.log_tokens /= all_ms;
    middle.log_length /= all_ms;
  }
  // First what is nearest to the middle, then always what lies farthest from all that are there, in units of how far
  // it may: half of a factor of 2 at the middle, half of one of 4 at the ends.
  const auto radius = [&](const Point& p) { return std::clamp(distance(p, middle), std::log(2.0), std::log(4.0)) / 2; };
  std::vector<Wanted> chosen;
  std::vector<Point> places;
  std::vector<double> gaps(points.size(), std::numeric_limits<double>::infinity());
  size_t next = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    if (distance(points[i], middle) < distance(points[next], middle)) next = i;
  }
  while (true) {
    const BlockShape shape = measurable(asked, points[next]);
    const bool is_new = std::none_of(chosen.begin(), chosen.end(), [&](const Wanted& w) { return w.shape == shape; });
    if (is_new) {
      chosen.push_back({.shape = shape});
      places.push_back(
          {.log_tokens = std::log(shape.tokens), .log_length = attends ? std::log(shape.sequence_tokens) : 0});
    }
    gaps[next] = 0;  // what cannot be met any better is met
    for (size_t i = 0; i < points.size(); ++i)
      gaps[i] = std::min(gaps[i], distance(points[i], places.back()) / radius(points[i]));
    next = static_cast<size_t>(std::max_element(gaps.begin(), gaps.end()) - gaps.begin());
    if (gaps[next] <= 1 || chosen.size() == kMostOfABlock) break;
  }
  for (const Point& point : points) {
    size_t nearest = 0;
    for (size_t i = 0; i < places.size(); ++i) {
      if (distance(point, places[i]) < distance(point, places[nearest])) nearest = i;
    }
    chosen[nearest].ms += point.ms;
  }
  wanted.insert(wanted.end(), chosen.begin(), chosen.end());
}

std::vector<BlockShape> AskedShapes::reduced(size_t most) const {
  std::vector<Wanted> wanted;
  for (const auto& [ignored, asked] : asked_) add_wanted(asked, wanted);
  std::stable_sort(wanted.begin(), wanted.end(), [](const Wanted& a, const Wanted& b) { return a.ms > b.ms; });
  std::vector<BlockShape> shapes;
  for (const Wanted& w : wanted) {
    if (shapes.size() == most) break;
    shapes.push_back(w.shape);
  }
  return shapes;
}

}  // namespace weft
