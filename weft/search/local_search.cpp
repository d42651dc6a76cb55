#include "weft/search/local_search.h"

#include <algorithm>

#include "weft/search/precision.h"

namespace weft {

LocalSearch::LocalSearch(const Schedule& schedule, const StageOptions& options,
                         const std::vector<ChainRow>& memory_rows, ScheduleGraph& graph)
    : options_(options),
      graph_(graph),
      rows_of_rank_(schedule.rows.size()),
      prices_(static_cast<size_t>(schedule.num_stages()), 1) {
  for (int32_t rank = 0; rank < schedule.num_ranks(); ++rank) stages_of_rank_.push_back(stages_of_rank(schedule, rank));
  for (const ChainRow& row : memory_rows) {
    for (size_t stage = 0; stage < row.stages.size(); ++stage) {
      if (row.stages[stage][kStaticGib] == 0) continue;
      rows_of_rank_[static_cast<size_t>(schedule.rank_of_stage[stage])].push_back(&row);
      break;
    }
  }
}

bool LocalSearch::State::is_better_than(const State& other) const {
  if (excess_gib != other.excess_gib) return excess_gib < other.excess_gib;
  if (makespan_ms != other.makespan_ms) return makespan_ms < other.makespan_ms;
  return unevenness < other.unevenness;
}

/// Lets the rank's chunks recompute until they fit, the cheapest saving for its price first. Returns what is too much.
double LocalSearch::fit_rank(size_t rank, Chain& chain) const {
  const std::vector<int32_t>& stages = stages_of_rank_[rank];
  while (true) {
    double excess = 0;
    const ChainRow* worst = nullptr;
    for (const ChainRow* row : rows_of_rank_[rank]) {
      double sum = -row->limit;
      for (const int32_t stage : stages)
        sum += row->value(static_cast<size_t>(stage), options_[chain[static_cast<size_t>(stage)]]);
      if (sum > excess) {
        excess = sum;
        worst = row;
      }
    }
    if (worst == nullptr) return 0;
    double best_rate = kInfinity;
    size_t best_stage = 0, best_option = 0;
    for (const int32_t s : stages) {
      const auto stage = static_cast<size_t>(s);
      const StageOption& now = options_[chain[stage]];
      // Options of one run lie side by side, those that recompute more behind those that recompute less.
      for (size_t i = chain[stage] + 1; i < options_.size(); ++i) {
        const StageOption& more = options_[i];
        if (more.first != now.first || more.count != now.count || i >= options_.begin(s, now.first + 1)) break;
        const double saved = worst->value(stage, now) - worst->value(stage, more);
        if (saved <= 0) continue;
        const double rate =
            prices_[stage] * (more.figures[kInputWork] - now.figures[kInputWork]) / std::min(saved, excess);
        if (rate < best_rate) {
          best_rate = rate;
          best_stage = stage;
          best_option = i;
        }
        if (saved >= excess) break;
      }
    }
    if (best_rate == kInfinity) return excess;
    chain[best_stage] = best_option;
  }
}

/// Chooses the options for the state's counts and simulates them; false when some run of blocks fits on no rank.
bool LocalSearch::rate(State& state) {
  state.chain.clear();
  int32_t first = 0;
  for (size_t stage = 0; stage < state.counts.size(); ++stage) {
    const auto s = static_cast<int32_t>(stage);
    size_t low = options_.begin(s, first), high = options_.begin(s, first + 1);
    const size_t end = high;
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (options_[middle].count < state.counts[stage]) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    if (low == end || options_[low].count != state.counts[stage]) return false;
    state.chain.push_back(low);
    first += state.counts[stage];
  }
  state.excess_gib = 0;
  for (size_t rank = 0; rank < stages_of_rank_.size(); ++rank) state.excess_gib += fit_rank(rank, state.chain);
  std::vector<StageTimes> times;
  for (const size_t option : state.chain) times.push_back(options_[option].times());
  state.makespan_ms = graph_.makespan_ms(times);
  ++num_simulated_;
  state.unevenness = 0;
  for (const auto& stages : stages_of_rank_) {
    double load = 0;
    for (const int32_t stage : stages) load += options_[state.chain[static_cast<size_t>(stage)]].total_ms();
    state.unevenness += load * load;
  }
  return true;
}

/// Moves one block at a time from a stage to another, those between passing theirs on, until nothing gets better.
void LocalSearch::descend(State& state) {
  const size_t stages = state.counts.size();
  for (bool has_improved = true; has_improved;) {
    has_improved = false;
    for (size_t from = 0; from < stages; ++from) {
      for (size_t to = 0; to < stages; ++to) {
        if (from == to || state.counts[from] == 1) continue;
        if (is_over()) return;
        State moved{.counts = state.counts};
        --moved.counts[from];
        ++moved.counts[to];
        if (!rate(moved) || !moved.is_better_than(state)) continue;
        state = std::move(moved);
        has_improved = true;
      }
    }
    // Recomputation is cheapest where the longest path does not come by.
    if (!has_improved) continue;
    const CriticalPath path = graph_.critical_path();
    for (size_t stage = 0; stage < stages; ++stage) prices_[stage] = 1 + path.visits[stage][1];
  }
}

Chain LocalSearch::improve(const Chain& start, const Effort& effort) {
  effort_ = effort;
  end_simulated_ = num_simulated_ + effort.most_simulated;
  State best;
  for (const size_t option : start) best.counts.push_back(options_[option].count);
  if (!rate(best)) return {};
  descend(best);
  for (int kick = 0; kick < effort.num_kicks && !is_over(); ++kick) {
    State state{.counts = best.counts};
    const auto num_moves = 2 + random_() % 4;
    for (uint64_t move = 0; move < num_moves; ++move) {
      const size_t from = random_() % state.counts.size(), to = random_() % state.counts.size();
      if (from == to || state.counts[from] == 1) continue;
      --state.counts[from];
      ++state.counts[to];
    }
    if (!rate(state)) continue;
    descend(state);
    if (state.is_better_than(best)) best = std::move(state);
  }
  return best.excess_gib > 0 ? Chain{} : best.chain;
}

}  // namespace weft
