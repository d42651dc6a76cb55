#include "weft/schedule/encoder_on_demand.h"

#include "weft/base/check.h"
#include "weft/schedule/awake_ranks.h"
#include "weft/schedule/cell_table.h"

namespace weft {
namespace {

/// Runs the pipeline's rows jointly in rounds, one action a rank and round, and writes rows as it goes. The order in
/// which it writes is one joint order of everything, so the rows cannot wait for each other.
class OnDemand {
 public:
  OnDemand(const Schedule& schedule, std::span<const int32_t> encoders)
      : schedule_(schedule),
        encoders_(encoders),
        rows_(schedule.rows.size()),
        next_(schedule.rows.size(), 0),
        awake_(schedule.rows.size()),
        input_round_(schedule, 0),
        gradient_round_(schedule, 0) {
    for (const int32_t index : encoders) {
      const ScheduledEncoder& encoder = schedule.encoders[static_cast<size_t>(index)];
      num_encoded_.push_back(0);
      auto& missing = missing_gradients_.emplace_back(static_cast<size_t>(encoder.num_macro_batches), 0);
      for_needed(encoder, [&](size_t macro) { ++missing[macro]; });
    }
  }

  std::vector<std::vector<Action>> run() {
    for (auto ranks = awake_.next_round(); !ranks.empty(); ranks = awake_.next_round()) {
      ++round_;
      // Encoders come between rounds, so that ranks do not wait with what they can do in one.
      const Action* entry = next_entry();
      if (entry != nullptr && entry->kind == ActionKind::kForward) encode_for(entry->microbatch);
      for (const int32_t rank : ranks) advance(static_cast<size_t>(rank));
      if (entry != nullptr && makes_gradient(entry->kind)) take_gradients_of(entry->microbatch);
    }
    for (size_t rank = 0; rank < rows_.size(); ++rank)
      WEFT_CHECK(next_[rank] == schedule_.rows[rank].size(), "rank {} of the pipeline waits for ever", rank);
    return std::move(rows_);
  }

 private:
  template <typename Visit>
  static void for_needed(const ScheduledEncoder& encoder, Visit visit) {
    for (size_t m = 0; m < encoder.first_macro.size(); ++m) {
      for (int32_t k = encoder.first_macro[m]; k < encoder.end_macro[m]; ++k) visit(static_cast<size_t>(k));
    }
  }

  bool is_ready(const Action& action) const {
    const auto was_made = [&](const CellTable<int32_t>& rounds) {
      const int32_t round = rounds.at(action.stage, action.microbatch);
      return round > 0 && round < round_;
    };
    if (action.kind == ActionKind::kForward) return action.stage == 0 || was_made(input_round_);
    if (makes_gradient(action.kind)) return action.stage + 1 == schedule_.num_stages() || was_made(gradient_round_);
    return true;
  }

  /// What the entry stage does in this round.
  const Action* next_entry() const {
    const auto rank = static_cast<size_t>(schedule_.entry_rank());
    const auto& row = schedule_.rows[rank];
    if (next_[rank] == row.size()) return nullptr;
    const Action& action = row[next_[rank]];
    return action.stage == schedule_.entry_stage && is_ready(action) ? &action : nullptr;
  }

  void advance(size_t rank) {
    const auto& row = schedule_.rows[rank];
    if (next_[rank] == row.size() || !is_ready(row[next_[rank]])) return;
    const Action& action = row[next_[rank]++];
    const bool is_forward = action.kind == ActionKind::kForward, is_backward = makes_gradient(action.kind);
    rows_[rank].push_back(action);
    awake_.wake(static_cast<int32_t>(rank));
    if (is_forward && action.stage + 1 < schedule_.num_stages()) {
      input_round_.at(action.stage + 1, action.microbatch) = round_;
      awake_.wake(schedule_.rank_of_stage[static_cast<size_t>(action.stage) + 1]);
    }
    if (is_backward && action.stage > 0) {
      gradient_round_.at(action.stage - 1, action.microbatch) = round_;
      awake_.wake(schedule_.rank_of_stage[static_cast<size_t>(action.stage) - 1]);
    }
  }

  void encode_for(int32_t microbatch) {
    for (size_t e = 0; e < encoders_.size(); ++e) {
      const ScheduledEncoder& encoder = schedule_.encoders[static_cast<size_t>(encoders_[e])];
      const int32_t end = encoder.end_macro[static_cast<size_t>(microbatch)];
      for (int32_t& k = num_encoded_[e]; k < end; ++k) write(ActionKind::kEncodeForward, encoders_[e], k);
    }
  }

  void take_gradients_of(int32_t microbatch) {
    const auto m = static_cast<size_t>(microbatch);
    for (size_t e = 0; e < encoders_.size(); ++e) {
      const ScheduledEncoder& encoder = schedule_.encoders[static_cast<size_t>(encoders_[e])];
      if (!encoder.is_trained) continue;
      for (int32_t k = encoder.first_macro[m]; k < encoder.end_macro[m]; ++k) {
        if (--missing_gradients_[e][static_cast<size_t>(k)] == 0) write(ActionKind::kEncodeBackward, encoders_[e], k);
      }
    }
  }

  void write(ActionKind kind, int32_t index, int32_t macro) {
    for (const auto& group : schedule_.encoders[static_cast<size_t>(index)].groups) {
      for (const int32_t rank : group) rows_[static_cast<size_t>(rank)].push_back({kind, index, macro});
    }
  }

  const Schedule& schedule_;
  std::span<const int32_t> encoders_;
  std::vector<std::vector<Action>> rows_;
  std::vector<size_t> next_;
  AwakeRanks awake_;
  int32_t round_ = 0;
  CellTable<int32_t> input_round_;                       // by cell: the round in which its input was made, 0 before
  CellTable<int32_t> gradient_round_;                    // the same of its output's gradient
  std::vector<int32_t> num_encoded_;                     // by encoder
  std::vector<std::vector<int32_t>> missing_gradients_;  // by encoder and macro batch: microbatches yet to give one
};

}  // namespace

void add_on_demand(Schedule& schedule, std::span<const int32_t> encoders) {
  if (encoders.empty()) return;
  schedule.rows = OnDemand(schedule, encoders).run();
}

}  // namespace weft
