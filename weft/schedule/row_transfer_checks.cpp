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
  bool is_done(ActionKind kind, size_t macro) const { return done_[static_cast<size_t>(kind)][macro]; }
  void fail(size_t position, std::string message) {
    if (!problem_) problem_ = ScheduleProblem{rank_, position, std::move(message)};
  }

  void check(size_t i, const Action& a, const std::vector<int32_t>& ungiven) {
    if (ends_encoder(a.kind)) return check_end(i, a);
    const auto k = static_cast<size_t>(a.microbatch);
    if (is_row_transfer(a.kind)) {
      const bool is_encoders = a.kind == ActionKind::kSendRows || a.kind == ActionKind::kRecvRowGrads;
      if (!(is_encoders ? makes_ : takes_))
        return fail(i, fmt::format("is not done here, but {}",
                                   is_encoders ? "on the ranks of the encoder's last stage" : "where the llm begins"));
      if (!rows_.is_trained && (a.kind == ActionKind::kSendRowGrads || a.kind == ActionKind::kRecvRowGrads))
        return fail(i, "is a gradient of a frozen encoder");
      if (is_done(a.kind, k)) return fail(i, "comes twice");
      if (k > 0 && !is_done(a.kind, k - 1))
        return fail(i, fmt::format("comes before {}: the two ends disagree on the order", name(a.kind, k - 1)));
    }
    if (a.kind == ActionKind::kSendRows && !is_done(ActionKind::kEncodeForward, k))
      return fail(i, "sends what is not made yet");
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
    }
  }

  const Schedule& schedule_;
  int32_t encoder_;
  const ScheduledEncoder& rows_;
  int32_t rank_;
  const std::vector<Action>& row_;
  bool takes_;          ///< rows into the llm
  bool makes_ = false;  ///< rows, in the encoder's last stage
  bool runs_ = false;
  bool is_reduced_ = false;
  bool is_updated_ = false;
  int32_t num_left_ = 0;  ///< EF and EB
  std::vector<bool> done_[kNumActionKinds];
  std::optional<ScheduleProblem> problem_;
};

}  // namespace

std::optional<ScheduleProblem> find_row_transfer_problem(const Schedule& schedule, bool is_lowered) {
  for (int32_t encoder = 0; encoder < static_cast<int32_t>(schedule.encoders.size()); ++encoder) {
    for (int32_t rank = 0; rank < schedule.num_ranks(); ++rank) {
      if (auto problem = EncoderOnRank(schedule, encoder, rank, is_lowered).find()) return problem;
    }
  }
  return std::nullopt;
}

}  // namespace weft
