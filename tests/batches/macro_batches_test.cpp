// The schedule waits for macro batches by arithmetic alone; the samples must really be in them, however they are dealt.
#include <algorithm>
#include <map>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weft/meaning/balance.h"
#include "weft/schedule/encoder_forms.h"

namespace weft {
namespace {

std::map<int64_t, int32_t> macro_of_samples(const BatchAssignment::Shares& shares) {
  std::map<int64_t, int32_t> macro_of;
  for (const auto& rank : shares) {
    for (size_t macro = 0; macro < rank.size(); ++macro) {
      for (const int64_t sample : rank[macro]) macro_of[sample] = static_cast<int32_t>(macro);
    }
  }
  return macro_of;
}

TEST(MacroBatches, AMicrobatchFindsItsSamplesInTheMacroBatchesThatTheScheduleWaitsFor) {
  std::mt19937_64 random(5);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  int uneven = 0, fractions = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const BatchOrder llm{.data_parallel = 1 + below(5), .microbatches = 1 + below(7), .mbs = 1 + below(4)};
    EncoderShape vision{.data_parallel = 1 + below(6), .mbs_scale = 1 + below(4), .mbs_parts = 1 + below(4)};
    if (llm.mbs * vision.mbs_scale % vision.mbs_parts != 0) vision.mbs_parts = 1;
    fractions += vision.mbs_scale % vision.mbs_parts != 0 ? 1 : 0;
    const BalancedModules which{.llm = below(2) == 0, .encoders = below(2) == 0, .ranks_in_lockstep = below(2) == 0};
    BatchCosts costs;
    for (int64_t i = 0; i < llm.size(); ++i) {
      costs.llm.push_back(static_cast<double>(1 + below(100)));
      costs.encoders[ModuleKind::kVision].push_back(static_cast<double>(below(4)));
    }
    SCOPED_TRACE(fmt::format("dp {}, {} microbatches of {}, encoder dp {}, scale {}/{}", llm.data_parallel,
                             llm.microbatches, llm.mbs, vision.data_parallel, vision.mbs_scale, vision.mbs_parts));
    const MacroRanges ranges = *macro_ranges({.microbatches = llm.microbatches,
                                              .mbs_scale = vision.mbs_scale,
                                              .mbs_parts = vision.mbs_parts,
                                              .dp_encoder = vision.data_parallel,
                                              .dp_llm = llm.data_parallel});
    const BatchAssignment assignment =
        assign_balanced({.llm = llm, .encoders = {{ModuleKind::kVision, vision}}}, which, costs);
    const BatchAssignment::Shares& shares = assignment.encoders.at(ModuleKind::kVision);
    ASSERT_EQ(static_cast<int32_t>(shares.front().size()), ranges.num_macro_batches);
    const std::map<int64_t, int32_t> macro_of = macro_of_samples(shares);
    for (size_t microbatch = 0; microbatch < static_cast<size_t>(llm.microbatches); ++microbatch) {
      int32_t first = ranges.num_macro_batches, end = 0;
      for (const auto& rank : assignment.llm) {
        for (const int64_t sample : rank[microbatch]) {
          first = std::min(first, macro_of.at(sample));
          end = std::max(end, macro_of.at(sample) + 1);
        }
      }
      ASSERT_EQ(first, ranges.first_macro[microbatch]) << "microbatch " << microbatch;
      ASSERT_EQ(end, ranges.end_macro[microbatch]) << "microbatch " << microbatch;
      uneven += end - first > 1 && first > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(fractions, 200);
  EXPECT_GT(uneven, 1000) << "microbatches that begin inside a macro batch must be among the cases";
}

}  // namespace
}  // namespace weft
