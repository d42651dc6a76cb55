#include "weft/simulate/run_schedule.h"

#include <algorithm>

#include "weft/base/check.h"

namespace weft {
namespace {

/// Plays the rows with a work list of ranks that can move. Arrival times are kept per (stage, microbatch), so a receiver finds its
/// tensor without searching.
class Run {
 public:
  Run(const Schedule& schedule, const PipelineCosts& costs, Timeline* timeline)
      : schedule_(schedule),
        costs_(costs),
        timeline_(timeline),
        ranks_(schedule.rows.size()),
        input_ms_(num_cells(), kNever),
        gradient_ms_(num_cells(), kNever) {
    if (timeline_ != nullptr) timeline_->ranks.assign(schedule.rows.size(), {});
  }

  ScheduleRun run() {
    std::vector<int32_t> ready;
    for (int32_t rank = schedule_.num_ranks() - 1; rank >= 0; --rank) ready.push_back(rank);
    while (!ready.empty()) {
      const int32_t rank = ready.back();
      ready.pop_back();
      ranks_[static_cast<size_t>(rank)].is_waiting = false;
      advance(rank, ready);
    }
    return summary();
  }

 private:
  static constexpr double kNever = -1;

  struct RankState {
    size_t next = 0;
    double free_ms = 0;
    double busy_ms = 0;
    int32_t in_flight = 0;
    int32_t peak_in_flight = 0;
    bool is_waiting = false;
  };

  size_t num_cells() const {
    return static_cast<size_t>(schedule_.num_stages()) * static_cast<size_t>(schedule_.num_microbatches);
  }
  size_t cell(int32_t stage, int32_t microbatch) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(schedule_.num_microbatches) + static_cast<size_t>(microbatch);
  }

  void advance(int32_t rank, std::vector<int32_t>& ready) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    const auto& row = schedule_.rows[static_cast<size_t>(rank)];
    for (; state.next < row.size(); ++state.next) {
      const Action& action = row[state.next];
      switch (action.kind) {
        case ActionKind::kForward: {
          double start = state.free_ms;
          if (action.stage > 0) start = std::max(start, input_ms_[cell(action.stage, action.microbatch)]);
          compute(state, rank, action, start, costs_.forward_ms.at(action.stage, action.microbatch));
          state.peak_in_flight = std::max(state.peak_in_flight, ++state.in_flight);
          if (action.stage + 1 < schedule_.num_stages() && !schedule_.crosses_ranks(action.stage)) {
            input_ms_[cell(action.stage + 1, action.microbatch)] = state.free_ms;
          }
          break;
        }
        case ActionKind::kBackward:
        case ActionKind::kBackwardInput: {
          const bool is_whole = action.kind == ActionKind::kBackward;
          double start = state.free_ms;
          if (action.stage + 1 < schedule_.num_stages()) start = std::max(start, gradient_ms_[cell(action.stage, action.microbatch)]);
          double duration = costs_.backward_input_ms.at(action.stage, action.microbatch);
          if (is_whole) duration += costs_.backward_weight_ms.at(action.stage, action.microbatch);
          compute(state, rank, action, start, duration);
          if (is_whole) --state.in_flight;
          if (action.stage > 0 && !schedule_.crosses_ranks(action.stage - 1)) {
            gradient_ms_[cell(action.stage - 1, action.microbatch)] = state.free_ms;
          }
          break;
        }
        case ActionKind::kBackwardWeight:
          compute(state, rank, action, state.free_ms, costs_.backward_weight_ms.at(action.stage, action.microbatch));
          --state.in_flight;
          break;
        case ActionKind::kSendForward:
          // The SEND follows the action that made the tensor, so the tensor exists now.
          deliver(rank, action, input_ms_, action.stage + 1, ready);
          break;
        case ActionKind::kSendBackward: deliver(rank, action, gradient_ms_, action.stage - 1, ready); break;
        case ActionKind::kRecvForward:
          if (input_ms_[cell(action.stage, action.microbatch)] == kNever) {
            state.is_waiting = true;
            return;
          }
          break;
        case ActionKind::kRecvBackward:
          if (gradient_ms_[cell(action.stage, action.microbatch)] == kNever) {
            state.is_waiting = true;
            return;
          }
          break;
        default: WEFT_CHECK(false, "{} has no cost here", to_text(action));
      }
    }
  }

  void compute(RankState& state, int32_t rank, const Action& action, double start_ms, double duration_ms) {
    state.free_ms = start_ms + duration_ms;
    state.busy_ms += duration_ms;
    if (timeline_ != nullptr) {
      timeline_->ranks[static_cast<size_t>(rank)].push_back({action, Stream::kCompute, start_ms, state.free_ms});
    }
  }

  void deliver(int32_t rank, const Action& action, std::vector<double>& arrival_ms, int32_t to_stage, std::vector<int32_t>& ready) {
    const double start_ms = ranks_[static_cast<size_t>(rank)].free_ms;
    const double end_ms = start_ms + costs_.p2p_ms.at(action.stage, action.microbatch);
    arrival_ms[cell(to_stage, action.microbatch)] = end_ms;
    const int32_t peer = schedule_.rank_of_stage[static_cast<size_t>(to_stage)];
    if (timeline_ != nullptr) timeline_->ranks[static_cast<size_t>(rank)].push_back({action, Stream::kSend, start_ms, end_ms});
    RankState& other = ranks_[static_cast<size_t>(peer)];
    if (other.is_waiting) {
      other.is_waiting = false;
      ready.push_back(peer);
    }
  }

  ScheduleRun summary() {
    ScheduleRun run;
    double busy = 0;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const RankState& state = ranks_[rank];
      WEFT_CHECK(state.next == schedule_.rows[rank].size(), "rank {} waits for ever: run find_problem first", rank);
      run.makespan_ms = std::max(run.makespan_ms, state.free_ms);
      run.busy_ms.push_back(state.busy_ms);
      run.peak_in_flight.push_back(state.peak_in_flight);
      busy += state.busy_ms;
    }
    if (run.makespan_ms > 0) run.bubble_fraction = 1 - busy / (run.makespan_ms * static_cast<double>(ranks_.size()));
    if (timeline_ != nullptr) timeline_->makespan_ms = run.makespan_ms;
    return run;
  }

  const Schedule& schedule_;
  const PipelineCosts& costs_;
  Timeline* timeline_;
  std::vector<RankState> ranks_;
  std::vector<double> input_ms_;     // when a cell's input arrives
  std::vector<double> gradient_ms_;  // when its output's gradient arrives
};

}  // namespace

ScheduleRun run_schedule(const Schedule& lowered, const PipelineCosts& costs, Timeline* timeline) {
  return Run(lowered, costs, timeline).run();
}

}  // namespace weft
