#include "weft/search/balance_costs.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

const std::string kBlock = R"({"name": "a", "count": 4, "forward_ms": 1, "backward_ms": 2})";

std::string document(const std::string& head, const std::string& chain = kBlock) {
  return "{" + head + R"(, "chain": [)" + chain + "]}";
}

std::string finding(const std::string& text) {
  const Result<BalanceCosts> costs = read_balance_costs(*parse_document(text, "c.json", Syntax::kJson));
  return costs ? "" : costs.error().message();
}

const std::string kHead = R"("schedule": "1f1b", "pp": 2, "microbatches": 4)";
const std::string kSplitHead = R"("schedule": "zb_h1", "pp": 2, "microbatches": 4)";

TEST(BalanceCosts, WhatIsNotGivenIsNothing) {
  const Result<BalanceCosts> costs = read_balance_costs(*parse_document(document(kHead), "c", Syntax::kJson));
  ASSERT_TRUE(costs.ok());
  EXPECT_FALSE(costs->has_memory_limit());
  EXPECT_EQ(costs->p2p_ms, 0);
  EXPECT_EQ(costs->shape.vpp, 1);
  EXPECT_EQ(costs->chain[0].static_gib, 0);
  EXPECT_EQ(costs->first_stage.times.total_ms(), 0);
  EXPECT_EQ(costs->num_blocks(), 4);
}

TEST(BalanceCosts, TheBackwardMayBeGivenWholeOrInParts) {
  const std::string parts =
      R"({"name": "a", "count": 4, "forward_ms": 1, "backward_input_ms": 0.5, "backward_weight_ms": 1.5})";
  const Result<BalanceCosts> whole = read_balance_costs(*parse_document(document(kHead, parts), "c", Syntax::kJson));
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->chain[0].times.backward_input_ms, 2) << "1F1B does not split it";
  const Result<BalanceCosts> split =
      read_balance_costs(*parse_document(document(kSplitHead, parts), "c", Syntax::kJson));
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(split->chain[0].times.backward_weight_ms, 1.5);
  EXPECT_EQ(finding(document(kSplitHead)),
            "c.json: chain[0].backward_ms: is given, but the schedule splits the backward. Give backward_input_ms and "
            "backward_weight_ms instead.");
  EXPECT_EQ(finding(document(kHead, R"({"name": "a", "count": 4, "forward_ms": 1, "backward_ms": 2,
                                        "backward_input_ms": 1})")),
            "c.json: chain[0].backward_ms: is given together with backward_input_ms or backward_weight_ms. Give the "
            "whole backward or its two parts.");
  EXPECT_EQ(finding(document(kHead, R"({"name": "a", "count": 4, "forward_ms": 1})")),
            "c.json: chain[0].backward_ms: is missing. Add it, or backward_input_ms and backward_weight_ms.");
  EXPECT_EQ(finding(document(kSplitHead, R"({"name": "a", "count": 4, "forward_ms": 1, "backward_input_ms": 1})")),
            "c.json: chain[0].backward_weight_ms: is missing. Add it.");
}

TEST(BalanceCosts, MistakesNameTheField) {
  EXPECT_EQ(finding(R"({"schedule": "1f1b", "pp": 2, "microbatches": 4})"), "c.json: chain: is missing. Add it.");
  EXPECT_EQ(finding(document(kHead, "")), "c.json: chain: has no blocks, at least one kind is needed. Add one.");
  EXPECT_EQ(finding(document(kHead, "1")), "c.json: chain: is a list of other things, a list of mappings is needed");
  EXPECT_EQ(finding(document(kHead, kBlock + "," + kBlock)),
            "c.json: chain[1].name: 'a' is there twice. Give each kind of block a name of its own.");
  EXPECT_EQ(finding(document(kHead, R"({"name": "a", "count": -1, "forward_ms": 1, "backward_ms": 2})")),
            "c.json: chain[0].count: is -1, a whole number from 1 to 512 is needed");
  EXPECT_EQ(finding(document(kHead, R"({"name": "a", "count": 4, "forward_ms": -1, "backward_ms": 2})")),
            "c.json: chain[0].forward_ms: is the number -1, a number from 0 to 1000000000 is needed");
  EXPECT_EQ(finding(document(kHead, R"({"name": "a", "count": 4, "forward_ms": 1, "backward_ms": 2,
                                        "activation_gib": 1, "recompute_saves_gib": 2})")),
            "c.json: chain[0].recompute_saves_gib: is 2, but activation_gib is 1: a block cannot save more than it "
            "holds. Lower it, or raise activation_gib.");
  EXPECT_EQ(finding(document(kHead, R"({"name": "a", "count": 513, "forward_ms": 1, "backward_ms": 2})")),
            "c.json: chain[0].count: is 513, a whole number from 1 to 512 is needed");
  EXPECT_NE(finding(document(kHead + R"(, "memory_gb": 3)")).find("Did you mean 'memory_gib'?"), std::string::npos);
  EXPECT_NE(finding(document(kHead + R"(, "first_stage": {"static": 3})")).find("c.json: first_stage.static: is not"),
            std::string::npos);
  EXPECT_NE(
      finding(document(R"("schedule": "2f2b", "pp": 2, "microbatches": 4)")).find("c.json: schedule: is the text"),
      std::string::npos);
}

TEST(BalanceCosts, TheScheduleJudgesItsShape) {
  EXPECT_EQ(finding(document(R"("schedule": "1f1b", "pp": 2, "vpp": 2, "microbatches": 4)")),
            "c.json: vpp: is 2, but 1f1b has one chunk a rank. Set it to 1, or use interleaved_1f1b.");
  EXPECT_EQ(finding(document(R"("schedule": "interleaved_1f1b", "pp": 2, "microbatches": 4)")),
            "c.json: vpp: is 1, but interleaved_1f1b needs at least 2 chunks a rank. Raise it, or use 1f1b.");
  EXPECT_EQ(finding(document(R"("schedule": "1f1b", "pp": 5, "microbatches": 4)")),
            "c.json: pp: is 5, but the chain has 4 blocks and every stage needs one. Lower it.");
  EXPECT_EQ(finding(document(R"("schedule": "interleaved_1f1b", "pp": 3, "vpp": 2, "microbatches": 4)")),
            "c.json: pp: is 3 with vpp 2, but the chain has 4 blocks and every stage needs one. Lower pp or vpp.");
  EXPECT_EQ(finding(document(R"("schedule": "1f1b", "pp": 0, "microbatches": 4)")),
            "c.json: pp: is 0, a whole number from 1 to 512 is needed");
  EXPECT_EQ(finding(document(R"("schedule": "interleaved_1f1b", "pp": 512, "vpp": 64, "microbatches": 65536)")),
            "c.json: microbatches: 65536 x pp 512 x vpp 64 gives more than 4,000,000 pairs of stage and microbatch. "
            "Lower one of them.");
}

}  // namespace
}  // namespace weft
