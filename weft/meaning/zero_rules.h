#pragma once

#include <array>
#include <cstdint>

#include "weft/spec/precision.h"

namespace weft {

/// What a ZeRO stage means for the ranks that have the same weights.
struct ZeroRules {
  bool divides_states = false;      ///< each updates, and has optimizer states of, the elements that it owns
  bool scatters_gradients = false;  ///< with every microbatch; what stays are sums of the owned ones
  bool releases_values = false;     ///< whole values come and go; what stays are the owned ones
  bool returns_values = false;      ///< updated elements are gathered when a step ends, into values that stay whole

  /// Of gradients that stay from microbatch to microbatch.
  Precision gradient_sums(Precision reduce, Precision master) const { return scatters_gradients ? master : reduce; }
};

/// Most whole gradients that are on their way to being scattered at once, in sizes of the largest bucket: while one
/// bucket is put together another may be on its way, and small ones besides; more would be as much memory as whole
/// gradients.
inline constexpr double kMostScattered = 1.5;

/// The stage of so many ranks that have the same weights: one has nobody to divide anything with.
constexpr int64_t effective_zero(int64_t stage, int64_t num_ranks) {
  return num_ranks == 1 ? 0 : stage;
}

/// Whether whole values come and go at a stage, so that they may be kept instead.
constexpr bool may_keep_gathered(int64_t stage) {
  return stage == 3;
}

/// All that a module may say of ZeRO.
struct ZeroSetting {
  int64_t stage = 0;
  bool keep_gathered = false;
};
inline constexpr std::array<ZeroSetting, 5> kZeroSettings = {
    {{0, false}, {1, false}, {2, false}, {3, false}, {3, true}}};

/// `keep_gathered`: whole values, of which the owned ones are a part, are kept where they may be.
constexpr ZeroRules zero_rules(int64_t stage, bool keep_gathered) {
  const bool releases = may_keep_gathered(stage) && !keep_gathered;
  return {.divides_states = stage >= 1,
          .scatters_gradients = stage >= 2,
          .releases_values = releases,
          .returns_values = stage >= 1 && !releases};
}

}  // namespace weft
