#include "weft/search/stage_options.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/search/recompute_choice.h"

namespace weft {
namespace {

constexpr size_t kMostOptions = 20'000'000;
/// Of one run of blocks: more means that each of many kinds is recomputed or not.
constexpr size_t kMostChoices = 10'000;

/// A run of blocks on a stage, which grows by a block at a time; without recomputation.
class Run {
 public:
  Run(const BalanceCosts& costs, int32_t stage, int32_t num_stages, int32_t first) : costs_(costs), first_(first) {
    while (first >= costs.chain[kind_].count) first -= costs.chain[kind_++].count;
    left_ = costs.chain[kind_].count - first;
    extras_.push_back(&costs.every_stage);
    if (stage == 0) extras_.push_back(&costs.first_stage);
    if (stage + 1 == num_stages) extras_.push_back(&costs.last_stage);
  }

  void grow() {
    if (left_ == 0) left_ = costs_.chain[++kind_].count;
    --left_;
    if (kinds_.empty() || kinds_.back() != kind_) {
      kinds_.push_back(kind_);
      counts_.push_back(0);
    }
    ++counts_.back();
    ++num_blocks_;
  }

  /// Sums of counts times figures, not running sums: runs of the same blocks then cost exactly the same everywhere.
  StageOption option() const {
    StageOption sum{.first = first_, .count = num_blocks_};
    const auto add = [&](const WorkTimes& of, double n) {
      sum.times[0] += n * of.forward_ms;
      sum.times[1] += n * of.backward_input_ms;
      sum.times[2] += n * of.backward_weight_ms;
    };
    for (size_t i = 0; i < kinds_.size(); ++i) {
      const BlockKind& kind = costs_.chain[kinds_[i]];
      add(kind.times, counts_[i]);
      sum.activation_gib += counts_[i] * kind.activation_gib;
      sum.static_gib += counts_[i] * kind.static_gib;
    }
    for (const StageExtra* extra : extras_) {
      add(extra->times, 1);
      sum.static_gib += extra->static_gib;
    }
    return sum;
  }

  std::vector<RecomputeKind> recompute_kinds() const {
    std::vector<RecomputeKind> kinds;
    for (size_t i = 0; i < kinds_.size(); ++i) {
      const BlockKind& kind = costs_.chain[kinds_[i]];
      kinds.push_back(
          {.num_blocks = counts_[i], .adds_ms = kind.times.forward_ms, .saves_gib = kind.recompute_saves_gib});
    }
    return kinds;
  }

  /// The place in the chain of the i-th of recompute_kinds().
  size_t kind(size_t i) const { return kinds_[i]; }

 private:
  const BalanceCosts& costs_;
  int32_t first_;
  int32_t num_blocks_ = 0;
  size_t kind_ = 0;   // of the block to come
  int32_t left_ = 0;  // of that kind
  std::vector<size_t> kinds_;
  std::vector<int32_t> counts_;
  std::vector<const StageExtra*> extras_;
};

/// The recomputations of a run that are worth an option each; none when it cannot fit.
std::vector<RecomputeChoice> choices_of(const Run& run, double held, const BalanceCosts& costs,
                                        RecomputeOptions which) {
  const double limit_gib = with_rounding(costs.memory_gib);
  const StageOption whole = run.option();
  const std::vector<RecomputeKind> kinds = run.recompute_kinds();
  const double plain_excess_gib = held * whole.activation_gib + whole.static_gib - limit_gib;
  const double excess_gib = plain_excess_gib + costs.recompute_workspace_gib;  // once something is recomputed
  RecomputeChoice all = choose_all(kinds);
  if (plain_excess_gib > 0 && excess_gib > held * all.saves_gib + 1e-12 * limit_gib) return {};
  if (which == RecomputeOptions::kAll) {
    return excess_gib > held * all.saves_gib + 1e-12 * limit_gib ? std::vector<RecomputeChoice>{}
                                                                 : std::vector{std::move(all)};
  }
  if (which == RecomputeOptions::kLeast || limit_gib == std::numeric_limits<double>::infinity()) {
    auto choice = choose_least(kinds, plain_excess_gib <= 0 ? 0 : excess_gib / held);
    return choice ? std::vector{*std::move(choice)} : std::vector<RecomputeChoice>{};
  }
  std::vector<RecomputeChoice> choices = choose_pareto(kinds, kMostChoices);
  if (choices.size() > kMostChoices) return choices;
  std::erase_if(choices, [&](const RecomputeChoice& choice) {
    return (choice.saves_gib > 0 ? excess_gib : plain_excess_gib) > held * choice.saves_gib;
  });
  return choices;
}

}  // namespace

std::vector<int32_t> blocks_of_kinds(const BalanceCosts& costs, int32_t first, int32_t count) {
  std::vector<int32_t> blocks;
  int32_t begin = 0;
  for (const BlockKind& kind : costs.chain) {
    const int32_t end = begin + kind.count;
    blocks.push_back(std::max(0, std::min(end, first + count) - std::max(begin, first)));
    begin = end;
  }
  return blocks;
}

Result<StageOptions> StageOptions::make(const BalanceCosts& costs, std::span<const int32_t> in_flight,
                                        RecomputeOptions which, double most_ms) {
  StageOptions made;
  made.num_stages_ = static_cast<int32_t>(in_flight.size());
  made.num_blocks_ = costs.num_blocks();
  made.which_ = which;
  made.in_flight_.assign(in_flight.begin(), in_flight.end());
  const Error too_many{
      .source = "balance",
      .field = "chain",
      .problem = fmt::format("{} blocks of {} kinds on {} stages can be placed and recomputed in more "
                             "than {} ways a stage",
                             made.num_blocks_, costs.chain.size(), made.num_stages_, with_commas(kMostOptions)),
      .advice = "Take several layers as one block, or similar blocks as one kind."};

  for (int32_t stage = 0; stage < made.num_stages_; ++stage) {
    const int32_t behind = made.num_stages_ - stage - 1;
    const double held = in_flight[static_cast<size_t>(stage)];
    for (int32_t first = 0; first <= made.num_blocks_; ++first) {
      made.begins_.push_back(made.options_.size());
      const int32_t longest = made.num_blocks_ - behind - first;
      if (first < stage || (stage == 0 && first > 0) || longest < 1) continue;
      Run run(costs, stage, made.num_stages_, first);
      for (int32_t count = 1; count <= longest; ++count) {
        run.grow();
        if (behind == 0 && count < longest) continue;  // the last stage takes all that is left
        const StageOption whole = run.option();
        if (whole.total_ms() > most_ms) break;
        const std::vector<RecomputeChoice> choices = choices_of(run, held, costs, which);
        if (choices.empty()) break;  // a longer run needs more still
        if (choices.size() + made.options_.size() > kMostOptions || choices.size() > kMostChoices) return too_many;
        StageOption option = whole;
        for (const RecomputeChoice& choice : choices) {
          option.times[1] = whole.times[1] + choice.adds_ms;
          option.activation_gib = whole.activation_gib - choice.saves_gib;
          option.static_gib = whole.static_gib + (choice.saves_gib > 0 ? costs.recompute_workspace_gib : 0);
          made.options_.push_back(option);
          ++option.choice;
        }
      }
    }
  }
  made.begins_.push_back(made.options_.size());
  return made;
}

std::vector<int32_t> StageOptions::recomputed_blocks(const BalanceCosts& costs, int32_t stage,
                                                     const StageOption& option) const {
  Run run(costs, stage, num_stages_, option.first);
  for (int32_t i = 0; i < option.count; ++i) run.grow();
  const std::vector<RecomputeChoice> choices = choices_of(run, in_flight_[static_cast<size_t>(stage)], costs, which_);
  const RecomputeChoice& choice = choices[static_cast<size_t>(option.choice)];
  std::vector<int32_t> blocks(costs.chain.size(), 0);
  for (size_t i = 0; i < choice.blocks.size(); ++i) blocks[run.kind(i)] = choice.blocks[i];
  return blocks;
}

}  // namespace weft
