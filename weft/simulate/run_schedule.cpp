#include "weft/simulate/run_schedule.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/schedule/cell_table.h"
#include "weft/schedule/encoder_clock.h"

namespace weft {
namespace {

/// Plays the rows with a work list of ranks that can move. Arrival times are kept per (stage, microbatch), so a
/// receiver finds its tensor without searching. Pipelines without encoders have a player of their own: asking for
/// encoders that are not there costs several percent of its speed.
template <bool kHasEncoders>
class Run {
 public:
  Run(const Schedule& schedule, const PipelineCosts& costs, Timeline* timeline)
      : schedule_(schedule),
        costs_(costs),
        timeline_(timeline),
        latency_ms_{&costs.p2p_ms, costs.gradient_p2p_ms ? &*costs.gradient_p2p_ms : &costs.p2p_ms},
        busy_ms_{&costs.p2p_busy_ms, costs.gradient_p2p_busy_ms ? &*costs.gradient_p2p_busy_ms : &costs.p2p_busy_ms},
        ranks_(schedule.rows.size()),
        input_ms_(schedule, kNever),
        gradient_ms_(schedule, kNever),
        reduced_ms_(static_cast<size_t>(schedule.num_stages()), 0) {
    WEFT_CHECK(costs.encoders.size() == schedule.encoders.size(), "{} encoders, but costs for {}",
               schedule.encoders.size(), costs.encoders.size());
    for (size_t e = 0; e < schedule.encoders.size(); ++e) {
      const EncoderCosts& of = costs.encoders[e];
      const ScheduledEncoder& rows = schedule.encoders[e];
      const CellTable<Passage> none(rows.num_groups(), rows.num_macro_batches, Passage{});
      const std::vector<double> free(rows.groups.size(), 0);
      encoders_.push_back(
          {.clock = EncoderClock(rows, schedule.num_ranks(), of.bridge_ms), .ways = {{free, none}, {free, none}}});
    }
    if (timeline_ == nullptr) return;
    timeline_->ranks.assign(schedule.rows.size(), {});
    timeline_->encoder_names.clear();
    for (const ScheduledEncoder& encoder : schedule.encoders) timeline_->encoder_names.push_back(encoder.name);
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
    double reduce_free_ms = 0;
    double encoders_reduced_ms = 0;
    double channel_free_ms[2] = {0, 0};  // forwards and backwards
    int32_t in_flight = 0;
    int32_t peak_in_flight = 0;
    bool is_waiting = false;
  };

  struct Passage {
    double start_ms = 0;
    double end_ms = 0;
  };
  /// Transfers from each group of an encoder to its neighbour on one side.
  struct EncoderWay {
    std::vector<double> channel_free_ms;  // by group
    CellTable<Passage> passages;          // by group and macro batch
  };
  struct EncoderState {
    EncoderClock clock;
    double busy_ms = 0;
    EncoderWay ways[2];  // forwards and backwards
  };

  void advance(int32_t rank, std::vector<int32_t>& ready) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    const auto& row = schedule_.rows[static_cast<size_t>(rank)];
    for (; state.next < row.size(); ++state.next) {
      const Action& action = row[state.next];
      switch (action.kind) {
        case ActionKind::kForward: {
          double start = state.free_ms;
          if (action.stage > 0) start = std::max(start, input_ms_.at(action.stage, action.microbatch));
          if constexpr (kHasEncoders) {
            if (action.stage == schedule_.entry_stage) start = std::max(start, embeddings_ms(action.microbatch));
            if (start == EncoderClock::kNever) {
              state.is_waiting = true;
              return;
            }
          }
          compute(state, rank, action, start, costs_.forward_ms.at(action.stage, action.microbatch));
          state.peak_in_flight = std::max(state.peak_in_flight, ++state.in_flight);
          if constexpr (kHasEncoders) {
            if (action.stage == schedule_.entry_stage) tell_encoders(action, state.free_ms, ready);
          }
          if (action.stage + 1 < schedule_.num_stages() && !schedule_.crosses_ranks(action.stage)) {
            input_ms_.at(action.stage + 1, action.microbatch) = state.free_ms;
          }
          break;
        }
        case ActionKind::kBackward:
        case ActionKind::kBackwardInput: {
          const bool is_whole = action.kind == ActionKind::kBackward;
          double start = state.free_ms;
          if (action.stage + 1 < schedule_.num_stages())
            start = std::max(start, gradient_ms_.at(action.stage, action.microbatch));
          double duration = costs_.backward_input_ms.at(action.stage, action.microbatch);
          if (is_whole) duration += costs_.backward_weight_ms.at(action.stage, action.microbatch);
          compute(state, rank, action, start, duration);
          if (is_whole) --state.in_flight;
          if constexpr (kHasEncoders) {
            if (action.stage == schedule_.entry_stage) tell_encoders(action, state.free_ms, ready);
          }
          if (action.stage > 0 && !schedule_.crosses_ranks(action.stage - 1)) {
            gradient_ms_.at(action.stage - 1, action.microbatch) = state.free_ms;
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
        case ActionKind::kSendBackward:
          deliver(rank, action, gradient_ms_, action.stage - 1, ready);
          break;
        case ActionKind::kRecvForward:
          if (input_ms_.at(action.stage, action.microbatch) == kNever) {
            state.is_waiting = true;
            return;
          }
          break;
        case ActionKind::kRecvBackward:
          if (gradient_ms_.at(action.stage, action.microbatch) == kNever) {
            state.is_waiting = true;
            return;
          }
          break;
        case ActionKind::kReduceGrad:
          reduce(state, rank, action, costs_.reduce_grad_ms.at(action.stage, 0));
          reduced_ms_[static_cast<size_t>(action.stage)] = state.reduce_free_ms;
          break;
        case ActionKind::kUpdate:
          compute(state, rank, action,
                  std::max({state.free_ms, reduced_ms_[static_cast<size_t>(action.stage)], state.encoders_reduced_ms}),
                  costs_.update_ms.at(action.stage, 0));
          break;
        default:
          WEFT_CHECK(kHasEncoders, "{} in a schedule without encoders", to_text(action));
          if constexpr (kHasEncoders) {
            if (!is_encoder_compute(action.kind)) {
              serve_encoder(state, rank, action);
            } else if (!run_encoder(rank, action, ready)) {
              state.is_waiting = true;
              return;
            }
          }
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

  /// On the reduce stream, after what is already there; the compute stream waits only where nothing overlaps.
  void reduce(RankState& state, int32_t rank, const Action& action, double duration_ms) {
    const double start_ms = std::max(state.free_ms, state.reduce_free_ms);
    state.reduce_free_ms = start_ms + duration_ms;
    if (!costs_.overlaps_reduce) state.free_ms = state.reduce_free_ms;
    if (timeline_ != nullptr) {
      timeline_->ranks[static_cast<size_t>(rank)].push_back({action, Stream::kReduce, start_ms, state.reduce_free_ms});
    }
  }

  /// What an encoder does besides EF and EB. Its rows arrive bridge_ms after what makes them, and what its stages pass
  /// on as pass_on says: its clock knows, and F, EF and EB wait for them.
  void serve_encoder(RankState& state, int32_t rank, const Action& action) {
    const auto encoder = static_cast<size_t>(action.stage);
    const EncoderCosts& costs = costs_.encoders[encoder];
    if (is_row_transfer(action.kind)) {
      if (timeline_ != nullptr && is_send(action.kind)) {
        timeline_->ranks[static_cast<size_t>(rank)].push_back(
            {action, Stream::kSend, state.free_ms, state.free_ms + costs.bridge_ms});
      }
      return;
    }
    const int32_t group = encoders_[encoder].clock.group_of(rank);
    if (is_encoder_transfer(action.kind)) {
      if (timeline_ == nullptr || !is_send(action.kind)) return;
      const EncoderWay& way = encoders_[encoder].ways[action.kind == ActionKind::kSendEncoded ? 0 : 1];
      const Passage& passage = way.passages.at(group, action.microbatch);
      timeline_->ranks[static_cast<size_t>(rank)].push_back({action, Stream::kSend, passage.start_ms, passage.end_ms});
      return;
    }
    if (action.kind == ActionKind::kEncodeReduce) {
      reduce(state, rank, action, costs.reduce_ms.at(group, 0));
      state.encoders_reduced_ms = state.reduce_free_ms;
      return;
    }
    compute(state, rank, action, std::max(state.free_ms, state.encoders_reduced_ms), costs.update_ms.at(group, 0));
  }

  double embeddings_ms(int32_t microbatch) const {
    double arrived = 0;
    for (const EncoderState& encoder : encoders_)
      arrived = std::max(arrived, encoder.clock.microbatch_ready(microbatch));
    return arrived;
  }

  /// Runs an action on all ranks of the group when all have reached it and its inputs are known. The others move on
  /// past it; the caller does that for `rank`.
  bool run_encoder(int32_t rank, const Action& action, std::vector<int32_t>& ready) {
    EncoderState& encoder = encoders_[static_cast<size_t>(action.stage)];
    EncoderClock& clock = encoder.clock;
    const int32_t group = clock.group_of(rank);
    const bool is_forward = action.kind == ActionKind::kEncodeForward;
    double start =
        is_forward ? clock.forward_ready(group, action.microbatch) : clock.backward_ready(group, action.microbatch);
    const auto& members = clock.encoder().groups[static_cast<size_t>(group)];
    for (const int32_t member : members) {
      const auto& row = schedule_.rows[static_cast<size_t>(member)];
      const RankState& state = ranks_[static_cast<size_t>(member)];
      if (state.next == row.size() || row[state.next] != action) return false;
      start = std::max(start, state.free_ms);
    }
    if (start == EncoderClock::kNever) return false;
    const double duration = encoder_duration_ms(action, group);
    for (const int32_t member : members) {
      RankState& state = ranks_[static_cast<size_t>(member)];
      compute(state, member, action, start, duration);
      encoder.busy_ms += duration;
      if (member == rank) continue;
      ++state.next;
      wake(member, ready);
    }
    if (is_forward) {
      const bool is_passed = !clock.encoder().is_last_stage(group);
      const double arrival = is_passed ? pass_on(action, group, start + duration) : start + duration;
      clock.forward_ended(group, action.microbatch, start + duration, arrival);
      if (clock.encoder().is_last_stage(group))
        wake(schedule_.entry_rank(), ready);
      else
        wake_group(clock.encoder(), group + 1, ready);
    } else {
      const bool is_passed = !clock.encoder().is_first_stage(group);
      clock.backward_ended(group, action.microbatch,
                           is_passed ? pass_on(action, group, start + duration) : start + duration);
      if (!clock.encoder().is_first_stage(group)) wake_group(clock.encoder(), group - 1, ready);
    }
    return true;
  }

  /// Over the border between two stages of an encoder's own pipeline. Returns when it arrives.
  double pass_on(const Action& action, int32_t group, double end_ms) {
    const EncoderCosts& costs = costs_.encoders[static_cast<size_t>(action.stage)];
    const bool is_forward = action.kind == ActionKind::kEncodeForward;
    const int32_t border = is_forward ? group : group - 1;
    EncoderWay& way = encoders_[static_cast<size_t>(action.stage)].ways[is_forward ? 0 : 1];
    double& channel_free_ms = way.channel_free_ms[static_cast<size_t>(group)];
    Passage& passage = way.passages.at(group, action.microbatch);
    passage.start_ms = std::max(end_ms, channel_free_ms);
    channel_free_ms = passage.start_ms + costs.p2p_busy_ms.at(border, action.microbatch);
    passage.end_ms = channel_free_ms + costs.p2p_ms.at(border, action.microbatch);
    return passage.end_ms;
  }

  double encoder_duration_ms(const Action& action, int32_t group) const {
    const EncoderCosts& costs = costs_.encoders[static_cast<size_t>(action.stage)];
    const double forward_ms = costs.forward_ms.at(group, action.microbatch);
    if (action.kind == ActionKind::kEncodeForward) return forward_ms;
    const bool runs_forward_again = schedule_.encoders[static_cast<size_t>(action.stage)].recompute_from_inputs;
    return costs.backward_ms.at(group, action.microbatch) + (runs_forward_again ? forward_ms : 0);
  }

  /// An action of the entry stage has read embeddings, which may make room for others, or made their gradient.
  void tell_encoders(const Action& action, double end_ms, std::vector<int32_t>& ready) {
    for (EncoderState& encoder : encoders_) {
      if (action.kind == ActionKind::kForward)
        encoder.clock.microbatch_read(action.microbatch, end_ms);
      else
        encoder.clock.microbatch_gradient(action.microbatch, end_ms);
      const ScheduledEncoder& rows = encoder.clock.encoder();
      for (int32_t group = 0; group < rows.num_groups(); ++group) wake_group(rows, group, ready);
    }
  }

  void wake_group(const ScheduledEncoder& encoder, int32_t group, std::vector<int32_t>& ready) {
    for (const int32_t member : encoder.groups[static_cast<size_t>(group)]) wake(member, ready);
  }

  void wake(int32_t rank, std::vector<int32_t>& ready) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    if (!state.is_waiting) return;
    state.is_waiting = false;
    ready.push_back(rank);
  }

  void deliver(int32_t rank, const Action& action, CellTable<double>& arrival_ms, int32_t to_stage,
               std::vector<int32_t>& ready) {
    RankState& sender = ranks_[static_cast<size_t>(rank)];
    const size_t way = action.kind == ActionKind::kSendForward ? 0 : 1;
    double& channel_free_ms = sender.channel_free_ms[way];
    const double start_ms = std::max(sender.free_ms, channel_free_ms);
    channel_free_ms = start_ms + busy_ms_[way]->at(action.stage, action.microbatch);
    const double end_ms = channel_free_ms + latency_ms_[way]->at(action.stage, action.microbatch);
    arrival_ms.at(to_stage, action.microbatch) = end_ms;
    const int32_t peer = schedule_.rank_of_stage[static_cast<size_t>(to_stage)];
    if (timeline_ != nullptr)
      timeline_->ranks[static_cast<size_t>(rank)].push_back({action, Stream::kSend, start_ms, end_ms});
    wake(peer, ready);
  }

  ScheduleRun summary() {
    ScheduleRun run;
    double busy = 0;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const RankState& state = ranks_[rank];
      WEFT_CHECK(state.next == schedule_.rows[rank].size(), "rank {} waits for ever: run find_problem first", rank);
      run.makespan_ms = std::max({run.makespan_ms, state.free_ms, state.reduce_free_ms});
      run.busy_ms.push_back(state.busy_ms);
      run.end_ms.push_back(state.free_ms);
      run.peak_in_flight.push_back(state.peak_in_flight);
      busy += state.busy_ms;
    }
    if (run.makespan_ms > 0) run.bubble_fraction = 1 - busy / (run.makespan_ms * static_cast<double>(ranks_.size()));
    for (const EncoderState& encoder : encoders_) run.encoders.push_back({encoder.busy_ms, encoder.clock.peak_live()});
    if (timeline_ != nullptr) timeline_->makespan_ms = run.makespan_ms;
    return run;
  }

  const Schedule& schedule_;
  const PipelineCosts& costs_;
  Timeline* timeline_;
  const CostTable* latency_ms_[2];  // forwards and backwards
  const CostTable* busy_ms_[2];
  std::vector<RankState> ranks_;
  std::vector<EncoderState> encoders_;
  CellTable<double> input_ms_;      // when a cell's input arrives
  CellTable<double> gradient_ms_;   // when its output's gradient arrives
  std::vector<double> reduced_ms_;  // when a stage's gradients are reduced
};

}  // namespace

ScheduleRun run_schedule(const Schedule& lowered, const PipelineCosts& costs, Timeline* timeline) {
  if (lowered.encoders.empty()) return Run<false>(lowered, costs, timeline).run();
  return Run<true>(lowered, costs, timeline).run();
}

}  // namespace weft
