#include "weft/checkpoint/stored_part.h"

#include <random>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "tests/support/draws.h"

namespace weft {
namespace {

std::mt19937_64& random_source() {
  static std::mt19937_64 random(11);
  return random;
}

int64_t below(int64_t n) {
  return static_cast<int64_t>(random_source()() % static_cast<uint64_t>(n));
}

ElementRange some_range(int64_t length) {
  const int64_t a = below(length + 1), b = below(length + 1);
  return {std::min(a, b), std::max(a, b)};
}

struct Part {
  WeightPiece piece;
  ElementRange elements;
};

Part some_part(const std::vector<int64_t>& shape) {
  Part part;
  part.piece.shape = shape;
  const ElementRange rows = some_range(shape[0]);
  part.piece.first_row = rows.begin;
  part.piece.num_rows = rows.size();
  if (shape.size() > 1 && below(2) == 0) {
    const ElementRange columns = some_range(shape[1]);
    part.piece.first_column = columns.begin;
    part.piece.num_columns = columns.size();
  }
  part.elements = below(3) == 0 ? ElementRange{0, part.piece.num_elements()} : some_range(part.piece.num_elements());
  return part;
}

/// The numbers, in the whole weight, of a part's elements: what held_part shows, flattened and cut.
at::Tensor places_of(const Part& part) {
  int64_t count = 1;
  for (const int64_t size : part.piece.shape) count *= size;
  const at::Tensor whole = at::arange(count, at::kLong).view(part.piece.shape);
  return held_part(part.piece, whole).reshape({-1}).narrow(0, part.elements.begin, part.elements.size()).clone();
}

std::vector<int64_t> some_shape() {
  std::vector<int64_t> shape = {1 + below(6)};
  for (int64_t dims = below(3); dims > 0; --dims) shape.push_back(1 + below(5));
  return shape;
}

TEST(StoredPart, BoxesHoldEveryElementOnce) {
  for (int round = 0; round < draws(3000); ++round) {
    const Part part = some_part(some_shape());
    const at::Tensor expected = places_of(part);
    at::Tensor found = at::full({expected.numel()}, -1, at::kLong);
    const std::vector<PartBox> boxes = boxes_of(part.piece, part.elements);
    EXPECT_LE(boxes.size(), 3U);
    for (const PartBox& box : boxes) {
      for (int64_t row = 0; row < box.rows.size(); ++row) {
        for (int64_t column = 0; column < box.columns.size(); ++column) {
          at::Tensor place = found[box.first + row * box.row_stride + column];
          ASSERT_EQ(place.item<int64_t>(), -1);
          place.fill_((box.rows.begin + row) * part.piece.row_elements() + box.columns.begin + column);
        }
      }
    }
    ASSERT_TRUE(found.equal(expected));
  }
}

TEST(StoredPart, WhatIsMissingIsTakenFromWhoeverHasIt) {
  for (int round = 0; round < draws(3000); ++round) {
    const std::vector<int64_t> shape = some_shape();
    const Part wanted = some_part(shape);
    const at::Tensor expected = places_of(wanted);
    at::Tensor found = at::full({expected.numel()}, -1, at::kLong);
    at::Tensor is_offered = at::full({expected.numel()}, 0, at::kLong);
    std::vector<PartBox> missing = boxes_of(wanted.piece, wanted.elements);
    int64_t num_copied = 0;
    for (int sources = 0; sources < 4; ++sources) {
      const Part source = some_part(shape);
      const at::Tensor from = places_of(source);
      for (const BoxCopy& copy : take_common(missing, boxes_of(source.piece, source.elements))) {
        copy_box(copy, found, from);
        num_copied += copy.num_rows * copy.num_columns;
      }
      for (int64_t i = 0; i < from.numel(); ++i) is_offered.masked_fill_(expected.eq(from[i]), 1);
    }
    // Exactly what was offered is there, each element copied once, and the rest is still missing.
    const int64_t num_offered = is_offered.sum().item<int64_t>();
    ASSERT_TRUE(found.equal(expected.masked_fill(is_offered.eq(0), -1)));
    ASSERT_EQ(num_copied, num_offered);
    int64_t num_missing = 0;
    for (const PartBox& box : missing) num_missing += box.rows.size() * box.columns.size();
    ASSERT_EQ(num_missing, expected.numel() - num_offered);
  }
}

}  // namespace
}  // namespace weft
