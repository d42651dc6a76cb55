#include "weft/tensor/rows.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "tests/support/comm/fake_world.h"
#include "weft/tensor/row_gradients.h"
#include "weft/tensor/tensor_bridge.h"

namespace weft::rows_test {
namespace {

const AxisGrid kLine = *AxisGrid::create({{"dp", 3}});

Layout rows_of(const std::vector<int64_t>& sizes) {
  int64_t sum = 0;
  for (const int64_t size : sizes) sum += size;
  return *Layout::create(kLine, {sum, 2}, {AxisState::shard(0)}, {{0, sizes}});
}

RowGradients gradients_of(const Layout& layout, int64_t position, std::vector<Range> parts) {
  return RowGradients({.layout = layout,
                       .rank = 7,
                       .position = position,
                       .dim = 0,
                       .parts = std::move(parts),
                       .options = at::TensorOptions().dtype(at::kDouble)});
}

at::Tensor rows_with(double value, int64_t num_rows) {
  return at::full({num_rows, 2}, value, at::TensorOptions().dtype(at::kDouble));
}

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Rows, PartsHaveTheRowsOfTheirSamples) {
  EXPECT_EQ(rows_of_parts(std::vector<int64_t>{4, 0, 7, 1}, std::vector<int64_t>{2, 0, 2}),
            (std::vector<int64_t>{4, 0, 8}));
  EXPECT_NE(refusal([] {
              rows_of_parts(std::vector<int64_t>{4, 0}, std::vector<int64_t>{1});
            }).find("expected all 2"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              rows_of_parts(std::vector<int64_t>{4, 0}, std::vector<int64_t>{1, 2});
            }).find("part 1 has 2 samples, expected 0 to 1"),
            std::string::npos);
}

TEST(Rows, SomeOfTheRowsStayWithTheirRanks) {
  const Layout layout = rows_of({4, 0, 6});
  const Layout middle = rows_layout(layout, 0, {3, 8});
  EXPECT_EQ(middle, rows_of({1, 0, 4}));
  EXPECT_EQ(local_rows(layout, 0, {3, 8}, 0), (Range{3, 4}));
  EXPECT_EQ(local_rows(layout, 0, {3, 8}, 1).size(), 0);
  EXPECT_EQ(local_rows(layout, 0, {3, 8}, 2), (Range{0, 4}));
  EXPECT_NE(refusal([&] { (void)rows_layout(layout, 0, {3, 11}); }).find("rows 3 to 11"), std::string::npos);
}

TEST(RowGradients, AreCompleteWhenEveryPartHasComeInAnyOrder) {
  const Layout layout = rows_of({4, 0, 6});
  RowGradients gradients = gradients_of(layout, 2, {{0, 3}, {3, 6}, {6, 9}});
  gradients.add(2, rows_with(3, 3));
  gradients.add(0, rows_with(1, 0));
  EXPECT_EQ(gradients.num_missing(), 1);
  EXPECT_FALSE(gradients.is_complete());
  EXPECT_EQ(refusal([&] { (void)gradients.take(); }),
            "rank 7, gradient of a macro batch of 3 parts: parts 1 are missing, expected all");
  gradients.add(1, rows_with(2, 2));
  ASSERT_TRUE(gradients.is_complete());
  const at::Tensor sum = gradients.take();
  // Rows 4 to 9 of the macro batch; nobody uses the last.
  EXPECT_TRUE(sum.equal(at::cat({rows_with(2, 2), rows_with(3, 3), rows_with(0, 1)})));
  EXPECT_NE(refusal([&] { (void)gradients.take(); }).find("it was taken before"), std::string::npos);
}

TEST(RowGradients, RowsThatSeveralPartsUseAreSummedWithoutTouchingWhatCame) {
  RowGradients gradients = gradients_of(rows_of({2, 1, 1}), 0, {{0, 4}, {1, 2}});
  const at::Tensor first = rows_with(1, 2);
  gradients.add(0, first);
  gradients.add(1, rows_with(5, 1));
  EXPECT_TRUE(gradients.take().equal(at::cat({rows_with(1, 1), rows_with(6, 1)})));
  EXPECT_TRUE(first.equal(rows_with(1, 2)));
}

TEST(RowGradients, ARankWithoutRowsIsCompleteLikeAnyOther) {
  RowGradients gradients = gradients_of(rows_of({4, 0, 6}), 1, {{0, 10}});
  gradients.add(0, rows_with(1, 0));
  EXPECT_EQ(gradients.take().sizes(), (at::IntArrayRef{0, 2}));
}

TEST(RowGradients, WrongPartsAreRefused) {
  RowGradients gradients = gradients_of(rows_of({4, 0, 6}), 0, {{0, 3}, {3, 10}});
  const std::string start = "rank 7, gradient of part 0 of 2 of a macro batch: ";
  EXPECT_EQ(refusal([&] { gradients.add(0, rows_with(1, 4)); }), start + "the tensor is [4, 2], expected [3, 2]");
  EXPECT_EQ(refusal([&] { gradients.add(0, rows_with(1, 3).to(at::kFloat)); }),
            start + "the tensor is Float, expected Double");
  EXPECT_EQ(gradients.num_missing(), 2);
  gradients.add(0, rows_with(1, 3));
  EXPECT_EQ(refusal([&] { gradients.add(0, rows_with(1, 3)); }),
            start + "it has come before, expected every part once");
  EXPECT_NE(refusal([&] { gradients.add(2, rows_with(1, 3)); }).find("expected parts 0 to 1"), std::string::npos);
  EXPECT_NE(refusal([&] { gradients_of(rows_of({4, 0, 6}), 0, {{0, 11}}); }).find("rows 0 to 11"), std::string::npos);
}

TEST(BridgeOnAFake, ARankOf512SendsExactlyThePlannedMessages) {
  const Mesh encoder = *Mesh::contiguous({{"dp", 512}});
  const Mesh llm = *Mesh::contiguous({{"tp", 8}, {"dp", 8}, {"pp", 8}});
  const Mesh first_stage = llm.sub_mesh(std::vector<std::pair<size_t, int64_t>>{{2, 0}});
  const Layout from = *Layout::create(encoder.grid(), {3000, 16}, {AxisState::shard(0)});
  const Layout to =
      *Layout::create(first_stage.grid(), {3000, 16}, {AxisState::replicated_partial_grad(), AxisState::shard(0)});
  const Route route = plan_route(encoder, from, first_stage, to);
  for (const int64_t rank : {0, 9, 63, 64, 300, 511}) {
    FakeWorld fake({.rank = rank, .size = 512});
    const BridgeGroups groups = *BridgeGroups::create(fake.world(), encoder, first_stage);
    const TensorBridge bridge(groups, from, to, {.type = at::kBFloat16});
    (void)bridge.forward(at::zeros(from.local_shape(rank), at::TensorOptions().dtype(at::kBFloat16)));
    std::vector<std::pair<int64_t, int64_t>> sent, planned;
    for (const FakeCall& call : fake.calls()) {
      for (const SentBytes& bytes : call.sent) sent.emplace_back(bytes.to_rank, bytes.bytes);
    }
    Traffic traffic;
    for (const Message& message : route.messages) {
      if (message.from_rank == rank) planned.emplace_back(message.to_rank, 2 * num_elements(message.box));
      if (message.to_rank == rank) traffic.received += 2 * num_elements(message.box);
    }
    EXPECT_EQ(sent, planned) << rank;
    EXPECT_EQ(fake.total_bytes().received, traffic.received) << rank;
  }
}

}  // namespace
}  // namespace weft::rows_test
