#include "weft/cost/measured_times.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "weft/base/as_double.h"
#include "weft/base/hash.h"
#include "weft/base/text.h"
#include "weft/cost/measured_shape.h"
#include "weft/cost/program_memory.h"
#include "weft/cost/program_time.h"

namespace weft {
namespace {

// Ratios of what was measured to the formula, by their place in a table.
enum Ratio : size_t { kForward, kBackwardInput, kBackwardWeight, kAttention, kSaved, kWorkspace };
static_assert(kWorkspace + 1 == ScatteredTable::kValues);

double ratio_of(double measured, double formula) {
  return formula > 0 ? measured / formula : 1;
}

/// What a rank by itself computes.
BlockSetting setting_of(const BlockShape& shape, Precision precision) {
  BlockSetting setting{.tp = shape.tp,
                       .cp = shape.cp,
                       .cp_ulysses = shape.cp_ulysses,
                       .ep = shape.ep,
                       .sequence_parallel = shape.sequence_parallel,
                       .experts_over_tp = shape.experts_over_tp,
                       .even_experts = true,
                       .precision = precision,
                       .attention = shape.attention};
  setting.tp_link = setting.ulysses_link = setting.ring_link = setting.ep_link = {};
  return setting;
}

/// The same but for what was measured at it.
BlockShape without_load(BlockShape shape) {
  shape.tokens = shape.sequence_tokens = 0;
  return shape;
}

/// How unlike two settings of a block are: what divides its products most.
double difference(const BlockShape& a, const BlockShape& b) {
  const auto doublings = [](int64_t x, int64_t y) { return std::abs(std::log2(as_double(x) / as_double(y))); };
  return 1.0 * doublings(a.tp, b.tp) + 0.5 * doublings(a.cp, b.cp) + 0.25 * doublings(a.cp_ulysses, b.cp_ulysses) +
         1.0 * doublings(a.ep, b.ep) + 0.5 * (a.sequence_parallel != b.sequence_parallel) +
         0.5 * (a.experts_over_tp != b.experts_over_tp) + 8.0 * (a.attention != b.attention);
}

/// A module's first block may keep nothing: tokens and pixels are others'.
bool has_bytes(const BlockMeasurement& m, bool is_entry) {
  return (is_entry || m.kept_bytes > 0) && std::max(m.forward_peak_bytes, m.backward_peak_bytes) > 0;
}

/// One measurement as a point of a table.
struct Point {
  ScatteredTable::Place place;
  ScatteredTable::Values ratios{};
  double formula_ms[3] = {0, 0, 0};
  bool has_attention_ms = false, has_memory = false;
  double spread_percent = 0;
};

/// All points of one setting.
struct Points {
  std::vector<Point> points;
};

/// Sorts by everything that tells tables apart.
struct SettingOrder {
  static auto key(const BlockShape& s) {
    return std::tie(s.module, s.block, s.strategy, s.tp, s.cp, s.cp_ulysses, s.ep, s.sequence_parallel,
                    s.experts_over_tp, s.attention, s.busy_ranks);
  }
  bool operator()(const BlockShape& a, const BlockShape& b) const { return key(a) < key(b); }
};

/// Points at the ends are left out where there are others: nothing lies beyond them to be read.
std::optional<LeftOutError> left_out_error(const ScatteredTable& table, const std::vector<Point>& points) {
  if (table.size() < 2 || table.size() != points.size()) return std::nullopt;
  const auto [least, most] = std::minmax_element(table.places().begin(), table.places().end(),
                                                 [](const auto& a, const auto& b) { return a.x < b.x; });
  LeftOutError error;
  double count = 0;
  for (size_t i = 0; i < table.size(); ++i) {
    const ScatteredTable::Place& place = table.places()[i];
    if (table.size() > 2 && (place.x == least->x || place.x == most->x)) continue;
    const auto own = std::find_if(points.begin(), points.end(), [&](const Point& p) {
      return std::abs(p.place.x - place.x) < 1e-6 && std::abs(p.place.y - place.y) < 1e-6;
    });
    if (own == points.end()) continue;
    double measured = 0, read = 0;
    for (size_t pass = 0; pass < 3; ++pass) {
      measured += own->formula_ms[pass] * table.values()[i][pass];
      read += own->formula_ms[pass] * table.left_out()[i][pass];
    }
    if (measured <= 0) continue;
    const double percent = 100 * std::abs(read / measured - 1);
    error.most_percent = std::max(error.most_percent, percent);
    error.mean_percent = (count * error.mean_percent + percent) / (count + 1);
    count += 1;
  }
  return error;
}

/// What was measured of a block, beside what the formula says of it.
Point point_of(const Module& module, const Block& block, const BlockShape& shape, const BlockMeasurement& m,
               Precision precision, const AnalyticTimes& formula) {
  const bool is_entry = block.name == module.entry.name;
  const BlockSetting setting = setting_of(shape, precision);
  const Segments segments = {{shape.sequence_tokens, shape.tokens / shape.sequence_tokens}};
  const BlockTime time = formula.time_of(module, block, setting, segments, {});
  const BlockMemory memory = weft::memory_of(module, block, setting, segments);
  Point point{.place = {.x = std::log(shape.tokens / as_double(shape.cp)),
                        .y = has_attention(block) ? std::log(shape.sequence_tokens) : 0},
              .formula_ms = {time.forward.compute_ms, time.backward_input.compute_ms, time.backward_weight.compute_ms},
              .has_attention_ms = m.attention_ms > 0 && time.attention.compute_ms > 0,
              .has_memory = has_bytes(m, is_entry),
              .spread_percent = m.sureness.spread_percent};
  point.ratios[kForward] = ratio_of(m.forward_ms, time.forward.compute_ms);
  point.ratios[kBackwardInput] = ratio_of(m.backward_input_ms, time.backward_input.compute_ms);
  // Nobody needs the gradient of a module's inputs. What its first block takes in a backward is for its weights.
  point.ratios[kBackwardWeight] =
      ratio_of(m.backward_weight_ms + (is_entry ? m.backward_input_ms : 0), time.backward_weight.compute_ms);
  point.ratios[kAttention] =
      point.has_attention_ms ? m.attention_ms / time.attention.compute_ms : point.ratios[kForward];
  point.ratios[kSaved] = point.has_memory ? ratio_of(m.kept_bytes, memory.saved) : 1;
  const double on_top = std::max({0.0, m.forward_peak_bytes - m.kept_bytes, m.backward_peak_bytes - m.kept_bytes});
  point.ratios[kWorkspace] = point.has_memory ? ratio_of(on_top, memory.workspace) : 1;
  return point;
}

/// A sentence for each time that cannot be in milliseconds.
void warn_of_units(const Profile& profile, const BlockShape& shape, const Point& point,
                   std::vector<std::string>& warnings) {
  for (const auto& [key, measured_ratio] : {std::pair{"forward_ms", point.ratios[kForward]},
                                            {"backward_input_ms", point.ratios[kBackwardInput]},
                                            {"backward_weight_ms", point.ratios[kBackwardWeight]}}) {
    constexpr NumberRange kPossible{0.01, 100};
    if (measured_ratio == 0 || (measured_ratio >= kPossible.min && measured_ratio <= kPossible.max)) continue;
    warnings.push_back(fmt::format(
        "{}: {} of {} '{}' at {:.0f} tokens, {}, is {:.3g} times what the formula says: is it in milliseconds?",
        profile.source, key, name_of(shape.module), printable(shape.block), shape.tokens, setting_text(shape),
        measured_ratio));
  }
}

}  // namespace

std::string setting_text(const BlockShape& shape) {
  std::string text;
  const auto add = [&](std::string part) { text += (text.empty() ? "" : ", ") + std::move(part); };
  if (shape.tp > 1) add(fmt::format("tp {}", shape.tp));
  if (shape.cp > 1) add(fmt::format("cp {}", shape.cp));
  if (shape.cp_ulysses > 1) add(fmt::format("cp_ulysses {}", shape.cp_ulysses));
  if (shape.ep > 1) add(fmt::format("ep {}", shape.ep));
  if (shape.sequence_parallel) add("sequence parallel");
  if (shape.experts_over_tp) add("experts over tp");
  if (shape.attention == AttentionKernel::kUnfused) add("attention unfused");
  if (!shape.strategy.empty()) add("with a strategy");
  return text.empty() ? "one device" : text;
}

size_t MeasuredTimes::Key::Hash::operator()(const Key& key) const {
  Hasher hasher;
  hasher.add(static_cast<int64_t>(key.module) << 16 | static_cast<int64_t>(key.place) << 4 |
             static_cast<int64_t>(key.attention) << 2 | static_cast<int64_t>(key.sequence_parallel) << 1 |
             static_cast<int64_t>(key.experts_over_tp));
  for (const int64_t part : {key.tp, key.cp, key.cp_ulysses, key.ep}) hasher.add(part);
  return hasher.value();
}

MeasuredTimes::MeasuredTimes(const Cluster& cluster, const Model& model, const Profile& profile, int64_t busy_ranks)
    : operators_(std::make_unique<const OperatorTimes>(profile, busy_ranks)),
      analytic_(cluster, operators_.get()),
      precision_(profile.precision) {
  // A block on one device knows nothing of the cluster's size.
  Cluster one_node = cluster;
  one_node.nodes = 1;
  const AnalyticTimes formula(one_node);
  std::map<BlockShape, Points, SettingOrder> settings;
  for (const BlockMeasurement& m : profile.blocks) {
    const Module* module = model.find(m.shape.module);
    if (module == nullptr || find_block(*module, m.shape.block) == nullptr) {
      warnings_.push_back(fmt::format("{}: measures the block '{}' of {}, which {} does not have", profile.source,
                                      printable(m.shape.block), name_of(m.shape.module), model.name));
      continue;
    }
    const std::optional<Block> block = block_of(*module, m.shape);
    if (!block || (block->program && !block->program->is_layer())) continue;  // of another strategy; of a program
    const BlockShape shape = with_what_counts(*block, m.shape);
    const Point point = point_of(*module, *block, shape, m, profile.precision, formula);
    warn_of_units(profile, shape, point, warnings_);
    Points& points = settings[without_load(shape)];
    points.points.push_back(point);
  }
  for (auto& [setting, of] : settings) {
    auto table = std::make_unique<Table>();
    table->setting = setting;
    // Attention apart, and bytes, only where all points have them: others would pull towards the formula.
    const bool has_attention_ms =
        std::all_of(of.points.begin(), of.points.end(), [](const Point& p) { return p.has_attention_ms; });
    table->has_memory = std::all_of(of.points.begin(), of.points.end(), [](const Point& p) { return p.has_memory; });
    table->least_tokens = table->least_length = INFINITY;
    table->most_tokens = table->most_length = -INFINITY;
    std::vector<ScatteredTable::Place> places;
    std::vector<ScatteredTable::Values> values;
    for (Point& point : of.points) {
      if (!has_attention_ms) point.ratios[kAttention] = point.ratios[kForward];
      if (!table->has_memory) point.ratios[kSaved] = point.ratios[kWorkspace] = 1;
      table->least_tokens = std::min(table->least_tokens, point.place.x);
      table->most_tokens = std::max(table->most_tokens, point.place.x);
      table->least_length = std::min(table->least_length, point.place.y);
      table->most_length = std::max(table->most_length, point.place.y);
      table->spread_percent = std::max(table->spread_percent, point.spread_percent);
      places.push_back(point.place);
      values.push_back(point.ratios);
    }
    table->ratios = ScatteredTable(places, values);
    table->error = left_out_error(table->ratios, of.points);
    tables_.push_back(std::move(table));
  }
  keep_nearest(busy_ranks);
}

void MeasuredTimes::keep_nearest(int64_t busy_ranks) {
  const auto is_better = [&](int64_t a, int64_t b) {
    if ((a <= busy_ranks) != (b <= busy_ranks)) return a <= busy_ranks;
    return a <= busy_ranks ? a > b : a < b;
  };
  std::map<BlockShape, std::unique_ptr<Table>, SettingOrder> kept;
  for (auto& table : tables_) {
    BlockShape setting = table->setting;
    setting.busy_ranks = 1;
    auto& best = kept[setting];
    if (best == nullptr || is_better(table->setting.busy_ranks, best->setting.busy_ranks)) best = std::move(table);
  }
  tables_.clear();
  for (auto& [ignored, table] : kept) tables_.push_back(std::move(table));
}

const MeasuredTimes::Table* MeasuredTimes::nearest(const BlockShape& asked) const {
  const Table* best = nullptr;
  for (const auto& table : tables_) {
    const BlockShape& has = table->setting;
    if (has.module != asked.module || has.block != asked.block || has.strategy != asked.strategy) continue;
    if (best == nullptr || difference(table->setting, asked) < difference(best->setting, asked)) best = table.get();
  }
  return best;
}

const MeasuredTimes::Table* MeasuredTimes::same(const BlockShape& asked) const {
  const Table* table = nearest(asked);
  return table != nullptr && difference(table->setting, asked) == 0 ? table : nullptr;
}

const MeasuredTimes::Table* MeasuredTimes::table_for(const BlockShape& asked) const {
  if (asked.strategy.empty()) return nearest(asked);
  BlockShape usual = asked;
  usual.strategy.clear();
  const Table* own = same(asked);
  return own != nullptr && same(usual) != nullptr ? own : nearest(usual);
}

MeasuredTimes::Answer& MeasuredTimes::answer_of(const Module& module, const Block& block,
                                                const BlockSetting& setting) const {
  size_t place = 0;  // the exit
  if (&block == &module.entry) place = 1;
  if (const auto* first = module.distinct_layers.data();
      &block >= first && &block < first + module.distinct_layers.size())
    place = 2 + static_cast<size_t>(&block - first);
  const Key key{.module = module.kind,
                .place = place,
                .tp = setting.tp,
                .cp = setting.cp,
                .cp_ulysses = setting.cp_ulysses,
                .ep = setting.ep,
                .sequence_parallel = setting.sequence_parallel,
                .experts_over_tp = setting.experts_over_tp,
                .attention = setting.attention,
                .program = block.program.get()};
  const auto [found, is_new] = answers_.try_emplace(key);
  Answer& answer = found->second;
  if (is_new) {
    answer.asked = without_load(shape_of(module.kind, block, setting, 0, 0));
    answer.has_attention = has_attention(block);
    const bool is_own_program = block.program && !block.program->is_layer();
    if (setting.precision == precision_ && !is_own_program) answer.table = table_for(answer.asked);
  }
  return answer;
}

ScatteredTable::Values MeasuredTimes::ratios_at(Answer& answer, const BlockSetting& setting, const Load& load) const {
  const Table& table = *answer.table;
  const ScatteredTable::Place place{.x = std::log(load.tokens / as_double(setting.cp)),
                                    .y = answer.has_attention ? std::log(load.length) : 0};
  // Sequences of drawn batches reach a little beyond what was measured; that is not worth a word.
  constexpr double kNear = 0.4;
  answer.was_outside |= place.x < table.least_tokens - kNear || place.x > table.most_tokens + kNear ||
                        place.y < table.least_length - kNear || place.y > table.most_length + kNear;
  constexpr double kSame = 1e-6;
  if (!answer.was_between) {
    const auto& places = table.ratios.places();
    answer.was_between = std::none_of(places.begin(), places.end(), [&](const auto& p) {
      return std::abs(p.x - place.x) < kSame && std::abs(p.y - place.y) < kSame;
    });
  }
  return table.ratios.at(place);
}

BlockTime MeasuredTimes::time_of(const Module& module, const Block& block, const BlockSetting& setting,
                                 const Segments& segments) const {
  const Load load = load_of(segments);
  if (load.tokens <= 0 || block.ops.empty()) return {};
  Answer& answer = answer_of(module, block, setting);
  if (block.program && !block.program->is_layer() && answer.num_operators == 0) {
    const ProgramTime time = program_time(*analytic_.meanings().of(block.program, ranks_of(setting)), setting,
                                          analytic_.cluster(), segments, operators_.get());
    answer.num_operators = time.num_measured;
    answer.was_between = time.num_scaled > 0;
    answer.was_outside = time.num_measured < std::ssize(block.program->program.operators);
  }
  if (answer.table == nullptr) return analytic_.time_of(module, block, setting, segments);
  const ScatteredTable::Values ratios = ratios_at(answer, setting, load);
  return analytic_.time_of(module, block, setting, segments,
                           {.forward = ratios[kForward],
                            .backward_input = ratios[kBackwardInput],
                            .backward_weight = ratios[kBackwardWeight],
                            .attention = ratios[kAttention]});
}

BlockMemory MeasuredTimes::memory_of(const Module& module, const Block& block, const BlockSetting& setting,
                                     const Segments& segments) const {
  BlockMemory memory = weft::memory_of(module, block, setting, segments);
  const Load load = load_of(segments);
  if (load.tokens <= 0 || block.ops.empty()) return memory;
  const Table* table = answer_of(module, block, setting).table;
  if (table == nullptr || !table->has_memory) return memory;
  const ScatteredTable::Values ratios = table->ratios.at(
      {.x = std::log(load.tokens / as_double(setting.cp)), .y = has_attention(block) ? std::log(load.length) : 0});
  for (double* part : {&memory.saved, &memory.saved_selective, &memory.statistics, &memory.deferred})
    *part *= ratios[kSaved];
  memory.saved_full = std::min(memory.saved_full, memory.saved);
  memory.workspace *= ratios[kWorkspace];
  return memory;
}

std::vector<BlockSource> MeasuredTimes::sources() const {
  std::map<BlockShape, BlockSource, SettingOrder> all;
  for (const auto& [ignored, answer] : answers_) {
    BlockSource source{.asked = answer.asked};
    if (const Table* table = answer.table) {
      source.taken_from = table->setting;
      source.points = static_cast<int64_t>(table->ratios.size());
      source.error = table->error;
      source.spread_percent = table->spread_percent;
      source.has_memory = table->has_memory;
      source.kind = table->setting.strategy != answer.asked.strategy ? BlockSource::Kind::kRelative
                    : difference(table->setting, answer.asked) > 0   ? BlockSource::Kind::kCarriedOver
                    : answer.was_outside                             ? BlockSource::Kind::kExtrapolated
                    : answer.was_between                             ? BlockSource::Kind::kInterpolated
                                                                     : BlockSource::Kind::kMeasured;
    }
    if (answer.num_operators > 0) {
      source.taken_from = answer.asked;
      source.points = answer.num_operators;
      source.kind = answer.was_outside   ? BlockSource::Kind::kExtrapolated
                    : answer.was_between ? BlockSource::Kind::kInterpolated
                                         : BlockSource::Kind::kMeasured;
    }
    // Settings that the block does not feel are one.
    const auto [found, is_new] = all.try_emplace(answer.asked, source);
    if (!is_new) found->second.kind = std::max(found->second.kind, source.kind);
  }
  std::vector<BlockSource> sources;
  for (auto& [ignored, source] : all) sources.push_back(std::move(source));
  return sources;
}

}  // namespace weft
