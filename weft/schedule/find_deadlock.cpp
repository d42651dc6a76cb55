#include "weft/schedule/find_deadlock.h"

#include <map>
#include <set>
#include <tuple>

#include "weft/schedule/cell_table.h"

namespace weft {
namespace {

/// Whatever happens can only let others happen, so the order of ranks does not matter: a rank is looked at again when
/// something that it may wait for has happened.
class Rehearsal {
 public:
  explicit Rehearsal(const Schedule& schedule)
      : schedule_(schedule),
        next_(schedule.rows.size(), 0),
        is_queued_(schedule.rows.size(), false),
        forward_(schedule, 0),
        gradient_(schedule, 0) {
    for (const ScheduledEncoder& encoder : schedule.encoders) {
      groups_.push_back(groups_of_ranks(encoder, schedule.num_ranks()));
      encoded_.emplace_back(static_cast<size_t>(encoder.num_macro_batches), 0);
      int32_t& makers = num_makers_.emplace_back(0);
      for (int32_t group = 0; group < encoder.num_groups(); ++group) {
        if (encoder.is_last_stage(group))
          makers += static_cast<int32_t>(encoder.groups[static_cast<size_t>(group)].size());
      }
    }
    unread_ = encoded_;
    num_read_.assign(schedule.encoders.size(), 0);
    for (int32_t m = 0; m < schedule.num_microbatches; ++m) {
      for_needs(m, [&](size_t e, size_t k) { ++unread_[e][k]; });
    }
    without_gradient_ = unread_;
    sent_rows_ = sent_gradients_ = encoded_;
  }

  std::optional<ScheduleProblem> run() {
    for (int32_t rank = schedule_.num_ranks() - 1; rank >= 0; --rank) wake(rank);
    while (!queue_.empty()) {
      const int32_t rank = queue_.back();
      queue_.pop_back();
      is_queued_[static_cast<size_t>(rank)] = false;
      while (step(rank)) {
      }
    }
    for (int32_t rank = 0; rank < schedule_.num_ranks(); ++rank) {
      if (here(rank) != nullptr)
        return ScheduleProblem{rank, next_[static_cast<size_t>(rank)], "waits for ever: the rows deadlock"};
    }
    return std::nullopt;
  }

 private:
  int32_t rank_of(int32_t stage) const { return schedule_.rank_of_stage[static_cast<size_t>(stage)]; }
  size_t group_of(int32_t encoder, int32_t rank) const {
    return static_cast<size_t>(groups_[static_cast<size_t>(encoder)][static_cast<size_t>(rank)]);
  }

  const Action* here(int32_t rank) const {
    const auto& row = schedule_.rows[static_cast<size_t>(rank)];
    return next_[static_cast<size_t>(rank)] < row.size() ? &row[next_[static_cast<size_t>(rank)]] : nullptr;
  }

  void wake(int32_t rank) {
    if (is_queued_[static_cast<size_t>(rank)]) return;
    is_queued_[static_cast<size_t>(rank)] = true;
    queue_.push_back(rank);
  }
  void wake_group(const ScheduledEncoder& encoder, size_t group) {
    for (const int32_t rank : encoder.groups[group]) wake(rank);
  }
  /// All that wait for the llm's entry stage. One rank of a group is enough: it looks at the others.
  void wake_encoders() {
    for (const ScheduledEncoder& encoder : schedule_.encoders) {
      for (const auto& group : encoder.groups) wake(group.front());
    }
  }

  bool step(int32_t rank) {
    const Action* a = here(rank);
    if (a == nullptr) return false;
    if (is_encoder_compute(a->kind)) return step_encoder(rank, *a);
    if (is_row_transfer(a->kind)) return step_rows(rank, *a);
    if (is_encoder_transfer(a->kind)) return step_encoded(rank, *a);
    if (is_transfer(a->kind)) return step_transfer(rank, *a);
    const bool is_entry = a->stage == schedule_.entry_stage;
    if (a->kind == ActionKind::kForward) {
      if (a->stage > 0 && forward_.at(a->stage - 1, a->microbatch) == 0) return false;
      if (is_entry && !is_encoded(a->microbatch)) return false;
      forward_.at(a->stage, a->microbatch) = 1;
      if (a->stage + 1 < schedule_.num_stages()) wake(rank_of(a->stage + 1));
      if (is_entry) {
        for_needs(a->microbatch, [&](size_t e, size_t k) { num_read_[e] += --unread_[e][k] == 0 ? 1 : 0; });
        wake_encoders();
      }
    } else if (makes_gradient(a->kind)) {
      if (a->stage + 1 < schedule_.num_stages() && gradient_.at(a->stage + 1, a->microbatch) == 0) return false;
      gradient_.at(a->stage, a->microbatch) = 1;
      if (a->stage > 0) wake(rank_of(a->stage - 1));
      if (is_entry) {
        for_needs(a->microbatch, [&](size_t e, size_t k) { --without_gradient_[e][k]; });
        wake_encoders();
      }
    }
    ++next_[static_cast<size_t>(rank)];
    return true;
  }

  bool step_transfer(int32_t rank, const Action& a) {
    const Action send = sent_by(a);
    const int32_t to = rank_of(send.kind == ActionKind::kSendForward ? send.stage + 1 : send.stage - 1);
    const int32_t from = rank_of(send.stage), peer = from == rank ? to : from;
    const Action* b = here(peer);
    if (b == nullptr || !is_transfer(b->kind) || is_send(a.kind) == is_send(b->kind) || send != sent_by(*b))
      return false;
    ++next_[static_cast<size_t>(peer)];
    ++next_[static_cast<size_t>(rank)];
    wake(peer);
    return true;
  }

  /// Rows and gradients of a macro batch are sent without waiting, and received when all who make them have sent them.
  bool step_rows(int32_t rank, const Action& a) {
    const auto e = static_cast<size_t>(a.stage), k = static_cast<size_t>(a.microbatch);
    if (a.kind == ActionKind::kRecvRows && sent_rows_[e][k] < num_makers_[e]) return false;
    if (a.kind == ActionKind::kRecvRowGrads && sent_gradients_[e][k] == 0) return false;
    if (a.kind == ActionKind::kSendRows && ++sent_rows_[e][k] == num_makers_[e]) wake(schedule_.entry_rank());
    if (a.kind == ActionKind::kSendRowGrads) {
      ++sent_gradients_[e][k];
      const ScheduledEncoder& encoder = schedule_.encoders[e];
      for (int32_t group = encoder.num_stages - 1; group < encoder.num_groups(); group += encoder.num_stages)
        wake_group(encoder, static_cast<size_t>(group));
    }
    ++next_[static_cast<size_t>(rank)];
    return true;
  }

  /// The same between stages of an encoder's own pipeline: received when all ranks of the sending stage have sent.
  bool step_encoded(int32_t rank, const Action& a) {
    const ScheduledEncoder& encoder = schedule_.encoders[static_cast<size_t>(a.stage)];
    const size_t group = group_of(a.stage, rank);
    if (is_send(a.kind)) {
      const bool is_last = ++num_sent_[{a.kind, a.stage, a.microbatch, group}] == std::ssize(encoder.groups[group]);
      if (is_last) wake_group(encoder, a.kind == ActionKind::kSendEncoded ? group + 1 : group - 1);
    } else {
      const bool is_forward = a.kind == ActionKind::kRecvEncoded;
      const ActionKind send = is_forward ? ActionKind::kSendEncoded : ActionKind::kSendEncodedGrads;
      const size_t sender = is_forward ? group - 1 : group + 1;
      if (num_sent_[{send, a.stage, a.microbatch, sender}] < std::ssize(encoder.groups[sender])) return false;
    }
    ++next_[static_cast<size_t>(rank)];
    return true;
  }

  /// Whether every encoder has run, on all its groups, what the microbatch needs.
  bool is_encoded(int32_t microbatch) const {
    bool is_complete = true;
    for_needs(microbatch, [&](size_t e, size_t k) {
      const ScheduledEncoder& encoder = schedule_.encoders[e];
      is_complete &= encoded_[e][k] >= encoder.num_groups() / encoder.num_stages;
    });
    return is_complete;
  }

  bool step_encoder(int32_t rank, const Action& action) {
    const auto e = static_cast<size_t>(action.stage);
    const ScheduledEncoder& encoder = schedule_.encoders[e];
    const size_t group = group_of(action.stage, rank);
    const bool is_forward = action.kind == ActionKind::kEncodeForward;
    const bool may_run = is_forward ? may_encode(encoder, action, group) : has_gradient(encoder, action, group);
    if (!may_run) return false;
    for (const int32_t member : encoder.groups[group]) {
      const Action* other = here(member);
      if (other == nullptr || *other != action) return false;
    }
    for (const int32_t member : encoder.groups[group]) {
      ++next_[static_cast<size_t>(member)];
      if (member != rank) wake(member);
    }
    ran_.insert({action.kind, action.stage, action.microbatch, group});
    if (!is_forward) {
      if (!encoder.is_first_stage(static_cast<int32_t>(group))) wake(encoder.groups[group - 1].front());
      return true;
    }
    ++num_encoded_[{action.stage, group}];
    if (encoder.is_last_stage(static_cast<int32_t>(group))) {
      ++encoded_[e][static_cast<size_t>(action.microbatch)];
      wake(schedule_.entry_rank());
    } else {
      wake(encoder.groups[group + 1].front());
    }
    return true;
  }

  /// EF: the encoder's stage before has run, and outputs that nobody has read yet leave room for one more.
  bool may_encode(const ScheduledEncoder& encoder, const Action& a, size_t group) {
    if (!encoder.is_first_stage(static_cast<int32_t>(group)) &&
        !ran_.contains({a.kind, a.stage, a.microbatch, group - 1}))
      return false;
    if (encoder.live_macro_batches == 0 || encoder.keeps_activations()) return true;
    return num_encoded_[{a.stage, group}] - num_read_[static_cast<size_t>(a.stage)] < encoder.live_macro_batches;
  }

  /// EB: every gradient has come back, or the encoder's next stage has sent its own.
  bool has_gradient(const ScheduledEncoder& encoder, const Action& a, size_t group) const {
    if (encoder.is_last_stage(static_cast<int32_t>(group))) {
      return without_gradient_[static_cast<size_t>(a.stage)][static_cast<size_t>(a.microbatch)] == 0;
    }
    return ran_.contains({a.kind, a.stage, a.microbatch, group + 1});
  }

  /// Calls with each encoder and macro batch that a microbatch needs.
  template <typename Visit>
  void for_needs(int32_t microbatch, Visit visit) const {
    for (size_t e = 0; e < schedule_.encoders.size(); ++e) {
      const ScheduledEncoder& encoder = schedule_.encoders[e];
      const auto m = static_cast<size_t>(microbatch);
      for (int32_t k = encoder.first_macro[m]; k < encoder.end_macro[m]; ++k) visit(e, static_cast<size_t>(k));
    }
  }

  const Schedule& schedule_;
  std::vector<size_t> next_;
  std::vector<int32_t> queue_;  ///< ranks that may go on
  std::vector<bool> is_queued_;
  CellTable<uint8_t> forward_;
  CellTable<uint8_t> gradient_;
  std::vector<std::vector<int32_t>> groups_;   ///< by encoder and rank
  std::vector<int32_t> num_makers_;            ///< by encoder: ranks of its last stage
  std::vector<std::vector<int32_t>> encoded_;  ///< by encoder and macro batch: replicas that have run it
  std::vector<std::vector<int32_t>> unread_,
      without_gradient_;           ///< the same: microbatches whose entry stage has yet to run F, and B or I
  std::vector<int32_t> num_read_;  ///< by encoder: macro batches that no microbatch has yet to read
  std::vector<std::vector<int32_t>> sent_rows_, sent_gradients_;  ///< by encoder and macro batch: ranks that sent them
  std::map<std::tuple<ActionKind, int32_t, int32_t, size_t>, int32_t>
      num_sent_;  ///< inside encoders' pipelines, by kind, encoder, macro batch and group: ranks that have sent
  std::set<std::tuple<ActionKind, int32_t, int32_t, size_t>> ran_;  ///< kind, encoder, macro batch, group
  std::map<std::pair<int32_t, size_t>, int32_t> num_encoded_;       ///< per encoder and group
};

}  // namespace

std::optional<ScheduleProblem> find_deadlock(const Schedule& schedule) {
  return Rehearsal(schedule).run();
}

}  // namespace weft
