#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/meaning/check.h"
#include "weft/plan/plan.h"

namespace weft {

/// The fields of a plan that a target cannot express, each with the reason. An export with any is not made.
class Refusals {
 public:
  /// `system` is the target as its people write it, for sentences.
  explicit Refusals(std::string system) : system_(std::move(system)) {}

  const std::string& system() const { return system_; }
  bool empty() const { return refused_.empty(); }

  /// The advice, a sentence, says what to do about this one; without it the plan has to change.
  void add(std::string field, std::string reason, std::string advice = "");
  void add(const ModulePlan& module, std::string_view field, std::string reason, std::string advice = "");

  /// All of them.
  Error error() const;

 private:
  std::string system_;
  std::vector<Violation> refused_;
  std::vector<std::string> advice_;
};

// What no target has, or what several share.

/// "base", "inline", "colocated", "disjoint", "partial".
std::string_view name_of(ModulePlacement placement);

/// Ranks that are idle or renumbered, offloading, and samples that change ranks before a step.
void refuse_what_no_target_has(const Plan& plan, Refusals& refusals);

/// Whether the ranks of the module lie in this order of axes, innermost first. Axes of size 1 lie anywhere.
bool has_axis_order(const ModulePlan& module, const std::vector<std::string>& order);

/// How many blocks are recomputed whole, by [rank][chunk].
std::vector<std::vector<int64_t>> full_recompute(const ModulePlan& module);

/// Refuses chunks that recompute other blocks than their first ones.
void refuse_scattered(const ModulePlan& module, Refusals& refusals);

/// Refuses chunks with blocks of which only attention is recomputed.
void refuse_selective(const ModulePlan& module, std::string_view why, Refusals& refusals);

}  // namespace weft
