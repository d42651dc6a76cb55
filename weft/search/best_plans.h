#pragma once

#include <vector>

#include "weft/search/plan_search.h"
#include "weft/search/precision.h"

namespace weft {

/// Plans whose times differ by less than this share are as fast as each other.
inline constexpr double kTie = 1e-8;

/// The plans that a search may still need: the fastest ones, of equally fast ones the simplest, and those that are
/// simpler than all faster ones and within a margin of the fastest. It begins with probes; what they find is a limit
/// for the search proper, which must find it again.
class BestPlans {
 public:
  /// `most` plans of different times, and those that are slower than the fastest by a share of `within` at most.
  /// Nothing that takes `limit_ms` or more is of interest.
  explicit BestPlans(size_t most, double within, double limit_ms = kInfinity)
      : limit_ms_(limit_ms), known_{.most = most, .within = within} {}

  /// Of plans that are no simpler than `least`, only what is faster than this is of interest.
  double limit_ms(const Simplicity& least) const;
  /// Nothing before anything was found.
  const FoundPlan* fastest() const;

  /// Keeps a plan if it is faster than the limit.
  void offer(FoundPlan found);

  /// Sets what was found so far aside.
  void end_probing();
  /// Takes back what probes found and the search did not, though it is of interest; whether there was any.
  bool restore_missing();

  /// Fastest first: as many as are asked for, and those that are simpler.
  std::vector<FoundPlan> take();

 private:
  struct Known {
    size_t most = 1;
    double within = 0;
    std::vector<FoundPlan> fastest = {};   ///< of different times and settings beside balance, at most `most`
    std::vector<FoundPlan> simplest = {};  ///< each simpler than all before it

    /// `hair` is a share that is added to all times.
    double limit_ms(const Simplicity& least, double hair) const;
    double margin_ms() const;
    /// Whether a plan of the candidate is there that is as fast.
    bool has(const FoundPlan& found) const;
    /// Whether insert would keep it.
    bool wants(const FoundPlan& found) const;
    void insert(FoundPlan found);
    void insert_fast(const FoundPlan& found);
    void insert_simple(FoundPlan found);
  };

  double limit_ms_;
  Known known_;
  Known probed_;
};

}  // namespace weft
