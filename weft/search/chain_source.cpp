#include "weft/search/chain_source.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/search/recompute_choice.h"

namespace weft {
namespace {

/// Of one run of blocks: more means that each of many kinds is recomputed or not.
constexpr size_t kMostChoices = 10'000;

/// A run of blocks on a stage, without recomputation.
class Run {
 public:
  Run(const BalanceCosts& costs, int32_t stage, int32_t num_stages, int32_t first, int32_t count)
      : costs_(costs), first_(first), num_blocks_(count) {
    size_t kind = 0;
    for (; first >= costs.chain[kind].count; ++kind) first -= costs.chain[kind].count;
    for (; count > 0; ++kind, first = 0) {
      const int32_t taken = std::min(count, costs.chain[kind].count - first);
      if (taken == 0) continue;
      kinds_.push_back(kind);
      counts_.push_back(taken);
      count -= taken;
    }
    if (stage == 0) extras_.push_back(&costs.first_stage);
    if (stage + 1 == num_stages) extras_.push_back(&costs.last_stage);
  }

  /// Sums of counts times figures, not running sums: runs of the same blocks then cost exactly the same everywhere.
  StageOption option() const {
    StageOption sum{.first = first_, .count = num_blocks_};
    const auto add = [&](const WorkTimes& of, double n) {
      sum.figures[kForwardWork] += n * of.forward_ms;
      sum.figures[kInputWork] += n * of.backward_input_ms;
      sum.figures[kWeightWork] += n * of.backward_weight_ms;
    };
    for (size_t i = 0; i < kinds_.size(); ++i) {
      const BlockKind& kind = costs_.chain[kinds_[i]];
      add(kind.times, counts_[i]);
      sum.figures[kActivationGib] += counts_[i] * kind.activation_gib;
      sum.figures[kStaticGib] += counts_[i] * kind.static_gib;
    }
    for (const StageExtra* extra : extras_) {
      add(extra->times, 1);
      sum.figures[kStaticGib] += extra->static_gib;
    }
    sum.figures[kTransferWork] = costs_.p2p_ms;
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
  int32_t num_blocks_;
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
  const double excess_gib = held * whole.figures[kActivationGib] + whole.figures[kStaticGib] - limit_gib;
  RecomputeChoice all = choose_all(kinds);
  if (excess_gib > held * all.saves_gib + 1e-12 * limit_gib) return {};
  if (which == RecomputeOptions::kAll) return {std::move(all)};
  if (which == RecomputeOptions::kLeast || !costs.has_memory_limit()) {
    auto choice = choose_least(kinds, excess_gib / held);
    return choice ? std::vector{*std::move(choice)} : std::vector<RecomputeChoice>{};
  }
  std::vector<RecomputeChoice> choices = choose_pareto(kinds, kMostChoices);
  if (choices.size() > kMostChoices) return choices;
  std::erase_if(choices, [&](const RecomputeChoice& choice) { return excess_gib > held * choice.saves_gib; });
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

std::optional<Error> ChainSource::list(int32_t stage, int32_t first, int32_t count, std::vector<StageOption>& options) {
  const Run run(costs_, stage, num_stages(), first, count);
  const StageOption whole = run.option();
  const std::vector<RecomputeChoice> choices = choices_of(run, in_flight_[static_cast<size_t>(stage)], costs_, which_);
  if (choices.size() > kMostChoices) {
    return Error{.source = "balance",
                 .field = "chain",
                 .problem = fmt::format("{} blocks of {} kinds can be recomputed in more than {} ways", count,
                                        costs_.chain.size(), with_commas(kMostChoices)),
                 .advice = "Take several layers as one block, or similar blocks as one kind."};
  }
  StageOption option = whole;
  for (const RecomputeChoice& choice : choices) {
    option.figures[kInputWork] = whole.figures[kInputWork] + choice.adds_ms;
    option.figures[kActivationGib] = whole.figures[kActivationGib] - choice.saves_gib;
    options.push_back(option);
    ++option.choice;
  }
  return std::nullopt;
}

std::vector<int32_t> ChainSource::recomputed_blocks(int32_t stage, const StageOption& option) const {
  const Run run(costs_, stage, num_stages(), option.first, option.count);
  const std::vector<RecomputeChoice> choices = choices_of(run, in_flight_[static_cast<size_t>(stage)], costs_, which_);
  const RecomputeChoice& choice = choices[static_cast<size_t>(option.choice)];
  std::vector<int32_t> blocks(costs_.chain.size(), 0);
  for (size_t i = 0; i < choice.blocks.size(); ++i) blocks[run.kind(i)] = choice.blocks[i];
  return blocks;
}

}  // namespace weft
