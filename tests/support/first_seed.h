#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace weft {

/// Where a suite of random plans begins to count: at `usual`, or as much further as WEFT_FIRST_SEED says, so that one
/// build can be run over plans that nobody has looked at.
inline uint64_t first_seed(uint64_t usual) {
  const char* offset = std::getenv("WEFT_FIRST_SEED");
  return usual + (offset != nullptr ? std::strtoull(offset, nullptr, 10) : 0);
}

/// Whether a suite begins where it usually does: what its draw must hold, like a plan with every kind of group, is
/// asked of that one.
inline bool has_usual_seeds() {
  return std::getenv("WEFT_FIRST_SEED") == nullptr;
}

/// Writes into a test's report (--gtest_output) how many plans it compared: runs over many seeds are added up by it.
/// up.
inline void record_plans(uint64_t num_plans) {
  testing::Test::RecordProperty("plans", std::to_string(num_plans));
}

}  // namespace weft
