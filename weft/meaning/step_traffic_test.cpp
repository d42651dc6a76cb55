#include "weft/meaning/step_traffic.h"

#include <map>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/meaning/random_load.h"
#include "tests/support/meaning/random_plan.h"
#include "tests/support/source_tree.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

Model tiny_model(const std::string& fixture) {
  return *read_model_file(source_tree().string() + "/tests/parity/fixtures/" + fixture);
}

/// What the ranks of a group do together.
struct GroupSum {
  std::map<OperationKind, OperationCount> counts;
  std::map<OperationKind, std::set<int64_t>> calls;  ///< of each rank
  size_t num_ranks = 0;
};

// What one rank sends another receives, and all take part in a collective.
TEST(StepTraffic, RanksOfAGroupAgree) {
  for (const char* fixture : {"llama_tied", "qwen3_moe_norm", "qwen2_vl_untied", "qwen2_5_omni"}) {
    const Model model = tiny_model(fixture);
    for (uint64_t seed = 1; seed <= draws(uint64_t{kIsSanitized ? 10 : 40}); ++seed) {
      const Plan plan = random_plan(model, seed);
      const StepLoad load = random_load(plan, seed);
      SCOPED_TRACE(std::string(fixture) + ", seed " + std::to_string(seed) + ": " + settings_text(plan));
      std::map<std::pair<std::string, std::vector<int64_t>>, GroupSum> groups;
      for (int64_t rank = 0; rank < plan.world_size; ++rank) {
        for (const GroupTraffic& group : step_traffic(plan, load, rank)) {
          GroupSum& sum = groups[{group.name, group.ranks}];
          ++sum.num_ranks;
          for (size_t i = 0; i < kNumOperationKinds; ++i) {
            const auto kind = static_cast<OperationKind>(i);
            sum.counts[kind] += group.operations[i];
            sum.calls[kind].insert(group.operations[i].calls);
          }
        }
      }
      for (const auto& [key, sum] : groups) {
        SCOPED_TRACE(key.first);
        for (const auto& [kind, count] : sum.counts) {
          if (kind == OperationKind::kSend || kind == OperationKind::kRecv) continue;
          EXPECT_EQ(count.bytes.sent, count.bytes.received) << name_of(kind);
          if (count.calls > 0) {
            EXPECT_EQ(sum.num_ranks, key.second.size()) << name_of(kind);
            EXPECT_EQ(sum.calls.at(kind).size(), 1u) << name_of(kind);
          }
        }
        const OperationCount& sends = sum.counts.at(OperationKind::kSend);
        const OperationCount& receives = sum.counts.at(OperationKind::kRecv);
        EXPECT_EQ(sends.calls, receives.calls);
        EXPECT_EQ(sends.bytes.sent, receives.bytes.received);
      }
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace weft
