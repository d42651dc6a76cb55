// The suite on threads, and what ends a run.
#include <cstdio>

#include "tests/support/tensor/spread_tensor.h"
#include "weft/comm/failure.h"
#include "weft/comm/suite.h"
#include "weft/comm/threads/run_threads.h"
#include "weft/tensor/redistribute.h"
#include "weft/tensor/row_transfer.h"

namespace weft::suite {

std::vector<Ranks> all_ranks() {
  std::vector<Ranks> all;
  for (const int64_t size : {1, 6, 8}) {
    all.push_back({.name = "Threads" + std::to_string(size), .size = size, .run = [size](const auto& body) {
                     const auto error = run_thread_ranks(size, {.timeout = std::chrono::seconds(60)}, body);
                     ASSERT_FALSE(error.has_value()) << error->message();
                   }});
  }
  return all;
}

void tell_skipped(const std::string& reason) {
  std::fprintf(stderr, "skipped: %s\n", reason.c_str());
}

}  // namespace weft::suite

namespace weft {
namespace {

/// What the user reads when this is done on two ranks.
std::string message_of_run(const std::function<void(World&)>& body) {
  try {
    (void)run_thread_ranks(2, {.timeout = std::chrono::seconds(60)}, body);
  } catch (const RankFailure& failure) {
    return failure.what();
  }
  return "nothing was thrown";
}

at::ScalarType another_type_on_rank_1(const World& world) {
  return world.rank() == 1 ? at::kFloat : at::kDouble;
}

TEST(TensorsThatDiffer, RanksThatRedistributeDifferentTypesAreTold) {
  const std::string message = message_of_run([](World& world) {
    const Mesh mesh = *Mesh::contiguous({{"a", 2}});
    const Layout from = *Layout::create(mesh.grid(), {4}, {AxisState::partial()});
    const Layout to = *Layout::create(mesh.grid(), {4}, {AxisState::replicated()});
    (void)redistribute(random_tensor({4}, 1).to(another_type_on_rank_1(world)), from, to,
                       *MeshGroups::create(world, mesh));
  });
  EXPECT_NE(message.find("disagree"), std::string::npos) << message;
  EXPECT_NE(message.find("4 fp32"), std::string::npos) << message;
  EXPECT_NE(message.find("4 fp64"), std::string::npos) << message;
}

TEST(TensorsThatDiffer, RanksThatSendRowsOfDifferentTypesAreTold) {
  const std::string message = message_of_run([](World& world) {
    const at::ScalarType type = another_type_on_rank_1(world);
    const at::Tensor rows = world.rank() == 0 ? random_tensor({2, 2}, 1).to(type) : at::Tensor();
    (void)start_rows(world.all(), plan_own_route({{0, 1}, {}}, {{}, {0, 1}}, world.rank()), rows, 2, type).wait();
  });
  EXPECT_NE(message.find("4 fp32"), std::string::npos) << message;
  EXPECT_NE(message.find("4 fp64"), std::string::npos) << message;
}

TEST(TensorsThatDiffer, AWrongShapeOnOneRankEndsTheRunWithItsMessage) {
  const std::string message = message_of_run([](World& world) {
    const Mesh mesh = *Mesh::contiguous({{"a", 2}});
    const Layout from = *Layout::create(mesh.grid(), {4}, {AxisState::shard(0)});
    const Layout to = *Layout::create(mesh.grid(), {4}, {AxisState::replicated()});
    (void)redistribute(random_tensor({world.rank() == 1 ? 3 : 2}, 1), from, to, *MeshGroups::create(world, mesh));
  });
  EXPECT_NE(message.find("the tensor is [3], expected [2]"), std::string::npos) << message;
}

}  // namespace
}  // namespace weft
