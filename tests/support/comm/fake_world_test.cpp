#include "tests/support/comm/fake_world.h"

#include <gtest/gtest.h>

#include "weft/comm/failure.h"
#include "weft/mesh/transition.h"

namespace weft {
namespace {

Buffer floats(std::vector<float>& values) {
  return {.data = values.data(), .count = static_cast<int64_t>(values.size()), .type = DataType::kFp32};
}

TEST(FakeWorld, RecordsWhatWouldBeSentToWhom) {
  FakeWorld fake({.rank = 5, .size = 512});
  Group group = *fake.world().group("tp", {4, 5, 6, 7});
  std::vector<float> in(8), out(32), parts(10);
  group.all_gather(floats(in), floats(out)).wait();
  group.all_to_all(floats(parts).part(0, 10), floats(out).part(0, 6), {1, 2, 3, 4}, {0, 2, 4, 0}).wait();
  group.send(floats(in), 3).wait();
  ASSERT_EQ(fake.calls().size(), 3u);
  EXPECT_EQ(fake.calls()[0].group, "tp");
  EXPECT_EQ(fake.calls()[0].sent, (std::vector<SentBytes>{{6, 96}}));
  EXPECT_EQ(fake.calls()[1].sent, (std::vector<SentBytes>{{4, 4}, {6, 12}, {7, 16}}));
  EXPECT_EQ(fake.calls()[1].bytes, (Traffic{32, 16}));
  EXPECT_EQ(fake.calls()[2].sent, (std::vector<SentBytes>{{7, 32}}));
  EXPECT_EQ(text(fake.calls()[2].what), "send of 8 fp32 to its rank 3");
  EXPECT_EQ(fake.total_bytes(), (Traffic{96 + 32 + 32, 96 + 16}));
}

/// The steps of a transition, asked of groups as a runtime would, for one rank.
void run_steps(World& world, const Mesh& mesh, const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    if (!is_collective(step.kind)) continue;
    Group group = *world.group(mesh, step.axes);
    const auto counts_of = [&](const Layout& layout) {
      std::vector<int64_t> counts;
      for (const int64_t rank : group.ranks()) counts.push_back(layout.num_local_elements(mesh.position_of(rank)));
      return counts;
    };
    const int64_t position = mesh.position_of(world.rank());
    std::vector<float> in(static_cast<size_t>(step.before.num_local_elements(position)));
    std::vector<float> out(static_cast<size_t>(step.after.num_local_elements(position)));
    if (step.kind == StepKind::kAllGather) {
      group.all_gather(floats(in), floats(out), counts_of(step.before)).wait();
    } else if (step.kind == StepKind::kReduceScatter) {
      group.reduce_scatter(floats(in), floats(out), Reduction::kSum, counts_of(step.after)).wait();
    } else if (step.kind == StepKind::kAllReduce) {
      group.all_reduce(floats(in), floats(out), Reduction::kSum).wait();
    } else {
      std::vector<int64_t> sent, received;
      for (const int64_t rank : group.ranks()) {
        const int64_t other = mesh.position_of(rank);
        sent.push_back(num_elements(intersection(step.before.box(position), step.after.box(other))));
        received.push_back(num_elements(intersection(step.before.box(other), step.after.box(position))));
      }
      group.all_to_all(floats(in), floats(out), sent, received).wait();
    }
  }
}

TEST(FakeWorld, BytesOfA512RankPlanAreThoseOfItsSteps) {
  const Mesh mesh = *Mesh::contiguous({{"tp", 8}, {"cp", 2}, {"dp", 32}});
  const std::vector<int64_t> shape = {1003, 17};
  using States = std::vector<AxisState>;
  const AxisState shard = AxisState::shard(0), partial = AxisState::partial(), whole = AxisState::replicated();
  const std::vector<std::pair<States, States>> changes = {{{shard, whole, whole}, {whole, whole, whole}},
                                                          {{partial, whole, whole}, {whole, whole, whole}},
                                                          {{partial, whole, whole}, {shard, whole, whole}},
                                                          {{whole, partial, partial}, {whole, whole, whole}}};
  for (const auto& [before, after] : changes) {
    const Layout from = *Layout::create(mesh.grid(), shape, before), to = *Layout::create(mesh.grid(), shape, after);
    const std::vector<Step> steps = plan_transition(from, to).forward;
    for (const int64_t rank : {0, 7, 100, 511}) {
      FakeWorld fake({.rank = rank, .size = 512});
      run_steps(fake.world(), mesh, steps);
      EXPECT_EQ(fake.total_bytes(), traffic_of(steps, mesh.position_of(rank)).in_bytes(4)) << text(steps);
      EXPECT_GT(fake.total_bytes().sent, 0);
    }
  }
}

TEST(FakeWorld, FailsAtTheOperationThatItIsToldTo) {
  FakeWorld fake({.rank = 1, .size = 4, .fail_at = 2, .failing_rank = 3});
  std::vector<float> values(4);
  fake.world().all().all_reduce(floats(values), Reduction::kSum).wait();
  Work work = fake.world().all().all_reduce(floats(values), Reduction::kSum);
  try {
    work.wait();
    FAIL() << "nothing was thrown";
  } catch (const RankFailure& failure) {
    EXPECT_EQ(failure.rank(), 3);
    EXPECT_STREQ(failure.what(),
                 "rank 3 failed, as the fake was told; rank 1 waited for it in all_reduce of 4 fp32 (sum), operation 2 "
                 "of group 'world'");
  }
  fake.world().all().barrier().wait();
}

}  // namespace
}  // namespace weft
