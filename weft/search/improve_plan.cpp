#include "weft/search/improve_plan.h"

#include <algorithm>
#include <set>

#include "weft/exchange/target_limits.h"
#include "weft/meaning/check.h"
#include "weft/search/evaluate_candidate.h"
#include "weft/search/frame_bounds.h"
#include "weft/search/neighbours.h"

namespace weft {
namespace {

/// What is faster by less is not worth another plan.
constexpr double kLeastGain = 1e-5;

class Improver {
 public:
  Improver(Workbench& bench, const FoundPlan& found, const ImproveOptions& options)
      : bench_(bench), best_(found), options_(options), space_(widened(bench.space())) {}

  FoundPlan climb() {
    place_again();
    std::vector<Candidate> around = neighbours();
    size_t next = 0;
    for (size_t in_vain = 0; in_vain < around.size() && !is_over(); ++in_vain) {
      if (try_candidate(around[next++ % around.size()])) {
        around = neighbours();
        in_vain = 0;
      }
    }
    return std::move(best_);
  }

  FoundPlan look_far() {
    constexpr int64_t kMostTried = 400;
    FrameBounds bounds(bench_);
    std::vector<std::pair<double, Candidate>> by_bound;
    for (Candidate& c : far_from(best_.candidate, bench_.plan(), space_)) {
      const double bound_ms = bounds.work_ms(c);
      if (bound_ms < best_.step_time_ms) by_bound.emplace_back(bound_ms, std::move(c));
    }
    std::stable_sort(by_bound.begin(), by_bound.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [bound_ms, c] : by_bound) {
      if (num_tried_ >= kMostTried || is_over()) break;
      if (bound_ms < best_.step_time_ms) try_candidate(c, /*is_probe=*/true);
    }
    return std::move(best_);
  }

 private:
  bool is_over() const { return num_tried_ >= options_.most_tried || options_.deadline.is_over(); }

  std::vector<Candidate> neighbours() const { return neighbours_of(best_.candidate, bench_.plan(), space_); }

  /// With several chunks a rank, where the space has a rule.
  void place_again() {
    if (best_.candidate.vpp > 1) try_candidate(best_.candidate);
  }

  /// Whether it is better.
  bool try_candidate(Candidate c, bool is_probe = false) {
    c.balance = Balance::kNone;
    if (!tried_.insert(c.text(bench_.plan())).second) return false;
    ++num_tried_;
    OpenFrame frame;
    frame.degrees = c;
    const double limit_ms = best_.step_time_ms * (1 - kLeastGain);
    Evaluation evaluation = evaluate_candidate(bench_, frame, c,
                                               {.limit_ms = limit_ms,
                                                .reassigned_limit_ms = limit_ms,
                                                .deadline = options_.deadline,
                                                .is_probe = is_probe,
                                                .moves_chunks = !is_probe,
                                                .drawn = options_.drawn});
    bool is_better = false;
    for (FoundPlan& found : evaluation.found) {
      if (found.step_time_ms >= best_.step_time_ms * (1 - kLeastGain)) continue;
      if (!check_plan(found.plan, PlanUse::kPrice).empty()) continue;
      best_ = std::move(found);
      is_better = true;
    }
    return is_better;
  }

  Workbench& bench_;
  FoundPlan best_;
  const ImproveOptions& options_;
  PlanSpace space_;
  std::set<std::string> tried_;
  int64_t num_tried_ = 0;
};

/// With what a search knows of plans besides their time.
FoundPlan finished(const Workbench& bench, const FoundPlan& before, FoundPlan after) {
  if (after.step_time_ms >= before.step_time_ms) return before;
  after.bound_ms = after.step_time_ms;
  after.simplicity = simplicity_of(after.candidate, bench.num_encoders());
  after.simplicity.lacks_export = expressed_by(after.plan).empty();
  return after;
}

}  // namespace

FoundPlan look_far(Workbench& bench, const FoundPlan& found, const ImproveOptions& options) {
  return finished(bench, found, Improver(bench, found, options).look_far());
}

FoundPlan improve_plan(Workbench& bench, const FoundPlan& found, const ImproveOptions& options) {
  return finished(bench, found, Improver(bench, found, options).climb());
}

}  // namespace weft
