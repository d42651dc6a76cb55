#include "weft/search/plan_stages.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "weft/base/hash.h"
#include "weft/base/units.h"
#include "weft/meaning/stage_flow.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

/// Sums in another order than the simulator's may differ by this share.
constexpr double kSumHair = 1e-12;

}  // namespace

size_t StagePrices::RunKey::hash() const {
  Hasher hasher;
  hasher.add(static_cast<int64_t>(stage) << 40 | static_cast<int64_t>(first) << 20 | count);
  for (const RecomputeCounts& recompute : recomputes) hasher.add(recompute.full << 32 | recompute.selective);
  return hasher.value();
}

size_t StagePrices::PartKey::hash() const {
  const int flags = (has_entry ? 1 : 0) | (has_exit ? 2 : 0) | (has_copied_table ? 4 : 0) | (sums_table ? 8 : 0);
  Hasher hasher;
  hasher.add(static_cast<int64_t>(module) << 48 | static_cast<int64_t>(first) << 28 | static_cast<int64_t>(count) << 8 |
             flags);
  hasher.add(recompute.full << 32 | recompute.selective);
  return hasher.value();
}

PlanStages::PlanStages(const Plan& plan, const ModuleCostsOf& costs, const SolverShape& shape, StagePrices& prices,
                       Beside beside, const RecomputeSpace& recompute, bool has_memory_limit)
    : plan_(plan),
      costs_(costs),
      shape_(shape),
      prices_(prices),
      beside_(std::move(beside)),
      recompute_(recompute),
      has_memory_limit_(has_memory_limit),
      shares_ranks_(shape.schedule.num_stages() > static_cast<int32_t>(shape.moments.size())),
      splits_(has_split_backward(plan, plan.llm())),
      num_stages_(shape.schedule.num_stages()) {
  for (size_t m = 0; m < plan.modules.size(); ++m) {
    const ModulePlan& module = plan.modules[m];
    if (!module.is_in_pipeline()) continue;
    has_inline_ |= module.is_encoder();
    const auto layers = static_cast<int32_t>(plan.model.find(module.kind)->layers.size());
    int64_t adding_layers = 0;  // of the llm, which parts of encoders' rows follow
    for (const Module& each : plan.model.modules) adding_layers = std::max(adding_layers, num_later_parts(each, 0));
    const bool has_branches = plan.model.find(module.kind)->output_parts > 1;
    Span span{.module = static_cast<int32_t>(m),
              .begin = num_blocks_,
              .end = num_blocks_ + layers,
              .uniform_from = num_blocks_ + static_cast<int32_t>(std::max<int64_t>(1, adding_layers)),
              .is_uniform = costs[m]->distinct_layers.size() == 1 && !has_branches,
              .backward = backward_of(plan, module.kind)};
    for (const BlockCost& block : costs[m]->distinct_layers)
      span.saves_selectively |= block.memory.saved_selective < block.memory.saved;
    num_blocks_ = span.end;
    spans_.push_back(span);
    const Trainable trainable(plan);
    const std::vector<size_t>& layers_of_kinds = plan.model.find(module.kind)->layers;
    for (size_t layer = 0; layer < layers_of_kinds.size(); ++layer) {
      const BlockTime& time = costs[m]->distinct_layers[layers_of_kinds[layer]].time;
      double ms = time.forward.total_ms();
      const BackwardNeeds backward =
          trainable.has_rules() ? trainable.passes_of(module.kind, static_cast<int64_t>(layer) + 1) : span.backward;
      // What follows the rank's last action: whole backwards, but input gradients may come before its last.
      if (!splits_ && backward.inputs) ms += time.backward_input.total_ms();
      if (!splits_ && backward.weights) ms += time.backward_weight.total_ms();
      lead_ms_.push_back((lead_ms_.empty() ? 0 : lead_ms_.back()) + ms);
    }
  }
  const ClusterDevice& device = plan.cluster.device;
  for (const BesideMemory& beside_of : beside_.memory) {
    limits_gib_.push_back(device.memory_gib - device.reserved_memory_gib - beside_of.static_gib - beside_of.held_gib);
  }
  if (!has_memory_limit) limits_gib_.clear();
  const auto& rank_of = shape.schedule.rank_of_stage;
  for (auto stage = rank_of.begin(); stage != rank_of.end(); ++stage)
    is_first_of_rank_.push_back(std::find(rank_of.begin(), stage, *stage) == stage ? 1 : 0);
}

void PlanStages::look_below(double makespan_ms) {
  // A hair more: sums in another order differ.
  most_ms_ = makespan_ms / static_cast<double>(shape_.schedule.num_microbatches) * (1 + 1e-9);
  priced_.clear();
}

double PlanStages::lead_ms(int32_t stage, int32_t first) const {
  // Chunks behind the first follow others on their own rank.
  return shares_ranks_ || stage == 0 || first == 0 ? 0 : lead_ms_[static_cast<size_t>(first) - 1];
}

int64_t PlanStages::layers_of(const Span& span, const Run& run) const {
  return std::max(0, std::min(span.end, run.end()) - std::max(span.begin, run.first));
}

/// Runs inside one module's equal layers cost the same wherever they start, once the llm has added all parts of
/// encoders' rows.
PlanStages::Run PlanStages::with_equal_price(Run run) const {
  for (const Span& span : spans_) {
    if (span.is_uniform && run.first >= span.uniform_from && run.end() < span.end) run.first = span.uniform_from;
  }
  return run;
}

bool PlanStages::begins_llm(const Run& run) const {
  const Span& llm = spans_.back();
  return has_inline_ ? run.first <= llm.begin && run.end() > llm.begin : run.stage == 0;
}

StageFigures PlanStages::price(const Run& run, const Recomputes& recomputes) const {
  StageFigures figures =
      prices_.runs.of({run.stage, run.first, run.count, recomputes}, [&] { return price_alone(run, recomputes); });
  const auto& rank_of = shape_.schedule.rank_of_stage;
  const auto rank = static_cast<size_t>(rank_of[static_cast<size_t>(run.stage)]);
  // Encoders on the llm's ranks end their step with the first of the rank's stages.
  const bool is_first_of_rank = is_first_of_rank_[static_cast<size_t>(run.stage)] != 0;
  // Encoders' backwards follow the pipeline, and reductions run beside them. Where several chunks reduce one after the
  // other, what of that outlasts the encoders is left out: a bound, not the time.
  const double encoders_ms = beside_.backward_ms[rank];
  if (!shares_ranks_) figures[kReduceWork] = std::max(figures[kReduceWork], encoders_ms);
  if (ignores_reductions_ || (shares_ranks_ && encoders_ms > 0)) figures[kReduceWork] = 0;
  if (is_first_of_rank) figures[kUpdateWork] += beside_.update_ms[rank] + (shares_ranks_ ? encoders_ms : 0);
  if (figures[kTransferWork] > 0 && begins_llm(run)) figures[kTransferWork] += beside_.entry_transfer_ms;
  return figures;
}

StageCost PlanStages::price_alone(const StagePrices::PartKey& key, int32_t stage) const {
  const auto runs = key.recompute.runs();
  const StagePart part{.stage = stage,
                       .module = key.module,
                       .first_layer = key.first,
                       .num_layers = key.count,
                       .recompute = runs,
                       .has_entry = key.has_entry,
                       .has_exit = key.has_exit};
  StageCost cost;
  price_part(plan_, part, *costs_[static_cast<size_t>(key.module)],
             {.is_copied = key.has_copied_table, .is_summed_over_ranks = key.sums_table}, cost);
  return cost;
}

/// Without what encoders beside the pipeline add.
StageFigures PlanStages::price_alone(const Run& run, const Recomputes& recomputes) const {
  StageCost cost;
  const bool is_last = run.stage + 1 == num_stages_;
  const Span& llm = spans_.back();
  const bool has_llm_entry = begins_llm(run);
  const auto& rank_of = shape_.schedule.rank_of_stage;
  // Where the llm begins is known for the stage that holds its beginning; it lies on another rank than its end, but
  // for chunks that come back to the same rank.
  const bool ends_apart = has_llm_entry  ? rank_of[static_cast<size_t>(run.stage)] != rank_of.back()
                          : !has_inline_ ? rank_of.front() != rank_of.back()
                                         : !shares_ranks_;
  const TiedTable table{.is_copied = plan_.model.has_tied_embeddings && has_llm_entry != is_last,
                        .is_summed_over_ranks = plan_.model.has_tied_embeddings && ends_apart};
  for (size_t i = 0; i < spans_.size(); ++i) {
    const Span& span = spans_[i];
    const auto module = static_cast<size_t>(span.module);
    const ModulePlan& m = plan_.modules[module];
    const int64_t layers = layers_of(span, run);
    const bool is_llm = !m.is_encoder();
    const bool has_entry = is_llm ? has_llm_entry : layers > 0 && run.first <= span.begin;
    const bool has_exit = is_llm ? is_last : layers > 0 && run.end() >= span.end;
    if (layers > 0 || has_entry || has_exit) {
      const StagePrices::PartKey key{.module = span.module,
                                     .first = std::max(0, run.first - span.begin),
                                     .count = static_cast<int32_t>(layers),
                                     .recompute = recomputes[i],
                                     .has_entry = has_entry,
                                     .has_exit = has_exit,
                                     .has_copied_table = table.is_copied,
                                     .sums_table = table.is_summed_over_ranks};
      add_part_cost(prices_.parts.of(key, [&] { return price_alone(key, run.stage); }), cost);
    }
    if (!is_llm && has_llm_entry) price_output(plan_, m, *costs_[module], cost);
    if (is_last || plan_.llm().pp == 1) continue;
    // What passes on to the next stage.
    double bytes = 0;
    const Module& spec = *plan_.model.find(m.kind);
    if (span.begin < run.end() && (is_llm || run.end() < span.end))
      bytes = bytes_between(spec, *costs_[module], run.end() - span.begin);
    if (!is_llm && run.end() >= span.end && run.end() <= llm.begin) bytes = costs_[module]->output_bytes;
    price_transfer(m, *costs_[module], bytes, cost);
  }
  if (!is_last && plan_.llm().pp > 1 && run.end() > llm.begin) {
    for (const ModulePlan& m : plan_.modules) {
      const Module& spec = *plan_.model.find(m.kind);
      if (spec.output_parts > 1)
        price_later_parts(plan_, m, costs_, num_later_parts(spec, run.end() - llm.begin), cost);
    }
  }
  cost.action_ms = action_ms(plan_);
  if (plan_.llm().pp > 1) share_cards(*costs_[static_cast<size_t>(llm.module)], cost);

  const double allocator_factor = plan_.cluster.measured.allocator_factor();
  StageFigures figures{};
  figures[kForwardWork] = cost.forward_ms();
  figures[kInputWork] = cost.backward_input_ms() + (splits_ ? 0 : cost.backward_weight_ms());
  figures[kWeightWork] = splits_ ? cost.backward_weight_ms() : 0;
  figures[kReduceWork] = cost.reduce_ms;
  figures[kUpdateWork] = cost.update_ms;
  figures[kTransferWork] = cost.transfer_ms + cost.transfer_busy_ms;
  figures[kActivationGib] = allocator_factor * cost.activation_bytes / kGiB;
  figures[kDeferredGib] = splits_ ? allocator_factor * cost.deferred_bytes / kGiB : 0;
  figures[kStaticGib] = (cost.state.total() + allocator_factor * cost.buffer_bytes()) / kGiB;
  figures[kWorkspaceGib] = allocator_factor * (cost.workspace_bytes + cost.passing_bytes) / kGiB;
  return figures;
}

/// What a stage alone on its rank has too much.
double PlanStages::excess_gib(int32_t stage, const StageFigures& figures) const {
  if (!has_memory_limit_) return 0;
  const auto rank = static_cast<size_t>(shape_.schedule.rank_of_stage[static_cast<size_t>(stage)]);
  double moment_gib = beside_.memory[rank].moment_gib;
  if (shares_ranks_) {
    // Other chunks come on top; the solver adds all of them up.
    moment_gib = std::max(moment_gib, shape_.in_flight[static_cast<size_t>(stage)] * figures[kActivationGib]);
  } else {
    for (const MemoryMoment& moment : shape_.moments[rank]) {
      moment_gib = std::max(moment_gib, moment.held[0] * figures[kActivationGib] +
                                            moment.deferred[0] * figures[kDeferredGib] + figures[kWorkspaceGib]);
    }
  }
  const double limit = limits_gib_[rank];
  const double excess = figures[kStaticGib] + moment_gib - limit;
  return excess > kSumHair * plan_.cluster.device.memory_gib ? excess : 0;
}

/// What each moment of a rank has too much with one option, a number a moment; the last is an encoder's.
void PlanStages::excesses(int32_t stage, const StageFigures& figures, std::vector<double>& excess) const {
  const auto rank = static_cast<size_t>(shape_.schedule.rank_of_stage[static_cast<size_t>(stage)]);
  excess.clear();
  const double rest = figures[kStaticGib] - limits_gib_[rank];
  for (const MemoryMoment& moment : shape_.moments[rank]) {
    excess.push_back(rest + moment.held[0] * figures[kActivationGib] + moment.deferred[0] * figures[kDeferredGib] +
                     figures[kWorkspaceGib]);
  }
  excess.push_back(rest + beside_.memory[rank].moment_gib);
}

/// Layers of equal modules that are recomputed, on top of a given start: a small knapsack with a need for every moment
/// of the rank, solved exactly. Depth first, the cheapest saving first; what the rest must cost at least is known from
/// a fractional filling.
class PlanStages::Knapsack {
 public:
  /// `base` is the price of the start.
  Knapsack(const PlanStages& stages, const Run& run, const Recomputes& start, const StageFigures& base)
      : stages_(stages), run_(run), now_(start), base_ms_(base[kInputWork]) {
    stages.excesses(run.stage, base, need_);
    for (size_t i = 0; i < stages.spans_.size(); ++i) {
      const Span& span = stages.spans_[i];
      const int64_t layers = stages.layers_of(span, run);
      if (!span.is_uniform || layers == 0 || !span.backward.runs()) continue;
      room_[i] = layers - start[i].full;
      // The first whole layer brings its workspace, and is part of the start.
      if (start[i].full > 0) add_item(i, true, base);
      if (stages.recompute_.allows_selective && span.saves_selectively) add_item(i, false, base);
    }
    std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
      return a.adds_ms * b.most_saved() < b.adds_ms * a.most_saved();
    });
  }

  /// Below a time; nothing where there is none.
  std::optional<Recomputes> solve(double below_ms) {
    best_ms_ = below_ms;
    descend(0, need_, base_ms_);
    return best_;
  }
  double best_ms() const { return best_ms_; }

 private:
  struct Item {
    size_t span;
    bool is_full;
    double adds_ms;
    std::vector<double> saves;  ///< by moment
    double most_saved() const { return *std::max_element(saves.begin(), saves.end()); }
  };

  void add_item(size_t span, bool is_full, const StageFigures& base) {
    if (room_[span] < 1) return;
    Recomputes more = now_;
    ++(is_full ? more[span].full : more[span].selective);
    const StageFigures figures = stages_.price(run_, more);
    Item item{.span = span, .is_full = is_full, .adds_ms = figures[kInputWork] - base[kInputWork], .saves = {}};
    stages_.excesses(run_.stage, figures, item.saves);
    for (size_t m = 0; m < need_.size(); ++m) item.saves[m] = need_[m] - item.saves[m];
    if (item.most_saved() > 0) items_.push_back(std::move(item));
  }

  bool is_satisfied(const std::vector<double>& need) const {
    const double hair = kSumHair * stages_.plan_.cluster.device.memory_gib;
    return std::all_of(need.begin(), need.end(), [&](double gib) { return gib <= hair; });
  }

  void descend(size_t depth, const std::vector<double>& need, double ms) {
    if (is_satisfied(need)) {
      if (ms >= best_ms_) return;
      // The sums' last digits are the pricing's own.
      if (!stages_.fits(run_.stage, stages_.price(run_, now_))) return;
      best_ms_ = ms;
      best_ = now_;
      return;
    }
    if (depth == items_.size()) return;
    double least_ms = ms;
    for (size_t m = 0; m < need.size(); ++m) {
      if (need[m] <= 0) continue;
      double price = std::numeric_limits<double>::infinity();
      for (size_t i = depth; i < items_.size(); ++i) {
        if (items_[i].saves[m] > 0) price = std::min(price, items_[i].adds_ms / items_[i].saves[m]);
      }
      least_ms = std::max(least_ms, ms + price * need[m] * (1 - 1e-9));
    }
    if (least_ms >= best_ms_) return;
    const Item& item = items_[depth];
    int64_t& count = item.is_full ? now_[item.span].full : now_[item.span].selective;
    const int64_t start = count;
    // As many as could be of use.
    double wanted = 0;
    for (size_t m = 0; m < need.size(); ++m) {
      if (need[m] > 0 && item.saves[m] > 0) wanted = std::max(wanted, std::ceil(need[m] / item.saves[m]));
    }
    int64_t& room = room_[item.span];
    const auto most = static_cast<int64_t>(std::min(wanted, static_cast<double>(room)));
    // Of the last item no fewer are enough.
    const int64_t fewest = depth + 1 == items_.size() ? most : 0;
    room -= most;
    std::vector<double>& left = left_[depth];
    left.resize(need.size());
    for (int64_t n = most; n >= fewest; --n, ++room) {
      count = start + n;
      for (size_t m = 0; m < need.size(); ++m) left[m] = need[m] - static_cast<double>(n) * item.saves[m];
      descend(depth + 1, left, ms + static_cast<double>(n) * item.adds_ms);
    }
    room += fewest - 1;
    count = start;
  }

  const PlanStages& stages_;
  Run run_;
  Recomputes now_;
  double base_ms_;
  std::vector<double> need_;
  std::array<int64_t, kMostModules> room_{};
  std::vector<Item> items_;
  std::array<std::vector<double>, 2 * kMostModules> left_;  // by depth
  double best_ms_ = 0;
  std::optional<Recomputes> best_;
};

PlanStages::Recomputes PlanStages::recomputed_everywhere(const Run& run) const {
  Recomputes now{};
  for (size_t i = 0; i < spans_.size(); ++i) {
    const int64_t layers = layers_of(spans_[i], run);
    if (!spans_[i].backward.runs()) continue;
    if (plan_.modules[static_cast<size_t>(spans_[i].module)].is_encoder()) {
      if (recompute_.everywhere->encoders) now[i] = {.full = layers};
    } else if (recompute_.everywhere->attention) {
      now[i] = {.selective = layers};
    } else {
      now[i] = {.full = std::min(recompute_.everywhere->full, layers)};
    }
  }
  return now;
}

bool PlanStages::fits_somehow(const Run& run) const {
  if (recompute_.everywhere) return fits(run.stage, price(run, recomputed_everywhere(run)));
  // Memory is linear in the numbers of recomputed layers but for the workspace that the first brings, so that the least
  // is at the ends: of each module nothing, all layers' attention, or all whole layers.
  Recomputes now{};
  const std::function<bool(size_t)> try_all = [&](size_t i) {
    if (i == spans_.size()) return fits(run.stage, price(run, now));
    now[i] = {};
    if (try_all(i + 1)) return true;
    const int64_t layers = layers_of(spans_[i], run);
    if (layers == 0 || !spans_[i].backward.runs()) return false;
    if (recompute_.allows_full) {
      now[i] = {.full = layers};
      if (try_all(i + 1)) return true;
    }
    if (recompute_.allows_selective && spans_[i].is_uniform && spans_[i].saves_selectively) {
      now[i] = {.selective = layers};
      if (try_all(i + 1)) return true;
    }
    now[i] = {};
    return false;
  };
  return try_all(0);
}

StageTimes PlanStages::plain_times(int32_t stage, int32_t first, int32_t count) const {
  return StageOption{.figures = price(with_equal_price({stage, first, count}), {})}.times();
}

bool PlanStages::can_fit() const {
  if (shares_ranks_ || !has_memory_limit_) return true;
  // Each stage as far as it gets; where a stage cannot start, one that starts earlier may still reach as far.
  int32_t end = 0;
  for (int32_t stage = 0; stage < num_stages_; ++stage) {
    const int32_t first = end;
    const int32_t most = num_blocks_ - (num_stages_ - stage - 1);
    const auto fits_to = [&](int32_t to) { return fits_somehow({stage, first, to - first}); };
    // The last stage takes all that is left; with it, an embedding that it would have to copy may come along.
    if (stage + 1 == num_stages_) {
      for (int32_t from = first; from >= stage; --from) {
        if (fits_somehow({stage, from, num_blocks_ - from})) return true;
        if (!plan_.model.has_tied_embeddings) return false;
      }
      return false;
    }
    while (end < most && fits_to(end + 1)) ++end;
  }
  return false;
}

/// By span: of layers that differ, how many are recomputed at least where a run fits. A moment is relieved by the
/// activations that it holds less and by nothing else, and these are sums over modules.
std::array<int64_t, PlanStages::kMostModules> PlanStages::fewest_full(const Run& run, const StageFigures& plain,
                                                                      const std::vector<size_t>& open) const {
  std::array<int64_t, kMostModules> fewest{};
  if (!recompute_.allows_full ||
      std::all_of(open.begin(), open.end(), [&](size_t span) { return spans_[span].is_uniform; }))
    return fewest;
  const auto rank = static_cast<size_t>(shape_.schedule.rank_of_stage[static_cast<size_t>(run.stage)]);
  std::vector<double> excess;
  excesses(run.stage, plain, excess);
  double needed_gib = 0;  // less in each microbatch
  for (size_t m = 0; m < shape_.moments[rank].size(); ++m) {
    const int32_t held = shape_.moments[rank][m].held[0];
    if (held > 0) needed_gib = std::max(needed_gib, excess[m] / held);
  }
  needed_gib -= 1e-9 * plan_.cluster.device.memory_gib;
  const auto saved_gib = [&](size_t span, const RecomputeCounts& counts) {
    Recomputes only{};
    only[span] = counts;
    return plain[kActivationGib] - price(run, only)[kActivationGib];
  };
  std::array<double, kMostModules> most_gib{};
  double all_gib = 0;
  for (const size_t span : open) {
    const int64_t layers = layers_of(spans_[span], run);
    most_gib[span] = std::max(0.0, saved_gib(span, {.full = layers}));
    if (recompute_.allows_selective && spans_[span].is_uniform && spans_[span].saves_selectively)
      most_gib[span] = std::max(most_gib[span], saved_gib(span, {.selective = layers}));
    all_gib += most_gib[span];
  }
  for (const size_t span : open) {
    if (spans_[span].is_uniform) continue;
    const double of_others_gib = all_gib - most_gib[span];
    int64_t high = layers_of(spans_[span], run);
    while (fewest[span] < high) {
      const int64_t middle = (fewest[span] + high) / 2;
      if (of_others_gib + saved_gib(span, {.full = middle}) >= needed_gib) {
        high = middle;
      } else {
        fewest[span] = middle + 1;
      }
    }
  }
  return fewest;
}

/// The recomputation that adds the least time and fits.
void PlanStages::find_least(const Run& run, std::vector<Priced>& found) const {
  Priced plain{.figures = price(run, {}), .recomputes = {}};
  const double passes_ms = plain.figures[kForwardWork] + plain.figures[kWeightWork];
  if (passes_ms + plain.figures[kInputWork] > most_ms_) return;
  if (fits(run.stage, plain.figures)) {
    found.push_back(plain);
    return;
  }
  if (!fits_somehow(run)) return;
  std::vector<size_t> open;  // spans with something to recompute
  for (size_t i = 0; i < spans_.size(); ++i) {
    if (layers_of(spans_[i], run) > 0 && spans_[i].backward.runs()) open.push_back(i);
  }
  const std::array<int64_t, kMostModules> fewest = fewest_full(run, plain.figures, open);
  std::optional<Recomputes> best;
  double best_ms = most_ms_ - passes_ms;
  // Layers that differ are recomputed from the first on, so each number is a case of its own; of equal layers there is
  // none or at least one, because the first brings its workspace.
  Recomputes start{};
  // Whether anything from here on can still be better: more recomputation only takes longer.
  const std::function<bool(size_t)> choose = [&](size_t depth) {
    if (depth == open.size()) {
      const StageFigures base = price(run, start);
      if (base[kInputWork] >= best_ms) return false;
      Knapsack knapsack(*this, run, start, base);
      if (auto choice = knapsack.solve(best_ms)) {
        best = choice;
        best_ms = knapsack.best_ms();
      }
      return true;
    }
    const size_t span = open[depth];
    const int64_t most = !recompute_.allows_full ? 0 : spans_[span].is_uniform ? 1 : layers_of(spans_[span], run);
    bool can_improve = false;
    for (start[span].full = fewest[span]; start[span].full <= most; ++start[span].full) {
      if (!choose(depth + 1)) break;
      can_improve = true;
    }
    start[span] = {};
    return can_improve;
  };
  choose(0);
  if (best) found.push_back({.figures = price(run, *best), .recomputes = *best});
}

/// Every number of recomputed layers that no other beats in both time and memory, and that fits alone.
void PlanStages::find_pareto(const Run& run, std::vector<Priced>& found) const {
  std::vector<Priced> all;
  Recomputes now{};
  std::array<int64_t, kMostModules> most{};
  int num_open = 0;
  for (size_t i = 0; i < spans_.size(); ++i) {
    const bool may = recompute_.allows_full && has_memory_limit_ && spans_[i].backward.runs();
    most[i] = may ? layers_of(spans_[i], run) : 0;
    num_open += most[i] > 0 ? 1 : 0;
  }
  // Numbers of several modules multiply.
  constexpr int64_t kFew = 8;
  const bool offers_few = offers_few_ && num_open > 1;
  const std::function<void(size_t)> choose = [&](size_t span) {
    if (span == spans_.size()) {
      Priced priced{.figures = price(run, now), .recomputes = now};
      if (fits(run.stage, priced.figures)) all.push_back(priced);
      return;
    }
    const int64_t step = offers_few ? std::max<int64_t>(1, (most[span] + kFew - 2) / (kFew - 1)) : 1;
    for (int64_t full = 0; full < most[span] + step; full += step) {
      now[span].full = std::min(full, most[span]);
      choose(span + 1);
    }
    now[span] = {};
  };
  choose(0);
  std::stable_sort(all.begin(), all.end(),
                   [](const Priced& a, const Priced& b) { return a.figures[kInputWork] < b.figures[kInputWork]; });
  for (const Priced& priced : all) {
    const auto is_no_worse = [&](const Priced& other) {
      for (const size_t figure : {size_t{kActivationGib}, size_t{kDeferredGib}, size_t{kWorkspaceGib}}) {
        if (other.figures[figure] > priced.figures[figure]) return false;
      }
      return true;
    };
    if (std::none_of(found.begin(), found.end(), is_no_worse)) found.push_back(priced);
  }
}

const std::vector<PlanStages::Priced>& PlanStages::priced(const Run& given) {
  const Run run = with_equal_price(given);
  const uint64_t key = (static_cast<uint64_t>(run.stage) << 40) | (static_cast<uint64_t>(run.first) << 20) |
                       static_cast<uint64_t>(run.count);
  const auto [place, is_new] = priced_.try_emplace(key);
  if (is_new) {
    if (recompute_.everywhere) {
      const Recomputes recomputes = recomputed_everywhere(run);
      const StageFigures figures = price(run, recomputes);
      if (fits(run.stage, figures)) place->second.push_back({.figures = figures, .recomputes = recomputes});
    } else if (shares_ranks_) {
      find_pareto(run, place->second);
    } else {
      find_least(run, place->second);
    }
  }
  return place->second;
}

std::optional<Error> PlanStages::list(int32_t stage, int32_t first, int32_t count, std::vector<StageOption>& options) {
  int32_t choice = 0;
  for (const Priced& priced : priced({stage, first, count}))
    options.push_back({.first = first, .count = count, .choice = choice++, .figures = priced.figures});
  return std::nullopt;
}

void PlanStages::apply(std::span<const StageOption> options, Plan& plan) {
  for (const Span& span : spans_) {
    ModulePlan& module = plan.modules[static_cast<size_t>(span.module)];
    for (auto& row : module.layers) std::fill(row.begin(), row.end(), 0);
    for (auto& row : module.recompute) std::fill(row.begin(), row.end(), Recompute{});
  }
  for (size_t stage = 0; stage < options.size(); ++stage) {
    const StageOption& option = options[stage];
    const Run run{static_cast<int32_t>(stage), option.first, option.count};
    const Priced& choice = priced(run)[static_cast<size_t>(option.choice)];
    const StagePlace place = place_of_stage(plan, run.stage);
    for (size_t i = 0; i < spans_.size(); ++i) {
      ModulePlan& module = plan.modules[static_cast<size_t>(spans_[i].module)];
      const auto rank = static_cast<size_t>(place.rank), chunk = static_cast<size_t>(place.chunk);
      module.layers[rank][chunk] = layers_of(spans_[i], run);
      module.recompute[rank][chunk] = choice.recomputes[i];
    }
  }
}

PlanStages::Beside nothing_beside(int64_t pp) {
  const auto ranks = static_cast<size_t>(pp);
  return {.memory = std::vector<BesideMemory>(ranks),
          .update_ms = std::vector<double>(ranks, 0),
          .backward_ms = std::vector<double>(ranks, 0)};
}

}  // namespace weft
