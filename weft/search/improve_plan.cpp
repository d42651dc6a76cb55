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

  FoundPlan run() {
    place_again();
    if (options_.drawn != nullptr) look_far();
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

 private:
  bool is_over() const { return num_tried_ >= options_.most_tried || options_.deadline.is_over(); }

  std::vector<Candidate> neighbours() const { return neighbours_of(best_.candidate, bench_.plan(), space_); }

  /// With several chunks a rank, where the space has a rule.
  void place_again() {
    if (best_.candidate.vpp > 1) try_candidate(best_.candidate);
  }

  /// On drawn batches the order of bounds says little about plans, and the best may be far from the best so far.
  void look_far() {
    constexpr int64_t kMostTried = 400;
    FrameBounds bounds(bench_);
    std::vector<std::pair<double, Candidate>> by_bound;
    for (Candidate& c : far_from(best_.candidate, bench_.plan(), space_)) {
      const double bound_ms = bounds.work_ms(c);
      if (bound_ms < best_.step_time_ms) by_bound.emplace_back(bound_ms, std::move(c));
    }
    std::stable_sort(by_bound.begin(), by_bound.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [bound_ms, c] : by_bound) {
      if (num_tried_ >= kMostTried || is_over()) return;
      if (bound_ms < best_.step_time_ms) try_candidate(c);
    }
  }

  /// Whether it is better.
  bool try_candidate(Candidate c) {
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
                                                .moves_chunks = true,
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

}  // namespace

FoundPlan improve_plan(Workbench& bench, const FoundPlan& found, const ImproveOptions& options) {
  FoundPlan improved = Improver(bench, found, options).run();
  if (improved.step_time_ms >= found.step_time_ms) return found;
  improved.bound_ms = improved.step_time_ms;
  improved.simplicity = simplicity_of(improved.candidate, bench.num_encoders());
  improved.simplicity.lacks_export = expressed_by(improved.plan).empty();
  return improved;
}

}  // namespace weft
