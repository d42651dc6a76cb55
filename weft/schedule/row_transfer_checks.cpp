#include "weft/schedule/row_transfer_checks.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace weft {
namespace {

/// One encoder's actions on one rank.
class EncoderOnRank {
 public:
  EncoderOnRank(const Schedule& schedule, int32_t encoder, int32_t rank, bool is_lowered)
      : schedule_(schedule),
        encoder_(encoder),
        rows_(schedule.encoders[static_cast<size_t>(encoder)]),
        rank_(rank),
        row_(schedule.rows[static_cast<size_t>(rank)]),
        takes_(is_lowered && rank == schedule.entry_rank()) {
    for (int32_t group = 0; group < rows_.num_groups(); ++group) {
      const auto& members = rows_.groups[static_cast<size_t>(group)];
      if (std::find(members.begin(), members.end(), rank) == members.end()) continue;
      runs_ = true;
      makes_ = is_lowered && rows_.is_last_stage(group);
      has_before_ = is_lowered && !rows_.is_first_stage(group);
      has_next_ = is_lowered && !rows_.is_last_stage(group);
    }
  }

  std::optional<ScheduleProblem> find() {
    std::vector<int32_t> ungiven;  // by macro batch: microbatches whose entry stage has made no gradient
    count_microbatches(ungiven);
    num_left_ = runs_ ? rows_.num_macro_batches * (rows_.is_trained ? 2 : 1) : 0;
    const auto num_macro = static_cast<size_t>(rows_.num_macro_batches);
    for (auto& done : done_) done.assign(num_macro, false);
    for (size_t i = 0; i < row_.size() && !problem_; ++i) {
      const Action& a = row_[i];
      if (is_encoder(a.kind) && a.stage == encoder_) {
        check(i, a, ungiven);
      } else if (takes_ && is_pipeline_compute(a.kind) && a.stage == schedule_.entry_stage) {
        const bool is_forward = a.kind == ActionKind::kForward;
        each_macro(a.microbatch, [&](size_t k) {
          if (is_forward && !is_done(ActionKind::kRecvRows, k))
            fail(i, fmt::format("runs before {} is received", name(ActionKind::kSendRows, k)));
          if (makes_gradient(a.kind)) --ungiven[k];
        });
      }
    }
    if (!problem_) check_missing();
    return problem_;
  }

 private:
  template <typename Visit>
  void each_macro(int32_t microbatch, Visit visit) const {
    const auto m = static_cast<size_t>(microbatch);
    for (int32_t k = rows_.first_macro[m]; k < rows_.end_macro[m]; ++k) visit(static_cast<size_t>(k));
  }
  void count_microbatches(std::vector<int32_t>& counts) const {
    counts.assign(static_cast<size_t>(rows_.num_macro_batches), 0);
    for (int32_t m = 0; m < schedule_.num_microbatches; ++m) each_macro(m, [&](size_t k) { ++counts[k]; });
  }
  std::string name(ActionKind kind, size_t macro) const {
    return to_text({kind, encoder_, static_cast<int32_t>(macro)});
  }
  static bool is_of_gradients(ActionKind kind) {
    return kind == ActionKind::kSendRowGrads || kind == ActionKind::kRecvRowGrads ||
           kind == ActionKind::kSendEncodedGrads || kind == ActionKind::kRecvEncodedGrads;
  }
  /// Of a transfer.
  bool is_done_here(ActionKind kind) const {
    switch (kind) {
      case ActionKind::kSendRows:
      case ActionKind::kRecvRowGrads:
        return makes_;
      case ActionKind::kSendEncoded:
      case ActionKind::kRecvEncodedGrads:
        return has_next_;
      case ActionKind::kRecvEncoded:
      case ActionKind::kSendEncodedGrads:
        return has_before_;
      default:
        return takes_;
    }
  }
  static const char* place_of(ActionKind kind) {
    switch (kind) {
      case ActionKind::kSendRows:
      case ActionKind::kRecvRowGrads:
        return "on the ranks of the encoder's last stage";
      case ActionKind::kSendEncoded:
      case ActionKind::kRecvEncodedGrads:
        return "on those of the encoder's stages that have one behind them";
      case ActionKind::kRecvEncoded:
      case ActionKind::kSendEncodedGrads:
        return "on those of the encoder's stages that have one before them";
      default:
        return "where the llm begins";
    }
  }
  bool is_done(ActionKind kind, size_t macro) const { return done_[static_cast<size_t>(kind)][macro]; }
  void fail(size_t position, std::string message) {
    if (!problem_) problem_ = ScheduleProblem{rank_, position, std::move(message)};
  }

  void check(size_t i, const Action& a, const std::vector<int32_t>& ungiven) {
    if (ends_encoder(a.kind)) return check_end(i, a);
    const auto k = static_cast<size_t>(a.microbatch);
    if (is_row_transfer(a.kind) || is_encoder_transfer(a.kind)) {
      if (!is_done_here(a.kind)) return fail(i, fmt::format("is not done here, but {}", place_of(a.kind)));
      if (!rows_.is_trained && is_of_gradients(a.kind)) return fail(i, "is a gradient of a frozen encoder");
      if (is_done(a.kind, k)) return fail(i, "comes twice");
    }
    const bool sends_made = a.kind == ActionKind::kSendRows || a.kind == ActionKind::kSendEncoded;
    if (sends_made && !is_done(ActionKind::kEncodeForward, k)) return fail(i, "sends what is not made yet");
    if (a.kind == ActionKind::kSendEncodedGrads && !is_done(ActionKind::kEncodeBackward, k))
      return fail(i, "sends what is not made yet");
    if (a.kind == ActionKind::kEncodeForward && has_before_ && !is_done(ActionKind::kRecvEncoded, k))
      return fail(i, "runs before its input is received");
    if (a.kind == ActionKind::kEncodeBackward && has_next_ && !is_done(ActionKind::kRecvEncodedGrads, k))
      return fail(i, "runs before its output's gradient is received");
    if (a.kind == ActionKind::kSendRowGrads && ungiven[k] > 0)
      return fail(i, fmt::format("sends gradients when {} microbatches have yet to make theirs", ungiven[k]));
    if (a.kind == ActionKind::kEncodeBackward && makes_ && !is_done(ActionKind::kRecvRowGrads, k))
      return fail(i, "runs before its rows' gradients are received");
    if (is_encoder_compute(a.kind)) {
      if (is_reduced_ || is_updated_) return fail(i, "comes after the encoder's step has ended");
      --num_left_;
    }
    done_[static_cast<size_t>(a.kind)][k] = true;
  }

  void check_end(size_t i, const Action& a) {
    bool& is_done = a.kind == ActionKind::kEncodeReduce ? is_reduced_ : is_updated_;
    if (!runs_) return fail(i, fmt::format("encoder {} does not run on this rank", rows_.name));
    if (is_done) return fail(i, "comes twice");
    if (num_left_ > 0) return fail(i, fmt::format("comes when the encoder has {} actions left", num_left_));
    if (a.kind == ActionKind::kEncodeReduce && is_updated_) return fail(i, "comes after the encoder's update");
    is_done = true;
  }

  void check_missing() {
    for (size_t k = 0; k < static_cast<size_t>(rows_.num_macro_batches); ++k) {
      const auto expect = [&](bool is_here, ActionKind kind) {
        if (is_here && !is_done(kind, k)) fail(row_.size(), fmt::format("{} is missing", name(kind, k)));
      };
      expect(makes_, ActionKind::kSendRows);
      expect(takes_, ActionKind::kRecvRows);
      expect(takes_ && rows_.is_trained, ActionKind::kSendRowGrads);
      expect(makes_ && rows_.is_trained, ActionKind::kRecvRowGrads);
      expect(has_next_, ActionKind::kSendEncoded);
      expect(has_before_, ActionKind::kRecvEncoded);
      expect(has_before_ && rows_.is_trained, ActionKind::kSendEncodedGrads);
      expect(has_next_ && rows_.is_trained, ActionKind::kRecvEncodedGrads);
    }
  }

  const Schedule& schedule_;
  int32_t encoder_;
  const ScheduledEncoder& rows_;
  int32_t rank_;
  const std::vector<Action>& row_;
  bool takes_;               ///< rows into the llm
  bool makes_ = false;       ///< rows, in the encoder's last stage
  bool has_before_ = false;  ///< a stage of the encoder's own pipeline
  bool has_next_ = false;
  bool runs_ = false;
  bool is_reduced_ = false;
  bool is_updated_ = false;
  int32_t num_left_ = 0;  ///< EF and EB
  std::vector<bool> done_[kNumActionKinds];
  std::optional<ScheduleProblem> problem_;
};

/// Whether both ends of every channel have the same order: messages from one rank to another are told apart by it.
class EncoderChannels {
 public:
  EncoderChannels(const Schedule& schedule, int32_t encoder)
      : schedule_(schedule), encoder_(encoder), rows_(schedule.encoders[static_cast<size_t>(encoder)]) {}

  std::optional<ScheduleProblem> find() const {
    const std::vector<int32_t> entry = {schedule_.entry_rank()};
    for (int32_t group = 0; group < rows_.num_groups(); ++group) {
      const std::vector<int32_t>& own = rows_.groups[static_cast<size_t>(group)];
      const bool is_last = rows_.is_last_stage(group);
      const std::vector<int32_t>& next = is_last ? entry : rows_.groups[static_cast<size_t>(group) + 1];
      auto problem = is_last ? compare(own, ActionKind::kSendRows, next, ActionKind::kRecvRows)
                             : compare(own, ActionKind::kSendEncoded, next, ActionKind::kRecvEncoded);
      if (!problem) {
        problem = is_last ? compare(next, ActionKind::kSendRowGrads, own, ActionKind::kRecvRowGrads)
                          : compare(next, ActionKind::kSendEncodedGrads, own, ActionKind::kRecvEncodedGrads);
      }
      if (problem) return problem;
    }
    return std::nullopt;
  }

 private:
  /// Places in a rank's row and macro batches there, of one kind of transfer.
  std::vector<std::pair<size_t, int32_t>> order_of(int32_t rank, ActionKind kind) const {
    std::vector<std::pair<size_t, int32_t>> order;
    const std::vector<Action>& row = schedule_.rows[static_cast<size_t>(rank)];
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i].kind == kind && row[i].stage == encoder_) order.emplace_back(i, row[i].microbatch);
    }
    return order;
  }

  std::optional<ScheduleProblem> compare(const std::vector<int32_t>& senders, ActionKind send,
                                         const std::vector<int32_t>& receivers, ActionKind receive) const {
    for (const int32_t from : senders) {
      const auto sent = order_of(from, send);
      for (const int32_t to : receivers) {
        const auto received = order_of(to, receive);
        for (size_t i = 0; i < std::min(sent.size(), received.size()); ++i) {
          if (sent[i].second == received[i].second) continue;
          return ScheduleProblem{to, received[i].first,
                                 fmt::format("rank {} sends {} here: the two ends disagree on the order", from,
                                             to_text({send, encoder_, sent[i].second}))};
        }
      }
    }
    return std::nullopt;
  }

  const Schedule& schedule_;
  int32_t encoder_;
  const ScheduledEncoder& rows_;
};

}  // namespace

std::optional<ScheduleProblem> find_row_transfer_problem(const Schedule& schedule, bool is_lowered) {
  for (int32_t encoder = 0; encoder < static_cast<int32_t>(schedule.encoders.size()); ++encoder) {
    for (int32_t rank = 0; rank < schedule.num_ranks(); ++rank) {
      if (auto problem = EncoderOnRank(schedule, encoder, rank, is_lowered).find()) return problem;
    }
    if (!is_lowered) continue;
    if (auto problem = EncoderChannels(schedule, encoder).find()) return problem;
  }
  return std::nullopt;
}

}  // namespace weft
