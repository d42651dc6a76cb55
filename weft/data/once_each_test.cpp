#include "weft/data/once_each.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

/// Samples 0 to 4, of which the third is broken: the next stands in for it.
class FiveSamples : public SampleSource {
 public:
  Result<SampleLengths> lengths_of(int64_t, std::vector<SkippedSample>&) const override { return SampleLengths(); }
  Result<Sample> read(int64_t index, const SampleContent&, std::vector<SkippedSample>& skipped) const override {
    int64_t record = index % 5;
    if (record == 2) {
      skipped.push_back({.sample = index, .attempt = 0, .source = "record 2", .problem = "is broken"});
      record = 3;
    }
    Sample sample;
    sample.stands_in = record != index % 5;
    sample.ids = {record, record + 1};
    sample.targets = {record + 1, kNoTarget};
    return sample;
  }
  void leave_out(const std::vector<SkippedSample>&) override {}
  int64_t num_different() const override { return 5; }
  bool is_synthetic() const override { return false; }
};

TEST(OnceEach, CountsTheTargetsOfEveryRecordThatCanBeUsedOnce) {
  const OnceEach samples(std::make_shared<FiveSamples>());
  std::vector<int64_t> counted;
  for (int64_t index = 0; index < 8; ++index) {
    std::vector<SkippedSample> skipped;
    const auto sample = samples.read(index, {}, skipped);
    ASSERT_TRUE(sample.ok());
    EXPECT_EQ(sample->ids.size(), 2u) << "a batch keeps its shape";
    for (const int64_t target : sample->targets) {
      if (target != kNoTarget) counted.push_back(target);
    }
  }
  EXPECT_EQ(counted, (std::vector<int64_t>{1, 2, 4, 5}));
}

}  // namespace
}  // namespace weft
