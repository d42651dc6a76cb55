#pragma once

#include <optional>
#include <string>

#include "weft/base/json.h"
#include "weft/engine/runtime_api.h"
#include "weft/meaning/strategy.h"
#include "weft/shard/shard_search.h"

namespace weft {

/// What a pin costs: how much faster the program would be without it.
struct PinPrice {
  std::string name;
  double ms = 0;
};

/// A strategy with how it was found, for reports.
struct ShardReport {
  const ShardProblem& problem;
  const ShardSolution& solution;
  ShardMode mode;
  ShardSearch search;
  double search_ms = 0;
  std::vector<PinPrice> pins;
  size_t num_pins_left = 0;  ///< pinned operators beyond those whose price was looked for
  bool explains = false;
  std::optional<ProgramCheckReport> verified;  ///< where it was run
};

std::string to_text(const ShardReport& report);
Json to_json(const ShardReport& report);

}  // namespace weft
