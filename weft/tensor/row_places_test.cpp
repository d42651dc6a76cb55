#include "weft/tensor/row_places.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

RowPlaces places_at(const std::vector<int64_t>& places) {
  std::vector<Range> ranges;
  for (const int64_t place : places) ranges.push_back({place, place + 1});
  return {ranges, at::kCPU};
}

at::Tensor numbered_rows() {
  return at::arange(12, at::kDouble).view({6, 2});
}

TEST(RowPlaces, ARunIsASliceOfTheSameMemory) {
  const at::Tensor rows = numbered_rows();
  const RowPlaces places = places_at({2, 3, 4});
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
    const RowPlaces places = places_at(list);
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
  const RowPlaces none = places_at({});
  EXPECT_TRUE(none.is_run());
  EXPECT_EQ(none.take(numbered_rows()).size(0), 0);
  EXPECT_TRUE(none.are_all_of(0));
  EXPECT_FALSE(none.are_all_of(1));
  EXPECT_TRUE(places_at({0, 1}).are_all_of(2));
  EXPECT_FALSE(places_at({1, 2}).are_all_of(2));
}

}  // namespace
}  // namespace weft
