#include "weft/meaning/bridge_routes.h"

#include <algorithm>
#include <utility>

#include "weft/base/check.h"
#include "weft/meaning/divided_rows.h"
#include "weft/meaning/rank_groups.h"

namespace weft {
namespace {

std::vector<std::vector<int64_t>> ranks_by_number(const std::vector<int64_t>& numbers) {
  std::vector<std::vector<int64_t>> ranks;
  for (size_t rank = 0; rank < numbers.size(); ++rank) {
    if (numbers[rank] < 0) continue;
    const auto number = static_cast<size_t>(numbers[rank]);
    if (number >= ranks.size()) ranks.resize(number + 1);
    ranks[number].push_back(static_cast<int64_t>(rank));
  }
  return ranks;
}

/// Some numbers below a bound, each once.
class NumberSet {
 public:
  explicit NumberSet(size_t bound) : is_in_(bound, 0) {}

  void insert(int64_t number) {
    if (std::exchange(is_in_[static_cast<size_t>(number)], 1) == 0) numbers_.push_back(number);
  }
  bool contains(int64_t number) const { return is_in_[static_cast<size_t>(number)] != 0; }
  const std::vector<int64_t>& numbers() const { return numbers_; }

 private:
  std::vector<uint8_t> is_in_;
  std::vector<int64_t> numbers_;
};

}  // namespace

PlannedBridge planned_bridge(const Plan& plan, size_t module) {
  const ModulePlan &encoder = plan.modules[module], &llm = plan.llm();
  PlannedBridge bridge{
      .ranks = {},
      .ends = {.makers = {}, .takers = {}, .makers_are_copies = encoder.tp > 1, .takers_are_copies = repeats_rows(llm)},
      .shares_made = encoder.cp > 1,
      .shares_taken = divides_rows(llm) || llm.cp > 1};
  for (const BridgeRank& end : bridge_ranks(plan, module)) {
    bridge.ranks.push_back(end.rank);
    bridge.ends.makers.push_back(end.makes.value_or(-1));
    bridge.ends.takers.push_back(end.takes.value_or(-1));
  }
  return bridge;
}

BridgeRoutes::BridgeRoutes(BridgeEnds ends, int64_t rank)
    : ends_(std::move(ends)),
      rank_(rank),
      own_maker_(ends_.makers.at(static_cast<size_t>(rank))),
      own_taker_(ends_.takers.at(static_cast<size_t>(rank))),
      ranks_of_maker_(ranks_by_number(ends_.makers)),
      ranks_of_taker_(ranks_by_number(ends_.takers)) {
  WEFT_CHECK(ends_.makers.size() == ends_.takers.size(), "{} ranks make rows or not, {} take them or not",
             ends_.makers.size(), ends_.takers.size());
}

template <typename Visit>
void BridgeRoutes::each_of_unit(const Macro& macro, int64_t unit, Visit visit) const {
  const auto begins = macro.unit_begins.begin() + unit;
  for (size_t i = begins[0]; i < begins[1]; ++i) visit(macro.needs[i]);
}

template <typename Visit>
void BridgeRoutes::each_of_maker(const Macro& macro, int64_t maker, Visit visit) const {
  const auto begins = macro.maker_begins.begin() + maker;
  for (size_t i = begins[0]; i < begins[1]; ++i) visit(macro.needs[macro.by_maker[i]]);
}

/// With the ranks that have the need.
template <typename Visit>
void BridgeRoutes::each_of_taker(const Macro& macro, int64_t taker, Visit visit) const {
  const std::vector<int64_t>& ranks = ranks_of_taker_[static_cast<size_t>(taker)];
  if (!units_are_ranks_) {
    each_of_unit(macro, taker, [&](const Need& need) { visit(need, std::span(ranks)); });
    return;
  }
  for (const int64_t& rank : ranks)
    each_of_unit(macro, rank, [&](const Need& need) { visit(need, std::span(&rank, 1)); });
}

void BridgeRoutes::begin(const RowNumbers& numbers, const BatchAssignment::Shares& llm) {
  numbers_ = &numbers;
  units_are_ranks_ = is_made_told_ = false;
  macros_.clear();
  macros_.resize(static_cast<size_t>(numbers.num_macro_batches()));
  WEFT_CHECK(ranks_of_taker_.size() <= llm.size(), "samples of {} data-parallel ranks for {}", llm.size(),
             ranks_of_taker_.size());
  std::vector<RowNumbers::Run> runs;
  std::vector<int64_t> places(macros_.size());
  for (size_t taker = 0; taker < ranks_of_taker_.size(); ++taker) {
    runs.clear();
    for (const std::vector<int64_t>& samples : llm[taker]) numbers.add_runs_of(samples, runs);
    std::fill(places.begin(), places.end(), 0);
    for (const RowNumbers::Run& run : runs) {
      int64_t& place = places[static_cast<size_t>(run.macro)];
      macros_[static_cast<size_t>(run.macro)].needs.push_back(
          {.unit = static_cast<int64_t>(taker), .maker = run.maker, .rows = run.rows, .place = place});
      place += run.rows.size();
    }
  }
  sort_needs();
}

void BridgeRoutes::sort_needs() {
  const size_t num_units = units_are_ranks_ ? ends_.takers.size() : ranks_of_taker_.size();
  const auto add_up = [](std::vector<size_t>& begins) {
    for (size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
  };
  std::vector<size_t> next;
  for (Macro& macro : macros_) {
    macro.unit_begins.assign(num_units + 1, 0);
    macro.maker_begins.assign(ranks_of_maker_.size() + 1, 0);
    for (const Need& need : macro.needs) {
      ++macro.unit_begins[static_cast<size_t>(need.unit) + 1];
      ++macro.maker_begins[static_cast<size_t>(need.maker) + 1];
    }
    add_up(macro.unit_begins);
    add_up(macro.maker_begins);
    next = macro.maker_begins;
    macro.by_maker.resize(macro.needs.size());
    for (size_t i = 0; i < macro.needs.size(); ++i)
      macro.by_maker[next[static_cast<size_t>(macro.needs[i].maker)]++] = i;
  }
}

std::vector<int64_t> BridgeRoutes::neighbours() const {
  NumberSet makers(ranks_of_maker_.size()), takers(ranks_of_taker_.size());
  const bool makes = own_maker_ >= 0, takes = own_taker_ >= 0;
  if (makes && ends_.makers_are_copies) makers.insert(own_maker_);
  if (takes && ends_.takers_are_copies) takers.insert(own_taker_);
  for (const Macro& macro : macros_) {
    NumberSet of_own_taker(ranks_of_maker_.size()), of_own_maker(ranks_of_taker_.size());
    if (takes) each_of_unit(macro, own_taker_, [&](const Need& need) { of_own_taker.insert(need.maker); });
    if (makes) each_of_maker(macro, own_maker_, [&](const Need& need) { of_own_maker.insert(need.unit); });
    for (const int64_t maker : of_own_taker.numbers()) {
      makers.insert(maker);
      if (ends_.makers_are_copies) each_of_maker(macro, maker, [&](const Need& need) { takers.insert(need.unit); });
    }
    for (const int64_t taker : of_own_maker.numbers()) {
      takers.insert(taker);
      if (ends_.takers_are_copies) each_of_unit(macro, taker, [&](const Need& need) { makers.insert(need.maker); });
    }
  }
  std::vector<int64_t> ranks;
  for (int64_t rank = 0; rank < std::ssize(ends_.makers); ++rank) {
    const int64_t maker = ends_.makers[static_cast<size_t>(rank)], taker = ends_.takers[static_cast<size_t>(rank)];
    if (rank == rank_) continue;
    if ((maker >= 0 && makers.contains(maker)) || (taker >= 0 && takers.contains(taker))) ranks.push_back(rank);
  }
  return ranks;
}

template <typename Visit>
void BridgeRoutes::each_piece(std::span<const RowRun> runs, bool by_maker, Visit visit) const {
  std::vector<RowRun> sorted(runs.begin(), runs.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const RowRun& a, const RowRun& b) { return a.rank < b.rank; });
  std::vector<int64_t> places(macros_.size(), 0);
  int64_t rank = -1;
  for (const RowRun& run : sorted) {
    if (std::exchange(rank, run.rank) != run.rank) std::fill(places.begin(), places.end(), 0);
    for (int64_t row = run.first_row; row < run.end_row();) {
      const int64_t k = numbers_->macro_of(row);
      const Range whole = by_maker ? numbers_->rows(k, numbers_->maker_of(k, row)) : numbers_->rows(k);
      const Range rows{row, std::min(run.end_row(), whole.end)};
      int64_t& place = places[static_cast<size_t>(k)];
      visit(static_cast<size_t>(k), rank, rows, place);
      place += rows.size();
      row = rows.end;
    }
  }
}

void BridgeRoutes::take_only(std::span<const RowRun> taken) {
  units_are_ranks_ = true;
  for (Macro& macro : macros_) macro.needs.clear();
  each_piece(taken, /*by_maker=*/true, [&](size_t macro, int64_t rank, Range rows, int64_t place) {
    const int64_t maker = numbers_->maker_of(static_cast<int64_t>(macro), rows.begin);
    macros_[macro].needs.push_back({.unit = rank, .maker = maker, .rows = rows, .place = place});
  });
  sort_needs();
}

void BridgeRoutes::make_only(std::span<const RowRun> made) {
  is_made_told_ = true;
  for (Macro& macro : macros_) macro.made.clear();
  each_piece(made, /*by_maker=*/false, [&](size_t macro, int64_t rank, Range rows, int64_t place) {
    macros_[macro].made.push_back(
        {.rank = rank, .first_row = rows.begin, .first_place = place, .num_rows = rows.size()});
  });
}

void BridgeRoutes::add_made(int64_t macro, int64_t rank, std::vector<RowRun>& runs) const {
  if (!is_made_told_) {
    const Range rows = numbers_->rows(macro, ends_.makers[static_cast<size_t>(rank)]);
    runs.push_back({.rank = rank, .first_row = rows.begin, .first_place = 0, .num_rows = rows.size()});
    return;
  }
  const std::vector<RowRun>& made = macros_[static_cast<size_t>(macro)].made;
  const auto by_rank = [](const RowRun& run, int64_t number) { return run.rank < number; };
  for (auto run = std::lower_bound(made.begin(), made.end(), rank, by_rank); run != made.end() && run->rank == rank;
       ++run)
    runs.push_back(*run);
}

OwnRoute BridgeRoutes::plan(int64_t index, bool is_forward) const {
  const Macro& macro = macros_[static_cast<size_t>(index)];
  std::vector<RowRun> made, taken;
  const auto take = [&](const Need& need, int64_t rank) {
    taken.push_back(
        {.rank = rank, .first_row = need.rows.begin, .first_place = need.place, .num_rows = need.rows.size()});
  };
  const auto take_all = [&](const Need& need) {
    if (units_are_ranks_) return take(need, need.unit);
    for (const int64_t rank : ranks_of_taker_[static_cast<size_t>(need.unit)]) take(need, rank);
  };
  const auto make_all = [&](int64_t maker) {
    for (const int64_t rank : ranks_of_maker_[static_cast<size_t>(maker)]) add_made(index, rank, made);
  };
  const int64_t own_unit = units_are_ranks_ ? rank_ : own_taker_;
  NumberSet makers(ranks_of_maker_.size());
  if (is_forward) {
    // What is needed of this rank's rows, and of those that it needs where there is a choice of who sends them.
    if (own_maker_ >= 0) makers.insert(own_maker_);
    if (own_taker_ >= 0) {
      each_of_unit(macro, own_unit, [&](const Need& need) {
        makers.insert(need.maker);
        if (need.maker != own_maker_ && !ends_.makers_are_copies) take(need, rank_);
      });
    }
    for (const int64_t maker : makers.numbers()) {
      make_all(maker);
      if (maker == own_maker_ || ends_.makers_are_copies) each_of_maker(macro, maker, take_all);
    }
    return plan_own_runs(std::move(made), std::move(taken), rank_);
  }
  NumberSet takers(ranks_of_taker_.size());
  if (own_taker_ >= 0) takers.insert(own_taker_);
  if (own_maker_ >= 0) {
    each_of_maker(macro, own_maker_, [&](const Need& need) {
      takers.insert(units_are_ranks_ ? ends_.takers[static_cast<size_t>(need.unit)] : need.unit);
    });
  }
  for (const int64_t taker : takers.numbers()) {
    const bool is_whole = taker == own_taker_ || ends_.takers_are_copies;
    each_of_taker(macro, taker, [&](const Need& need, std::span<const int64_t> ranks) {
      if (is_whole) makers.insert(need.maker);
      if (!is_whole && need.maker != own_maker_) return;
      for (const int64_t rank : ranks) take(need, rank);
    });
  }
  for (const int64_t maker : makers.numbers()) make_all(maker);
  if (own_maker_ >= 0 && !makers.contains(own_maker_)) add_made(index, rank_, made);
  return plan_own_runs(std::move(taken), std::move(made), rank_);
}

}  // namespace weft
