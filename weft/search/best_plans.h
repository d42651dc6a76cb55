#pragma once

#include <vector>

#include "weft/search/plan_search.h"
#include "weft/search/precision.h"

namespace weft {

/// The fastest plans that a search knows, of every candidate one. It begins with probes; what they find is a limit for
/// the search proper, which must find it again.
class BestPlans {
 public:
  explicit BestPlans(size_t most) : most_(most) {}

  /// Only what is faster than this is of interest: the slowest of the best, once there are as many as are asked for.
  double limit_ms() const;
  /// Nothing before anything was found.
  const FoundPlan* fastest() const;

  /// Keeps a plan if it is faster than the limit.
  void offer(FoundPlan found);

  /// Sets what was found so far aside.
  void end_probing();
  /// Takes back what probes found and the search did not, though it is as fast; whether there was any.
  bool restore_missing();

  /// Fastest first.
  std::vector<FoundPlan> take() { return std::move(best_); }

 private:
  bool has_all() const { return best_.size() >= most_; }
  void insert(FoundPlan found);

  size_t most_;
  std::vector<FoundPlan> best_;
  std::vector<FoundPlan> probed_;
  double probed_ms_ = kInfinity;
};

}  // namespace weft
