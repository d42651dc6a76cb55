#include "weft/schedule/list_player.h"

#include <algorithm>
#include <numeric>

#include "weft/base/check.h"
#include "weft/schedule/cell_table.h"
#include "weft/schedule/encoder_clock.h"

namespace weft {
namespace {

constexpr double kNever = EncoderClock::kNever;

/// Something that could run next: the next action of a fixed row, or a floating one of an encoder's group.
struct Candidate {
  Action action;
  std::span<const int32_t> ranks;
  int32_t group = -1;  ///< of an encoder action
  bool is_fixed = true;
  bool is_ready = true;  ///< otherwise `start_ms` is an estimate, and it only keeps others waiting
  double start_ms = 0;
  double duration_ms = 0;
  double priority = 0;
};

/// What was run, in the order in which it was: a fixed action is known by rank and position.
struct Step {
  size_t rank;
  size_t position;
};

class Player {
 public:
  /// Without times the floating encoders are left out.
  Player(const FillProblem& problem, const FillTimes* times, const FillPolicy& policy, double unit_ms)
      : problem_(problem),
        schedule_(problem.fixed),
        times_(times),
        policy_(policy),
        unit_ms_(unit_ms),
        next_(schedule_.rows.size(), 0),
        free_ms_(schedule_.rows.size(), 0),
        ids_(schedule_.rows.size()),
        at_rank_(schedule_.rows.size()),
        forward_end_(schedule_, kNever),
        gradient_end_(schedule_, kNever) {
    std::iota(ids_.begin(), ids_.end(), 0);
    rows_.resize(schedule_.rows.size());
    starts_.resize(schedule_.rows.size());
    for (int32_t e = 0; e < static_cast<int32_t>(schedule_.encoders.size()); ++e) {
      clocks_.emplace_back(schedule_.encoders[static_cast<size_t>(e)], schedule_.num_ranks());
      if (times != nullptr || !problem.is_floating(e)) consulted_.push_back(e);
      if (times != nullptr && problem.is_floating(e)) add_floating(e);
    }
  }

  void run() {
    while (true) {
      collect();
      const Candidate* chosen = choose();
      if (chosen == nullptr) break;
      commit(*chosen);
    }
    for (size_t rank = 0; rank < next_.size(); ++rank) {
      WEFT_CHECK(next_[rank] == schedule_.rows[rank].size(), "rank {} waits for ever while bubbles are filled", rank);
    }
  }

  std::vector<std::vector<Action>> take_rows() { return std::move(rows_); }
  double makespan_ms() const { return *std::max_element(free_ms_.begin(), free_ms_.end()); }
  const std::vector<Step>& steps() const { return steps_; }
  std::vector<std::vector<double>> take_starts() { return std::move(starts_); }

 private:
  /// Tails of a floating encoder's actions, per group and macro batch.
  struct Floating {
    int32_t encoder;
    std::vector<std::vector<double>> forward_tail_ms, backward_tail_ms;
  };

  void add_floating(int32_t index) {
    const ScheduledEncoder& encoder = schedule_.encoders[static_cast<size_t>(index)];
    Floating floating{.encoder = index, .forward_tail_ms = {}, .backward_tail_ms = {}};
    const auto num_macro = static_cast<size_t>(encoder.num_macro_batches);
    std::vector<double> reader_tail_ms(num_macro, 0);
    for (size_t m = encoder.first_macro.size(); m-- > 0;) {
      for (int32_t k = encoder.first_macro[m]; k < encoder.end_macro[m]; ++k) {
        reader_tail_ms[static_cast<size_t>(k)] = times_->entry_tail_ms[m];
      }
    }
    for (int32_t g = 0; g < encoder.num_groups(); ++g) {
      const double forward_ms = problem_.duration_ms({ActionKind::kEncodeForward, index, 0}, g);
      const double backward_ms =
          encoder.is_trained ? problem_.duration_ms({ActionKind::kEncodeBackward, index, 0}, g) : 0;
      std::vector<double> forward(num_macro, 0), backward(num_macro, 0);
      for (size_t k = num_macro; k-- > 0;) {
        forward[k] = forward_ms + std::max(reader_tail_ms[k], k + 1 < num_macro ? forward[k + 1] : 0);
        backward[k] = backward_ms * static_cast<double>(num_macro - k);
        // Under a bound an EB makes room for a later EF.
        const size_t freed = k + static_cast<size_t>(encoder.live_macro_batches);
        if (encoder.live_macro_batches > 0 && freed < num_macro)
          backward[k] = std::max(backward[k], backward_ms + forward[freed]);
      }
      floating.forward_tail_ms.push_back(std::move(forward));
      floating.backward_tail_ms.push_back(std::move(backward));
    }
    floating_.push_back(std::move(floating));
  }

  void collect() {
    candidates_.clear();
    for (auto& list : at_rank_) list.clear();
    for (int32_t rank = 0; rank < schedule_.num_ranks(); ++rank) collect_fixed(rank);
    for (const Floating& floating : floating_) {
      for (int32_t g = 0; g < schedule_.encoders[static_cast<size_t>(floating.encoder)].num_groups(); ++g)
        collect_floating(floating, g);
    }
  }

  void add(Candidate candidate) {
    for (const int32_t rank : candidate.ranks) {
      candidate.start_ms = std::max(candidate.start_ms, free_ms_[static_cast<size_t>(rank)]);
      at_rank_[static_cast<size_t>(rank)].push_back(candidates_.size());
    }
    candidates_.push_back(candidate);
  }

  void collect_fixed(int32_t rank) {
    const auto r = static_cast<size_t>(rank);
    if (next_[r] == schedule_.rows[r].size()) return;
    const Action& action = schedule_.rows[r][next_[r]];
    Candidate candidate{.action = action, .ranks = {&ids_[r], 1}};
    if (is_encoder(action.kind)) {
      candidate.group = clocks_[static_cast<size_t>(action.stage)].group_of(rank);
      candidate.ranks =
          schedule_.encoders[static_cast<size_t>(action.stage)].groups[static_cast<size_t>(candidate.group)];
      // The group is one candidate, listed by its first rank once all have reached it.
      if (rank != candidate.ranks.front() || !all_reached(candidate.ranks, action)) return;
    }
    candidate.duration_ms = problem_.duration_ms(action, candidate.group);
    candidate.start_ms = input_ms(action, candidate.group);
    if (times_ != nullptr) candidate.priority = times_->tail_ms[r][next_[r]];
    if (candidate.start_ms == kNever) {
      if (times_ == nullptr) return;
      candidate.is_ready = false;
      candidate.start_ms = times_->start_ms[r][next_[r]] + lag_ms_;
    }
    add(candidate);
  }

  bool all_reached(std::span<const int32_t> ranks, const Action& action) const {
    return std::all_of(ranks.begin(), ranks.end(), [&](int32_t rank) {
      const auto r = static_cast<size_t>(rank);
      return next_[r] < schedule_.rows[r].size() && schedule_.rows[r][next_[r]] == action;
    });
  }

  void collect_floating(const Floating& floating, int32_t group) {
    const EncoderClock& clock = clocks_[static_cast<size_t>(floating.encoder)];
    const ScheduledEncoder& encoder = clock.encoder();
    const auto g = static_cast<size_t>(group);
    const auto add_one = [&](ActionKind kind, int32_t macro, double priority) {
      const Action action{kind, floating.encoder, macro};
      const double start_ms = input_ms(action, group);
      if (start_ms == kNever) return;
      add({.action = action,
           .ranks = encoder.groups[g],
           .group = group,
           .is_fixed = false,
           .start_ms = start_ms,
           .duration_ms = problem_.duration_ms(action, group),
           .priority = priority});
    };
    const int32_t forward = clock.num_forwards(group), backward = clock.num_backwards(group);
    if (forward < encoder.num_macro_batches) {
      add_one(ActionKind::kEncodeForward, forward,
              lead_ms(policy_.forward_lead) + floating.forward_tail_ms[g][static_cast<size_t>(forward)]);
    }
    if (encoder.is_trained && backward < forward) {
      add_one(ActionKind::kEncodeBackward, backward,
              lead_ms(policy_.backward_lead) + floating.backward_tail_ms[g][static_cast<size_t>(backward)]);
    }
  }

  /// When what an action reads is there; kNever when that is not known yet.
  double input_ms(const Action& action, int32_t group) const {
    switch (action.kind) {
      case ActionKind::kForward:
        return std::max(action.stage == schedule_.entry_stage ? embeddings_ms(action.microbatch) : 0,
                        action.stage == 0 ? 0 : forward_end_.at(action.stage - 1, action.microbatch));
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        return action.stage + 1 == schedule_.num_stages() ? 0 : gradient_end_.at(action.stage + 1, action.microbatch);
      case ActionKind::kEncodeForward:
        return clocks_[static_cast<size_t>(action.stage)].forward_ready(group, action.microbatch);
      case ActionKind::kEncodeBackward:
        return clocks_[static_cast<size_t>(action.stage)].backward_ready(group, action.microbatch);
      default:
        return 0;
    }
  }

  double embeddings_ms(int32_t microbatch) const {
    double ready = 0;
    for (const int32_t e : consulted_)
      ready = std::max(ready, clocks_[static_cast<size_t>(e)].microbatch_ready(microbatch));
    return ready;
  }

  double lead_ms(double lead) const { return lead * unit_ms_; }

  /// Whether the candidate would keep one of higher priority from a rank.
  bool is_in_the_way(const Candidate& candidate) const {
    const double until_ms = candidate.start_ms + policy_.patience * candidate.duration_ms;
    for (const int32_t rank : candidate.ranks) {
      for (const size_t index : at_rank_[static_cast<size_t>(rank)]) {
        const Candidate& other = candidates_[index];
        if (other.priority > candidate.priority && other.start_ms < until_ms) return true;
      }
    }
    return false;
  }

  /// The candidate that can start first and is in nobody's way; when all are, the one that can start first. None when
  /// nothing is ready.
  const Candidate* choose() const {
    const Candidate* chosen = nullptr;
    bool chosen_is_polite = false;
    for (const Candidate& candidate : candidates_) {
      if (!candidate.is_ready) continue;
      const bool is_polite = !is_in_the_way(candidate);
      const auto is_better = [&] {
        if (chosen == nullptr) return true;
        if (is_polite != chosen_is_polite) return is_polite;
        if (candidate.start_ms != chosen->start_ms) return candidate.start_ms < chosen->start_ms;
        return candidate.priority > chosen->priority;
      };
      if (!is_better()) continue;
      chosen = &candidate;
      chosen_is_polite = is_polite;
    }
    return chosen;
  }

  void commit(const Candidate& candidate) {
    const double end_ms = candidate.start_ms + candidate.duration_ms;
    for (const int32_t rank : candidate.ranks) {
      const auto r = static_cast<size_t>(rank);
      free_ms_[r] = end_ms;
      rows_[r].push_back(candidate.action);
      if (!candidate.is_fixed) continue;
      if (times_ != nullptr) lag_ms_ = std::max(lag_ms_, candidate.start_ms - times_->start_ms[r][next_[r]]);
      starts_[r].push_back(candidate.start_ms);
      steps_.push_back({r, next_[r]++});
    }
    tell(candidate.action, candidate.group, end_ms);
  }

  void tell(const Action& action, int32_t group, double end_ms) {
    if (action.kind == ActionKind::kEncodeForward) {
      clocks_[static_cast<size_t>(action.stage)].forward_ended(group, action.microbatch, end_ms);
    } else if (action.kind == ActionKind::kEncodeBackward) {
      clocks_[static_cast<size_t>(action.stage)].backward_ended(group, action.microbatch, end_ms);
    } else if (action.kind == ActionKind::kForward) {
      forward_end_.at(action.stage, action.microbatch) = end_ms;
      if (action.stage != schedule_.entry_stage) return;
      for (const int32_t e : consulted_) clocks_[static_cast<size_t>(e)].microbatch_read(action.microbatch, end_ms);
    } else if (makes_gradient(action.kind)) {
      gradient_end_.at(action.stage, action.microbatch) = end_ms;
      if (action.stage != schedule_.entry_stage) return;
      for (const int32_t e : consulted_) clocks_[static_cast<size_t>(e)].microbatch_gradient(action.microbatch, end_ms);
    }
  }

  const FillProblem& problem_;
  const Schedule& schedule_;
  const FillTimes* times_;
  FillPolicy policy_;
  double unit_ms_;
  std::vector<std::vector<Action>> rows_;
  std::vector<Step> steps_;
  std::vector<std::vector<double>> starts_;  // of fixed actions
  double lag_ms_ = 0;                        // most by which a fixed action was later than in the rows alone
  std::vector<size_t> next_;
  std::vector<double> free_ms_;
  std::vector<int32_t> ids_;
  std::vector<EncoderClock> clocks_;
  std::vector<int32_t> consulted_;  // encoders whose embeddings F of the entry stage waits for
  std::vector<Floating> floating_;
  std::vector<Candidate> candidates_;
  std::vector<std::vector<size_t>> at_rank_;  // candidates that want a rank
  CellTable<double> forward_end_, gradient_end_;
};

/// Longest chains behind the fixed actions, from the last step to the first.
void find_tails(const FillProblem& problem, const std::vector<Step>& steps, FillTimes& times) {
  const Schedule& schedule = problem.fixed;
  CellTable<double> forward(schedule, 0), gradient = forward;
  for (const auto& row : schedule.rows) times.tail_ms.emplace_back(row.size(), 0);
  for (size_t i = steps.size(); i-- > 0;) {
    const auto [rank, position] = steps[i];
    const Action& a = schedule.rows[rank][position];
    double behind = position + 1 < schedule.rows[rank].size() ? times.tail_ms[rank][position + 1] : 0;
    if (a.kind == ActionKind::kForward && a.stage + 1 < schedule.num_stages())
      behind = std::max(behind, forward.at(a.stage + 1, a.microbatch));
    if (makes_gradient(a.kind) && a.stage > 0) behind = std::max(behind, gradient.at(a.stage - 1, a.microbatch));
    if (is_encoder(a.kind)) {
      // What reads a macro batch is close behind it in its own row's order; the row's tail is enough of a hint.
      times.tail_ms[rank][position] = behind;
      continue;
    }
    const double tail = behind + problem.duration_ms(a, -1);
    times.tail_ms[rank][position] = tail;
    if (a.kind == ActionKind::kForward) forward.at(a.stage, a.microbatch) = tail;
    if (makes_gradient(a.kind)) gradient.at(a.stage, a.microbatch) = tail;
  }
  const auto entry = forward.of_stage(schedule.entry_stage);
  times.entry_tail_ms.assign(entry.begin(), entry.end());
}

}  // namespace

double FillProblem::duration_ms(const Action& action, int32_t group) const {
  const auto stage = static_cast<size_t>(action.stage);
  const auto g = static_cast<size_t>(group);
  switch (action.kind) {
    case ActionKind::kForward:
      return durations.forward_ms[stage];
    case ActionKind::kBackward:
      return durations.backward_input_ms[stage] + durations.backward_weight_ms[stage];
    case ActionKind::kBackwardInput:
      return durations.backward_input_ms[stage];
    case ActionKind::kBackwardWeight:
      return durations.backward_weight_ms[stage];
    case ActionKind::kEncodeForward:
      return placements[stage].forward_ms[g];
    case ActionKind::kEncodeBackward:
      return placements[stage].backward_ms[g] +
             (placements[stage].rows.recompute_from_inputs ? placements[stage].forward_ms[g] : 0);
    default:
      return 0;
  }
}

bool FillProblem::is_floating(int32_t encoder) const {
  return std::find(floating.begin(), floating.end(), encoder) != floating.end();
}

FillTimes play_fixed(const FillProblem& problem) {
  Player player(problem, nullptr, {}, 0);
  player.run();
  FillTimes times{.start_ms = player.take_starts(), .tail_ms = {}, .entry_tail_ms = {}};
  find_tails(problem, player.steps(), times);
  return times;
}

std::vector<std::vector<Action>> play_filling(const FillProblem& problem, const FillTimes& times,
                                              const FillPolicy& policy, double unit_ms) {
  Player player(problem, &times, policy, unit_ms);
  player.run();
  return player.take_rows();
}

double makespan_ms(const Schedule& complete, std::span<const EncoderPlacement> placements,
                   const StageDurations& durations) {
  const FillProblem problem{complete, {}, placements, durations};
  Player player(problem, nullptr, {}, 0);
  player.run();
  return player.makespan_ms();
}

}  // namespace weft
