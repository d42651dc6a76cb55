#pragma once

#include <array>
#include <map>
#include <tuple>
#include <vector>

#include "weft/search/candidate.h"
#include "weft/simulate/drawn_samples.h"

namespace weft {

/// What data-parallel ranks take of drawn batches at least, for bounds: a step waits for the busiest, and times grow at
/// least as fast as loads, so that no dealing of the samples takes less on average than these loads do.
class DrawnLoads {
 public:
  /// The first `batches` of the samples. Without `may_reassign`, samples are dealt out in their order.
  DrawnLoads(const Plan& problem, DrawnSamples& samples, int64_t batches, bool may_reassign);

  /// The mean of all samples.
  const SampleLoad& mean() const { return mean_; }
  /// By ModuleKind: the share of the samples that the module has anything of.
  const std::array<double, 3>& share() const { return share_; }

  /// How many times the mean the busiest rank of a module takes.
  double factor(const Plan& plan, const ModulePlan& module);

  /// While it lives, every rank takes the mean: for bounds that hold wherever encoders lie.
  class Even {
   public:
    explicit Even(DrawnLoads* loads) : loads_(loads) { set(true); }
    ~Even() { set(false); }
    Even(const Even&) = delete;
    Even& operator=(const Even&) = delete;

   private:
    void set(bool is_even) {
      if (loads_ != nullptr) loads_->is_even_ = is_even;
    }
    DrawnLoads* loads_;
  };

 private:
  /// What a rank takes of a module, in mean samples. Some times grow like rows, some like pairs of them.
  struct Load {
    double rows = 0;
    double pairs = 0;

    Load& operator+=(const Load& other);
    double least() const { return rows < pairs ? rows : pairs; }
  };
  using Loads = std::vector<Load>;     ///< by sample
  using Batch = std::array<Loads, 3>;  ///< by ModuleKind
  static Load sum_of(const Loads& loads, size_t begin, size_t end);
  double beside_factor(ModuleKind kind, int64_t data_parallel, int64_t at_once) const;
  double pipeline_factor(const Plan& plan) const;

  std::vector<Batch> batches_;
  SampleLoad mean_;
  std::array<double, 3> share_{1, 1, 1};
  bool may_reassign_;
  bool is_even_ = false;
  /// By data-parallel ranks, samples at once, and modules: those of the pipeline, or one beside it.
  std::map<std::tuple<int64_t, int64_t, unsigned>, double> factors_;
};

}  // namespace weft
