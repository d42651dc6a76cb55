#include "weft/tensor/row_places.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

at::Tensor numbered_rows() {
  return at::arange(12, at::kDouble).view({6, 2});
}

TEST(RowPlaces, ARunIsASliceOfTheSameMemory) {
  const at::Tensor rows = numbered_rows();
  const RowPlaces places({2, 3, 4}, at::kCPU);
  EXPECT_TRUE(places.is_run());
  const at::Tensor taken = places.take(rows);
  EXPECT_EQ(taken.data_ptr<double>(), rows.data_ptr<double>() + 4);
  EXPECT_EQ(taken.size(0), 3);
  const at::Tensor into = at::zeros({6, 2}, at::kDouble);
  places.put(taken, into);
  EXPECT_TRUE(into.narrow(0, 2, 3).equal(taken));
  EXPECT_EQ(into.sum().item<double>(), taken.sum().item<double>());
}

TEST(RowPlaces, OtherPlacesAreGatheredAndScattered) {
  const at::Tensor rows = numbered_rows();
  for (const std::vector<int64_t>& list : {std::vector<int64_t>{4, 3}, {0, 2}, {5, 0, 1}}) {
    const RowPlaces places(list, at::kCPU);
    EXPECT_FALSE(places.is_run());
    const at::Tensor taken = places.take(rows), into = at::zeros({6, 2}, at::kDouble);
    places.put(taken, into);
    for (size_t i = 0; i < list.size(); ++i) {
      EXPECT_TRUE(taken[static_cast<int64_t>(i)].equal(rows[list[i]]));
      EXPECT_TRUE(into[list[i]].equal(rows[list[i]]));
    }
    EXPECT_EQ(into.sum().item<double>(), taken.sum().item<double>());
  }
}

TEST(RowPlaces, NoneAreARunToo) {
  const RowPlaces none({}, at::kCPU);
  EXPECT_TRUE(none.is_run());
  EXPECT_EQ(none.take(numbered_rows()).size(0), 0);
  EXPECT_TRUE(none.are_all_of(0));
  EXPECT_FALSE(none.are_all_of(1));
  EXPECT_TRUE(RowPlaces({0, 1}, at::kCPU).are_all_of(2));
  EXPECT_FALSE(RowPlaces({1, 2}, at::kCPU).are_all_of(2));
}

}  // namespace
}  // namespace weft
