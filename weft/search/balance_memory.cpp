#include "weft/search/balance_memory.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "weft/search/chain_source.h"
#include "weft/search/precision.h"

namespace weft {
namespace {

using Clock = ChainSearch::Clock;

double largest_row(const std::vector<ChainRow>& rows, const StageOptions& options, const Chain& chain) {
  double largest = 0;
  for (const ChainRow& row : rows) {
    double sum = row.constant;
    for (size_t stage = 0; stage < chain.size(); ++stage) sum += row.value(stage, options[chain[stage]]);
    largest = std::max(largest, sum);
  }
  return largest;
}

/// A memory limit that is enough, and whether no smaller one is.
struct LeastBalanceMemory {
  double gib = kInfinity;
  bool is_exact = false;
};

/// The smallest memory limit up to that of `costs` with which there is a placement, all blocks recomputed; not searched
/// below `enough_gib`.
Result<LeastBalanceMemory> least_balance_memory(const BalanceCosts& costs, const Schedule& schedule, double enough_gib,
                                                const Deadline& deadline) {
  const MomentsOfRanks moments = moments_of_ranks(schedule);
  ChainSource source(costs, most_in_flight(schedule, moments), RecomputeOptions::kAll);
  WEFT_TRY(const StageOptions options, StageOptions::make(source, {.deadline = deadline}));
  ChainSearch search(options);
  const std::vector<ChainRow> rows = memory_rows(schedule, moments);
  for (const ChainRow& row : rows) search.add_row(row);
  LeastBalanceMemory least;
  if (!search.has_room()) return least;
  const Chain any = search.least(rows.front());
  if (any.empty()) return LeastBalanceMemory{.is_exact = true};
  least.gib = largest_row(rows, options, any);
  if (least.gib <= enough_gib) return least;
  size_t width = 4;
  while (!deadline.is_over()) {
    const ChainSearch::Outcome outcome = search.find_below(least.gib == kInfinity ? kInfinity : least.gib * (1 - 1e-12),
                                                           {.labels_a_block = width, .deadline = deadline});
    for (const Chain& chain : outcome.found) least.gib = std::min(least.gib, largest_row(rows, options, chain));
    if (least.gib <= enough_gib) return least;
    if (!outcome.found.empty()) continue;
    if (outcome.is_complete) {
      least.is_exact = true;
      return least;
    }
    width *= 4;
  }
  return least;
}

struct LargerPp {
  std::optional<int64_t> pp;
  bool is_certain = true;  ///< otherwise there may be a smaller one, or one at all
};

/// The next larger pp whose placements fit.
LargerPp larger_pp(const BalanceCosts& costs, const Deadline& deadline) {
  BalanceCosts larger = costs;
  const double enough = with_rounding(costs.memory_gib);
  while ((larger.shape.pp + 1) * larger.shape.vpp <= costs.num_blocks()) {
    ++larger.shape.pp;
    const Result<Schedule> schedule = generate_schedule(larger.schedule, larger.shape);
    if (!schedule || deadline.is_over()) return {.is_certain = false};
    const Result<LeastBalanceMemory> least = least_balance_memory(larger, *schedule, enough, deadline);
    if (!least) return {.is_certain = false};
    if (least->gib <= enough) return {.pp = larger.shape.pp};
    if (!least->is_exact) return {.is_certain = false};
  }
  return {};
}

}  // namespace

MomentsOfRanks moments_of_ranks(const Schedule& schedule) {
  MomentsOfRanks moments;
  // Ranks behind the pipeline's belong to encoders.
  const int32_t ranks = *std::max_element(schedule.rank_of_stage.begin(), schedule.rank_of_stage.end()) + 1;
  for (int32_t rank = 0; rank < ranks; ++rank) moments.push_back(memory_moments(schedule, rank));
  return moments;
}

std::vector<int32_t> most_in_flight(const Schedule& schedule, const MomentsOfRanks& moments) {
  std::vector<int32_t> most(static_cast<size_t>(schedule.num_stages()), 0);
  for (size_t rank = 0; rank < moments.size(); ++rank) {
    const std::vector<int32_t> stages = stages_of_rank(schedule, static_cast<int32_t>(rank));
    for (const MemoryMoment& moment : moments[rank]) {
      for (size_t chunk = 0; chunk < stages.size(); ++chunk) {
        int32_t& of_stage = most[static_cast<size_t>(stages[chunk])];
        of_stage = std::max(of_stage, moment.held[chunk]);
      }
    }
  }
  return most;
}

std::vector<ChainRow> memory_rows(const Schedule& schedule, const MomentsOfRanks& moments,
                                  std::span<const double> limits_gib) {
  std::vector<ChainRow> rows;
  for (size_t rank = 0; rank < moments.size(); ++rank) {
    const std::vector<int32_t> stages = stages_of_rank(schedule, static_cast<int32_t>(rank));
    for (const MemoryMoment& moment : moments[rank]) {
      ChainRow& row = rows.emplace_back();
      if (!limits_gib.empty()) row.limit = with_rounding(limits_gib[rank]);
      row.stages.resize(static_cast<size_t>(schedule.num_stages()), StageFigures{});
      for (size_t chunk = 0; chunk < stages.size(); ++chunk) {
        StageFigures& weights = row.stages[static_cast<size_t>(stages[chunk])];
        weights[kActivationGib] = moment.held[chunk];
        weights[kDeferredGib] = moment.deferred[chunk];
        weights[kStaticGib] = 1;
        weights[kWorkspaceGib] = moment.runs == static_cast<int32_t>(chunk) ? 1 : 0;
      }
    }
  }
  return rows;
}

std::vector<double> memory_of_ranks(const Schedule& schedule, const MomentsOfRanks& moments,
                                    const StageOptions& options, const Chain& chain) {
  std::vector<double> memory;
  for (size_t rank = 0; rank < moments.size(); ++rank) {
    const std::vector<int32_t> stages = stages_of_rank(schedule, static_cast<int32_t>(rank));
    double peak_gib = 0;
    for (const MemoryMoment& moment : moments[rank]) {
      double gib = 0;
      for (size_t chunk = 0; chunk < stages.size(); ++chunk) {
        const StageFigures& figures = options[chain[static_cast<size_t>(stages[chunk])]].figures;
        gib += moment.held[chunk] * figures[kActivationGib] + moment.deferred[chunk] * figures[kDeferredGib] +
               figures[kStaticGib] + (moment.runs == static_cast<int32_t>(chunk) ? figures[kWorkspaceGib] : 0);
      }
      peak_gib = std::max(peak_gib, gib);
    }
    memory.push_back(peak_gib);
  }
  return memory;
}

Error explain_no_placement(const BalanceCosts& costs, const Schedule& schedule, const NoPlacement& known) {
  BalanceCosts unlimited = costs;
  unlimited.memory_gib = kInfinity;
  const Result<LeastBalanceMemory> least = least_balance_memory(
      unlimited, schedule, with_rounding(costs.memory_gib) * (known.is_proven ? 0 : 1), known.deadline);
  if (!least) return least.error();
  const bool is_infeasible = known.is_proven || (least->is_exact && least->gib > with_rounding(costs.memory_gib));
  if (!is_infeasible) {
    return {.kind = ErrorKind::kJob,
            .source = "balance",
            .problem = least->gib <= with_rounding(costs.memory_gib)
                           ? "no placement was found in the time given, though there is one"
                           : "no placement was found in the time given, and it is not known whether there is one",
            .advice = "Raise --time-limit or memory_gib."};
  }
  // Rounded up, so that the figure can be given back as the limit.
  const double needed = std::ceil(least->gib * 1e6 - 1e-6) / 1e6;
  std::string advice = least->is_exact
                           ? fmt::format("With pp {} the smallest memory_gib that fits is {}", costs.shape.pp, needed)
                           : fmt::format("With pp {} memory_gib {} is enough", costs.shape.pp, needed);
  const LargerPp larger = larger_pp(costs, known.deadline);
  if (larger.pp) {
    advice += fmt::format("; with memory_gib {} the smallest larger pp that fits is {}.", costs.memory_gib, *larger.pp);
  } else {
    advice += fmt::format("; no larger pp {} into memory_gib {}.", larger.is_certain ? "fits" : "was found to fit",
                          costs.memory_gib);
  }
  return {.kind = ErrorKind::kJob,
          .source = "balance",
          .problem =
              fmt::format("no placement fits into memory_gib {}, even with every block recomputed", costs.memory_gib),
          .advice = advice};
}

}  // namespace weft
