#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace weft {

/// Blocks of one kind on a stage, as far as recomputation goes.
struct RecomputeKind {
  int32_t num_blocks = 0;
  double adds_ms = 0;    ///< to the backward of each recomputed block
  double saves_gib = 0;  ///< for each microbatch in flight
};

/// How many blocks of each kind are recomputed, and what that does.
struct RecomputeChoice {
  std::vector<int32_t> blocks;
  double adds_ms = 0;
  double saves_gib = 0;
};

/// The choice that saves at least `need_gib` and adds the least time: a small knapsack, solved exactly. None when all
/// blocks together do not save enough. Of equals, the one that recomputes more of what is cheapest to save.
std::optional<RecomputeChoice> choose_least(std::span<const RecomputeKind> kinds, double need_gib);

/// Every choice that no other beats in both time and memory, the quickest first. There can be as many as subsets of the
/// kinds: once more than `most` are there, the rest is not looked for.
std::vector<RecomputeChoice> choose_pareto(std::span<const RecomputeKind> kinds, size_t most);

/// All blocks that save something.
RecomputeChoice choose_all(std::span<const RecomputeKind> kinds);

}  // namespace weft
