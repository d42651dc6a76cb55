#include "weft/optim/bucket_layout.h"

#include <set>

#include <gtest/gtest.h>

#include "tests/support/optim/example_stage.h"

namespace weft {
namespace {

std::vector<StageParameter> of_sizes(const std::vector<int64_t>& sizes) {
  std::vector<StageParameter> all;
  for (const int64_t size : sizes) {
    auto parameter = c10::make_intrusive<Parameter>();
    parameter->value = at::empty({size, 1}, at::kDouble).set_requires_grad(true);
    all.push_back({.parameter = parameter});
  }
  return all;
}

std::vector<std::vector<size_t>> parameters_of(const std::vector<BucketLayout>& buckets) {
  std::vector<std::vector<size_t>> all;
  for (const BucketLayout& bucket : buckets) {
    std::vector<size_t>& places = all.emplace_back();
    for (const BucketSlot& slot : bucket.slots) places.push_back(slot.parameter);
  }
  return all;
}

using Places = std::vector<std::vector<size_t>>;

TEST(BucketLayout, FillsBucketsFromTheLastParameterOn) {
  const BucketOptions options{.max_bytes = 10 * 8, .gradient_type = at::kDouble, .alignment = 1};
  EXPECT_EQ(parameters_of(lay_out_buckets(of_sizes({4, 3, 3, 5, 5}), options)), (Places{{4, 3}, {2, 1, 0}}));
  // 4 would make the second one 11 elements.
  EXPECT_EQ(parameters_of(lay_out_buckets(of_sizes({4, 4, 3, 5, 5}), options)), (Places{{4, 3}, {2, 1}, {0}}));
}

TEST(BucketLayout, AParameterThatIsTooLargeHasABucketOfItsOwn) {
  const BucketOptions options{.max_bytes = 10 * 8, .gradient_type = at::kDouble, .alignment = 1};
  EXPECT_EQ(parameters_of(lay_out_buckets(of_sizes({2, 50, 3}), options)), (Places{{2}, {1}, {0}}));
}

TEST(BucketLayout, CountsBytesOfGradients) {
  const BucketOptions options{.max_bytes = 10 * 4, .gradient_type = at::kFloat, .alignment = 1};
  EXPECT_EQ(parameters_of(lay_out_buckets(of_sizes({5, 5, 5}), options)), (Places{{2, 1}, {0}}));
}

TEST(BucketLayout, BucketsComeInTheOrderInWhichABackwardCompletesThem) {
  std::vector<StageParameter> parameters = of_sizes({1, 1, 1, 1});
  parameters[3].bundle = parameters[0].bundle = 8;
  EXPECT_EQ(parameters_of(lay_out_buckets(parameters, {})), (Places{{2, 1}, {3, 0}}));
}

TEST(BucketLayout, EveryParameterLiesAlignedInOneBucketOfItsKindAndShardsAreEven) {
  const std::vector<StageParameter> parameters = example_parameters();
  for (const int64_t max_bytes : {0, 100, 1'000'000}) {
    for (const int64_t num_shards : {1, 2, 3, 4, 7}) {
      for (const int64_t alignment : {1, 4, 64}) {
        const auto buckets = lay_out_buckets(
            parameters,
            {.max_bytes = max_bytes, .gradient_type = at::kDouble, .num_shards = num_shards, .alignment = alignment});
        std::set<size_t> seen;
        for (const BucketLayout& bucket : buckets) {
          EXPECT_EQ(bucket.num_elements % (num_shards * alignment), 0);
          int64_t end = 0;
          for (const BucketSlot& slot : bucket.slots) {
            const ExampleParameter& p = kExampleStage[slot.parameter];
            EXPECT_TRUE(seen.insert(slot.parameter).second);
            EXPECT_GE(slot.elements.begin, end);
            EXPECT_LT(slot.elements.begin, end + alignment);
            EXPECT_EQ(slot.elements.begin % alignment, 0);
            EXPECT_EQ(slot.elements.size(), p.num_elements());
            EXPECT_EQ(bucket.bundle, p.bundle);
            EXPECT_EQ(bucket.is_trained, !p.is_frozen);
            EXPECT_EQ(bucket.has_decay, !p.is_frozen && p.shape.size() >= 2);
            end = slot.elements.end;
          }
          EXPECT_LT(bucket.num_elements, end + num_shards * alignment);
          EXPECT_TRUE(bucket.slots.size() == 1 || end * 8 <= max_bytes);
        }
        EXPECT_EQ(seen.size(), parameters.size());
      }
    }
  }
}

TEST(BucketLayout, WhoDecaysIsTheCallersChoice) {
  const auto buckets = lay_out_buckets(example_parameters(), {.has_decay = [](const Parameter&) { return true; }});
  for (const BucketLayout& bucket : buckets) EXPECT_EQ(bucket.has_decay, bucket.is_trained);
}

TEST(BucketLayout, AStageWithoutParametersHasNoBuckets) {
  EXPECT_TRUE(lay_out_buckets(std::vector<StageParameter>(), {}).empty());
}

}  // namespace
}  // namespace weft
