#include "weft/spec/segments.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

/// Counts pairs one by one, from the definition of each mask.
double brute_force_pairs(const Attention& attention, int length) {
  int pairs = 0;
  for (int query = 0; query < length; ++query) {
    for (int key = 0; key < length; ++key) {
      bool sees = false;
      switch (attention.mask) {
        case Mask::kFull:
          sees = true;
          break;
        case Mask::kCausal:
          sees = key <= query;
          break;
        case Mask::kSliding:
          sees = key <= query && query - key < attention.window;
          break;
        case Mask::kWindowed:
          sees = query / attention.window == key / attention.window;
          break;
      }
      pairs += sees ? 1 : 0;
    }
  }
  return pairs;
}

TEST(Segments, PairsEqualABruteForceCountForEveryMask) {
  for (const Mask mask : {Mask::kFull, Mask::kCausal, Mask::kSliding, Mask::kWindowed}) {
    for (const int64_t window : {1, 2, 5, 16, 100}) {
      const Attention attention{.heads = 1, .kv_heads = 1, .head_dim = 2, .mask = mask, .window = window};
      for (int length = 0; length <= 40; ++length) {
        EXPECT_EQ(num_attention_pairs(attention, {{static_cast<double>(length), 1.0}}),
                  brute_force_pairs(attention, length))
            << "mask " << static_cast<int>(mask) << ", window " << window << ", length " << length;
      }
    }
  }
}

TEST(Segments, SequencesDoNotSeeEachOther) {
  const Attention attention{.heads = 1, .kv_heads = 1, .head_dim = 2, .mask = Mask::kFull};
  EXPECT_EQ(num_attention_pairs(attention, {{10, 2}, {3, 1}}), 2 * 100 + 9);
  EXPECT_EQ(num_tokens({{10, 2}, {3, 1}}), 23);
  EXPECT_EQ(num_tokens({}), 0);
}

}  // namespace
}  // namespace weft
