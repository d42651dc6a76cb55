#include "weft/schedule/lowering.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/schedule/awake_ranks.h"
#include "weft/schedule/cell_table.h"
#include "weft/schedule/encoder_clock.h"

namespace weft {
namespace {

/// Runs the rows jointly in rounds, one action a rank and round, in the order of ranks, and writes the lowered rows as
/// it goes. With equal times for all actions a round is a moment, so a RECV stands about where its data arrives. The
/// actions of an encoder's group happen in one round on all its ranks: together with the pairs of SEND and RECV that
/// makes one joint order of everything.
class Lowering {
 public:
  explicit Lowering(const Schedule& schedule)
      : schedule_(schedule),
        awake_(schedule.rows.size()),
        next_(schedule.rows.size(), 0),
        forward_made_(schedule, 0),
        backward_made_(schedule, 0) {
    lowered_.num_microbatches = schedule.num_microbatches;
    lowered_.rank_of_stage = schedule.rank_of_stage;
    lowered_.encoders = schedule.encoders;
    lowered_.entry_stage = schedule.entry_stage;
    lowered_.rows.resize(schedule.rows.size());
    for (size_t rank = 0; rank < schedule.rows.size(); ++rank)
      lowered_.rows[rank].reserve(3 * schedule.rows[rank].size());
    for (const ScheduledEncoder& encoder : schedule.encoders) {
      clocks_.emplace_back(encoder, schedule.num_ranks());
      auto& leaders = leaders_.emplace_back();
      for (const auto& group : encoder.groups) leaders.push_back(*std::min_element(group.begin(), group.end()));
      next_rows_.push_back(0);
      auto& ungiven = ungiven_.emplace_back(static_cast<size_t>(encoder.num_macro_batches), 0);
      for (size_t m = 0; m < encoder.first_macro.size(); ++m) {
        for (int32_t k = encoder.first_macro[m]; k < encoder.end_macro[m]; ++k) ++ungiven[static_cast<size_t>(k)];
      }
    }
    if (!clocks_.empty()) moved_in_.assign(schedule.rows.size(), 0);
  }

  Result<Schedule> run() {
    for (auto ranks = awake_.next_round(); !ranks.empty(); ranks = awake_.next_round()) {
      ++round_;
      for (const int32_t rank : ranks) advance(rank);
    }
    for (size_t rank = 0; rank < schedule_.rows.size(); ++rank) {
      if (next_[rank] < schedule_.rows[rank].size()) {
        return Error{.source = "schedule",
                     .field = fmt::format("rank {}", rank),
                     .problem = fmt::format("deadlock: {} waits for ever for its input",
                                            to_text(schedule_.rows[rank][next_[rank]])),
                     .advice = "The ranks' orders contradict each other."};
      }
    }
    return std::move(lowered_);
  }

 private:
  /// The lowest rank runs a group's action for all of them, in its turn of the round.
  void wake_group(int32_t encoder, int32_t group) {
    awake_.wake(leaders_[static_cast<size_t>(encoder)][static_cast<size_t>(group)]);
  }
  /// After the rank has moved.
  void wake_at_next(int32_t rank) {
    awake_.wake(rank);
    const auto& row = schedule_.rows[static_cast<size_t>(rank)];
    const size_t next = next_[static_cast<size_t>(rank)];
    if (next == row.size() || !is_encoder_compute(row[next].kind)) return;
    wake_group(row[next].stage, clocks_[static_cast<size_t>(row[next].stage)].group_of(rank));
  }

  /// Whether what the action reads was made in an earlier round.
  bool is_ready(const Action& action) const {
    const auto made = [&](const CellTable<int32_t>& rounds) {
      const int32_t round = rounds.at(action.stage, action.microbatch);
      return round > 0 && round < round_;
    };
    switch (action.kind) {
      case ActionKind::kForward:
        return (action.stage == 0 || made(forward_made_)) &&
               (action.stage != schedule_.entry_stage || is_encoded(action.microbatch));
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        return action.stage + 1 == schedule_.num_stages() || made(backward_made_);
      default:
        return true;
    }
  }

  bool is_encoded(int32_t microbatch) const {
    return std::all_of(clocks_.begin(), clocks_.end(),
                       [&](const EncoderClock& clock) { return clock.microbatch_ready(microbatch) < round_; });
  }

  void advance(int32_t rank) {
    const auto& row = schedule_.rows[static_cast<size_t>(rank)];
    size_t& next = next_[static_cast<size_t>(rank)];
    if (next == row.size() || (!clocks_.empty() && moved_in_[static_cast<size_t>(rank)] == round_)) return;
    if (is_encoder_compute(row[next].kind)) return advance_group(rank, row[next]);
    if (!is_ready(row[next])) return;
    const Action& action = row[next++];
    const bool is_entry = !clocks_.empty() && is_pipeline_compute(action.kind) && action.stage == schedule_.entry_stage;
    if (is_entry && action.kind == ActionKind::kForward) receive_rows(rank, action.microbatch);
    lowered_.rows[static_cast<size_t>(rank)].push_back(action);
    if (!clocks_.empty()) moved_in_[static_cast<size_t>(rank)] = round_;
    if (is_entry) tell_encoders(action);
    if (action.kind == ActionKind::kForward && action.stage + 1 < schedule_.num_stages()) {
      hand_over(action, action.stage + 1, ActionKind::kSendForward, ActionKind::kRecvForward, forward_made_);
    }
    if (makes_gradient(action.kind) && action.stage > 0) {
      hand_over(action, action.stage - 1, ActionKind::kSendBackward, ActionKind::kRecvBackward, backward_made_);
    }
    if (is_entry && makes_gradient(action.kind)) send_row_gradients(rank, action.microbatch);
    wake_at_next(rank);
  }

  /// What F of the entry stage reads for the first time. Microbatches need macro batches in order.
  void receive_rows(int32_t rank, int32_t microbatch) {
    for (size_t e = 0; e < clocks_.size(); ++e) {
      const int32_t end = clocks_[e].encoder().end_macro[static_cast<size_t>(microbatch)];
      for (int32_t& k = next_rows_[e]; k < end; ++k)
        lowered_.rows[static_cast<size_t>(rank)].push_back({ActionKind::kRecvRows, static_cast<int32_t>(e), k});
    }
  }

  void send_row_gradients(int32_t rank, int32_t microbatch) {
    for (size_t e = 0; e < clocks_.size(); ++e) {
      const ScheduledEncoder& encoder = clocks_[e].encoder();
      if (!encoder.is_trained) continue;
      const auto m = static_cast<size_t>(microbatch);
      for (int32_t k = encoder.first_macro[m]; k < encoder.end_macro[m]; ++k) {
        if (--ungiven_[e][static_cast<size_t>(k)] > 0) continue;
        lowered_.rows[static_cast<size_t>(rank)].push_back({ActionKind::kSendRowGrads, static_cast<int32_t>(e), k});
      }
    }
  }

  /// Runs an encoder action on all ranks of the group, once all have reached it and its inputs are there.
  void advance_group(int32_t rank, const Action& action) {
    EncoderClock& clock = clocks_[static_cast<size_t>(action.stage)];
    const int32_t group = clock.group_of(rank);
    const bool is_forward = action.kind == ActionKind::kEncodeForward;
    const double ready =
        is_forward ? clock.forward_ready(group, action.microbatch) : clock.backward_ready(group, action.microbatch);
    if (!(ready < round_)) return;
    const auto& members = clock.encoder().groups[static_cast<size_t>(group)];
    const bool all_here = std::all_of(members.begin(), members.end(), [&](int32_t member) {
      const auto m = static_cast<size_t>(member);
      return moved_in_[m] < round_ && next_[m] < schedule_.rows[m].size() && schedule_.rows[m][next_[m]] == action;
    });
    if (!all_here) return;
    const bool is_first = clock.encoder().is_first_stage(group), is_last = clock.encoder().is_last_stage(group);
    for (const int32_t member : members) {
      const auto m = static_cast<size_t>(member);
      const auto write = [&](ActionKind kind) { lowered_.rows[m].push_back({kind, action.stage, action.microbatch}); };
      if (is_forward && !is_first) write(ActionKind::kRecvEncoded);
      if (!is_forward) write(is_last ? ActionKind::kRecvRowGrads : ActionKind::kRecvEncodedGrads);
      write(action.kind);
      if (is_forward) write(is_last ? ActionKind::kSendRows : ActionKind::kSendEncoded);
      if (!is_forward && !is_first) write(ActionKind::kSendEncodedGrads);
      ++next_[m];
      moved_in_[m] = round_;
    }
    for (const int32_t member : members) wake_at_next(member);
    if (is_forward) {
      clock.forward_ended(group, action.microbatch, round_);
      if (is_last)
        awake_.wake(schedule_.entry_rank());
      else
        wake_group(action.stage, group + 1);
    } else {
      clock.backward_ended(group, action.microbatch, round_);
      if (!is_first) wake_group(action.stage, group - 1);
    }
  }

  void tell_encoders(const Action& action) {
    for (const auto& leaders : leaders_) {
      for (const int32_t leader : leaders) awake_.wake(leader);
    }
    for (EncoderClock& clock : clocks_) {
      if (action.kind == ActionKind::kForward) clock.microbatch_read(action.microbatch, round_);
      if (makes_gradient(action.kind)) clock.microbatch_gradient(action.microbatch, round_);
    }
  }

  void hand_over(const Action& action, int32_t to_stage, ActionKind send, ActionKind recv, CellTable<int32_t>& made) {
    const int32_t from = schedule_.rank_of_stage[static_cast<size_t>(action.stage)];
    const int32_t to = schedule_.rank_of_stage[static_cast<size_t>(to_stage)];
    made.at(to_stage, action.microbatch) = round_;
    if (from == to) return;
    awake_.wake(to);
    lowered_.rows[static_cast<size_t>(from)].push_back({send, action.stage, action.microbatch});
    lowered_.rows[static_cast<size_t>(to)].push_back({recv, to_stage, action.microbatch});
  }

  const Schedule& schedule_;
  Schedule lowered_;
  int32_t round_ = 0;
  AwakeRanks awake_;
  std::vector<EncoderClock> clocks_;           // times are rounds
  std::vector<std::vector<int32_t>> leaders_;  // by encoder and group: the lowest rank
  std::vector<int32_t> next_rows_;             // by encoder: the first macro batch whose rows are not received
  std::vector<std::vector<int32_t>> ungiven_;  // the same, by macro batch: microbatches that have not given gradients
  std::vector<int32_t> moved_in_;  // the last round in which a rank moved; only kept when there are encoders
  std::vector<size_t> next_;
  CellTable<int32_t> forward_made_;   // for each cell the round in which its input was made, 0 before
  CellTable<int32_t> backward_made_;  // the same for its output's gradient
};

}  // namespace

Result<Schedule> lower_schedule(const Schedule& schedule) {
  return Lowering(schedule).run();
}

}  // namespace weft
