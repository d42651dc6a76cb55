#include "weft/search/stage_options.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/search/recompute_choice.h"

namespace weft {
namespace {

constexpr size_t kMostOptions = 20'000'000;

/// What a run of blocks comes to without recomputation.
struct Run {
  std::vector<int32_t> blocks;  ///< of each kind
  StageOption option;
  double least_activation_gib = 0;  ///< with every block recomputed
};

Run sum_up(const BalanceCosts& costs, std::vector<int32_t> blocks, int32_t stage, int32_t num_stages) {
  Run run{.blocks = std::move(blocks)};
  WorkTimes times;
  const auto add = [&](const WorkTimes& of, double n) {
    times.forward_ms += n * of.forward_ms;
    times.backward_input_ms += n * of.backward_input_ms;
    times.backward_weight_ms += n * of.backward_weight_ms;
  };
  for (size_t k = 0; k < costs.chain.size(); ++k) {
    const BlockKind& kind = costs.chain[k];
    const double n = run.blocks[k];
    if (n == 0) continue;
    add(kind.times, n);
    run.option.activation_gib += n * kind.activation_gib;
    run.least_activation_gib += n * (kind.activation_gib - kind.recompute_saves_gib);
    run.option.static_gib += n * kind.static_gib;
  }
  if (stage == 0) {
    add(costs.first_stage.times, 1);
    run.option.static_gib += costs.first_stage.static_gib;
  }
  if (stage + 1 == num_stages) {
    add(costs.last_stage.times, 1);
    run.option.static_gib += costs.last_stage.static_gib;
  }
  run.option.times = {times.forward_ms, times.backward_input_ms, times.backward_weight_ms};
  return run;
}

std::vector<RecomputeKind> recompute_kinds(const BalanceCosts& costs, const std::vector<int32_t>& blocks) {
  std::vector<RecomputeKind> kinds;
  for (size_t k = 0; k < costs.chain.size(); ++k) {
    kinds.push_back({.num_blocks = blocks[k],
                     .adds_ms = costs.chain[k].times.forward_ms,
                     .saves_gib = costs.chain[k].recompute_saves_gib});
  }
  return kinds;
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
                                        Recomputation which) {
  StageOptions made;
  made.num_stages_ = static_cast<int32_t>(in_flight.size());
  made.num_blocks_ = costs.num_blocks();
  made.num_kinds_ = costs.chain.size();
  const double limit = with_rounding(costs.memory_gib);

  const auto add = [&](const Run& run, const RecomputeChoice& choice) {
    StageOption option = run.option;
    option.times[1] += choice.adds_ms;
    option.activation_gib -= choice.saves_gib;
    option.recompute = static_cast<int32_t>(made.recomputed_.size());
    made.recomputed_.insert(made.recomputed_.end(), choice.blocks.begin(), choice.blocks.end());
    made.options_.push_back(option);
  };

  for (int32_t stage = 0; stage < made.num_stages_; ++stage) {
    const int32_t behind = made.num_stages_ - stage - 1;
    const double held = in_flight[static_cast<size_t>(stage)];
    for (int32_t first = 0; first <= made.num_blocks_; ++first) {
      made.begins_.push_back(made.options_.size());
      const int32_t longest = made.num_blocks_ - behind - first;
      if (first < stage || (stage == 0 && first > 0)) continue;
      for (int32_t count = behind == 0 ? std::max(1, longest) : 1; count <= longest; ++count) {
        Run run = sum_up(costs, blocks_of_kinds(costs, first, count), stage, made.num_stages_);
        run.option.first = first;
        run.option.count = count;
        if (held * run.least_activation_gib + run.option.static_gib > limit) break;  // a longer run needs more still
        const std::vector<RecomputeKind> kinds = recompute_kinds(costs, run.blocks);
        if (which == Recomputation::kAll) {
          add(run, choose_all(kinds));
        } else if (which == Recomputation::kLeast || !costs.has_memory_limit()) {
          const double excess = held * run.option.activation_gib + run.option.static_gib - limit;
          const auto choice = choose_least(kinds, excess <= 0 ? 0 : excess / held);
          if (choice) add(run, *choice);
        } else {
          for (const RecomputeChoice& choice : choose_pareto(kinds)) {
            const double activation = run.option.activation_gib - choice.saves_gib;
            if (held * activation + run.option.static_gib <= limit) add(run, choice);
          }
        }
        if (made.options_.size() > kMostOptions) {
          return Error{
              .source = "balance",
              .problem = fmt::format("{} blocks on {} stages can be placed and recomputed in more than {} ways "
                                     "a stage",
                                     made.num_blocks_, made.num_stages_, with_commas(kMostOptions)),
              .advice = "Take several layers as one block."};
        }
      }
    }
  }
  made.begins_.push_back(made.options_.size());
  return made;
}

}  // namespace weft
