#pragma once

#include <vector>

#include "weft/program/op.h"

namespace weft {

/// `count` sequences of `length` tokens that attend only within themselves. Both may be fractional: an average
/// sample has, say, 1.7 images.
struct Segment {
  double length = 0;
  double count = 0;

  bool operator==(const Segment&) const = default;
};

/// What a module works on at once: packed sequences, without padding.
using Segments = std::vector<Segment>;

double num_tokens(const Segments& segments);

/// How many (query, key) pairs attention computes, summed over the sequences.
double num_attention_pairs(const Attention& attention, const Segments& segments);

}  // namespace weft
