#include "weft/comm/echo/echo_world.h"

#include <numeric>

#include <gtest/gtest.h>

namespace weft {
namespace {

Buffer buffer_over(std::vector<float>& values) {
  return {.data = values.data(), .count = std::ssize(values), .type = DataType::kFp32};
}

/// Rank 1 of three.
class EchoGroupOfThree : public testing::Test {
 protected:
  EchoWorld echo_{1, 3};
  Group& group_ = echo_.world().all();
};

TEST_F(EchoGroupOfThree, ASumIsTheOwnValues) {
  std::vector<float> in = {1, 2, 3}, out(3);
  group_.all_reduce(buffer_over(in), buffer_over(out), Reduction::kSum).wait();
  EXPECT_EQ(out, in);
  group_.all_reduce(buffer_over(in), Reduction::kMax).wait();
  EXPECT_EQ(in, out);
}

TEST_F(EchoGroupOfThree, AGatherIsTheOwnPartOverAndOver) {
  std::vector<float> in = {1, 2}, out(6);
  group_.all_gather(buffer_over(in), buffer_over(out)).wait();
  EXPECT_EQ(out, (std::vector<float>{1, 2, 1, 2, 1, 2}));
  std::vector<float> uneven(7);
  group_.all_gather(buffer_over(in), buffer_over(uneven), {1, 2, 4}).wait();
  EXPECT_EQ(uneven, (std::vector<float>{1, 1, 2, 1, 2, 1, 2}));
}

TEST_F(EchoGroupOfThree, AGatherMayReadItsOwnPartOfTheOutput) {
  std::vector<float> out = {0, 0, 5, 6, 0, 0};
  group_.all_gather(buffer_over(out).part(2, 2), buffer_over(out)).wait();
  EXPECT_EQ(out, (std::vector<float>{5, 6, 5, 6, 5, 6}));
}

TEST_F(EchoGroupOfThree, AScatterIsTheOwnPart) {
  std::vector<float> in = {1, 2, 3, 4, 5, 6}, out(2);
  group_.reduce_scatter(buffer_over(in), buffer_over(out), Reduction::kSum).wait();
  EXPECT_EQ(out, (std::vector<float>{3, 4}));
  std::vector<float> uneven(3);
  group_.reduce_scatter(buffer_over(in), buffer_over(uneven), Reduction::kSum, {2, 3, 1}).wait();
  EXPECT_EQ(uneven, (std::vector<float>{3, 4, 5}));
}

TEST_F(EchoGroupOfThree, WhatComesFromARankIsWhatWentToIt) {
  std::vector<float> in = {1, 2, 3, 4, 5, 6}, out(6);
  group_.all_to_all(buffer_over(in), buffer_over(out)).wait();
  EXPECT_EQ(out, in);
  // Counts that were exchanged first come back equal, too.
  group_.all_to_all(buffer_over(in), buffer_over(out), {1, 3, 2}, {1, 3, 2}).wait();
  EXPECT_EQ(out, in);
  std::vector<float> other(6);
  group_.all_to_all(buffer_over(in), buffer_over(other), {1, 3, 2}, {2, 3, 1}).wait();
  EXPECT_EQ(other, (std::vector<float>{1, 1, 2, 3, 4, 5}));
}

TEST_F(EchoGroupOfThree, NobodyWaits) {
  std::vector<float> values = {7, 7};
  group_.send(buffer_over(values), 2).wait();
  group_.barrier().wait();
  group_.broadcast(buffer_over(values), 0).wait();
  EXPECT_EQ(values, (std::vector<float>{7, 7}));
  group_.recv(buffer_over(values), 0).wait();
  EXPECT_EQ(values, (std::vector<float>{0, 0}));
}

TEST_F(EchoGroupOfThree, CountsTheTimeOfItsCopies) {
  std::vector<float> in(1 << 18, 1.0F), out(3 << 18);
  EXPECT_EQ(echo_.copies().host_ms, 0);
  group_.all_gather(buffer_over(in), buffer_over(out)).wait();
  EXPECT_GT(echo_.copies().host_ms, 0);
  EXPECT_EQ(echo_.copies().gpu_bytes, 0);
}

TEST(EchoWorld, MeetsOnceForEveryOperationThatIsWaitedFor) {
  int meetings = 0;
  EchoWorld echo(1, 3, [&] { ++meetings; });
  std::vector<float> values = {7, 7};
  Work work = echo.world().all().all_reduce(buffer_over(values), Reduction::kSum);
  EXPECT_EQ(meetings, 0);
  work.wait();
  work.wait();
  EXPECT_EQ(meetings, 1);
  auto alone = echo.world().group("alone", {1});
  ASSERT_TRUE(alone.ok());
  alone->all_reduce(buffer_over(values), Reduction::kSum).wait();
  EXPECT_EQ(meetings, 1);
}

TEST(EchoWorld, HasGroupsOfAMeshOfHundreds) {
  EchoWorld echo(513, 1024);
  std::vector<int64_t> ranks(256);
  std::iota(ranks.begin(), ranks.end(), 400);
  auto group = echo.world().group("some", ranks);
  ASSERT_TRUE(group.ok());
  EXPECT_EQ(group->rank(), 113);
  EXPECT_EQ(group->size(), 256);
}

}  // namespace
}  // namespace weft
