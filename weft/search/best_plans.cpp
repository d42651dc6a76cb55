#include "weft/search/best_plans.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

bool are_ties(double a_ms, double b_ms) {
  return std::abs(a_ms - b_ms) <= kTie * std::min(a_ms, b_ms);
}

void insert_by_time(FoundPlan found, std::vector<FoundPlan>& plans) {
  const auto place = std::upper_bound(plans.begin(), plans.end(), found.step_time_ms,
                                      [](double ms, const FoundPlan& other) { return ms < other.step_time_ms; });
  plans.insert(place, std::move(found));
}

bool is_same(const Candidate& a, const Candidate& b) {
  return a == b;
}

bool is_same_but_balance(Candidate a, const Candidate& b) {
  a.balance = b.balance;
  return a == b;
}

/// Removes a slower plan of the same candidate. Whether there is a faster one.
template <typename Same>
bool drop_same(const FoundPlan& found, Same is_same, std::vector<FoundPlan>& plans) {
  const auto same = std::find_if(plans.begin(), plans.end(),
                                 [&](const FoundPlan& other) { return is_same(other.candidate, found.candidate); });
  if (same == plans.end()) return false;
  if (same->step_time_ms <= found.step_time_ms) return true;
  plans.erase(same);
  return false;
}

}  // namespace

double BestPlans::Known::margin_ms() const {
  if (fastest.empty()) return kInfinity;
  return fastest.front().step_time_ms * (1 + within) * (1 + kTie);
}

double BestPlans::Known::limit_ms(const Simplicity& least, double hair) const {
  if (fastest.size() < most) return kInfinity;
  double simple_ms = margin_ms();
  for (const FoundPlan& plan : simplest) {
    if (plan.simplicity <= least) simple_ms = std::min(simple_ms, plan.step_time_ms);
  }
  return std::max(simple_ms, fastest.back().step_time_ms) * (1 + hair);
}

bool BestPlans::Known::has(const FoundPlan& found) const {
  const auto is_same = [&](const FoundPlan& other) {
    const bool is_tie = std::find(other.ties.begin(), other.ties.end(), found.candidate) != other.ties.end();
    return (is_tie || other.candidate == found.candidate) &&
           other.step_time_ms <= found.step_time_ms * (1 + kPrecision);
  };
  return std::any_of(fastest.begin(), fastest.end(), is_same) || std::any_of(simplest.begin(), simplest.end(), is_same);
}

bool BestPlans::Known::wants(const FoundPlan& found) const {
  const double time_ms = found.step_time_ms * (1 + 2 * kTie);
  if (fastest.size() < most || time_ms < fastest.back().step_time_ms) return true;
  return time_ms < margin_ms() && std::none_of(simplest.begin(), simplest.end(), [&](const FoundPlan& other) {
           return other.simplicity <= found.simplicity && other.step_time_ms <= time_ms;
         });
}

void BestPlans::Known::insert(FoundPlan found) {
  insert_fast(found);
  insert_simple(std::move(found));
}

void BestPlans::Known::insert_fast(const FoundPlan& found) {
  if (drop_same(found, is_same_but_balance, fastest)) return;
  const auto tie = std::find_if(fastest.begin(), fastest.end(), [&](const FoundPlan& other) {
    return are_ties(other.step_time_ms, found.step_time_ms);
  });
  if (tie != fastest.end()) {
    std::vector<Candidate> ties = std::move(tie->ties);
    if (std::find(ties.begin(), ties.end(), found.candidate) != ties.end()) {
      tie->ties = std::move(ties);
      return;
    }
    const bool is_simpler = found.simplicity < tie->simplicity;
    ties.push_back(is_simpler ? tie->candidate : found.candidate);
    if (is_simpler) *tie = found;
    tie->ties = std::move(ties);
    return;
  }
  insert_by_time(found, fastest);
  if (fastest.size() > most) fastest.pop_back();
}

void BestPlans::Known::insert_simple(FoundPlan found) {
  if (drop_same(found, is_same, simplest)) return;
  const auto beats = [](const FoundPlan& a, const FoundPlan& b) {
    return a.simplicity <= b.simplicity && a.step_time_ms <= b.step_time_ms * (1 + kTie);
  };
  if (std::any_of(simplest.begin(), simplest.end(), [&](const FoundPlan& other) { return beats(other, found); }))
    return;
  std::erase_if(simplest, [&](const FoundPlan& other) { return beats(found, other); });
  insert_by_time(std::move(found), simplest);
  std::erase_if(simplest, [&](const FoundPlan& other) { return other.step_time_ms > margin_ms(); });
}

double BestPlans::limit_ms(const Simplicity& least) const {
  // A little more than probes take, because solvers look for what is better than a limit by more than rounding.
  return std::min({limit_ms_, probed_.limit_ms(least, 4 * kPrecision), known_.limit_ms(least, -kPrecision)});
}

const FoundPlan* BestPlans::fastest() const {
  if (!known_.fastest.empty()) return &known_.fastest.front();
  return probed_.fastest.empty() ? nullptr : &probed_.fastest.front();
}

void BestPlans::offer(FoundPlan found) {
  if (found.step_time_ms < limit_ms(found.simplicity)) known_.insert(std::move(found));
}

void BestPlans::end_probing() {
  Known empty{.most = known_.most, .within = known_.within};
  probed_ = std::exchange(known_, std::move(empty));
}

bool BestPlans::restore_missing() {
  bool is_any_missing = false;
  const Known probed = std::exchange(probed_, {});
  for (const auto* plans : {&probed.fastest, &probed.simplest}) {
    for (const FoundPlan& found : *plans) {
      if (known_.has(found) || !known_.wants(found)) continue;
      is_any_missing = true;
      known_.insert(found);
    }
  }
  return is_any_missing;
}

std::vector<FoundPlan> BestPlans::take() {
  std::vector<FoundPlan> plans = std::move(known_.fastest);
  for (FoundPlan& found : known_.simplest) {
    const bool is_there = std::any_of(plans.begin(), plans.end(),
                                      [&](const FoundPlan& other) { return other.candidate == found.candidate; });
    if (!is_there) insert_by_time(std::move(found), plans);
  }
  return plans;
}

}  // namespace weft
