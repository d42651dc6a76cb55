#include "weft/spec/segments.h"

#include <algorithm>
#include <cmath>

#include "weft/base/check.h"

namespace weft {
namespace {

double pairs_in_sequence(const Attention& attention, double length) {
  const auto window = static_cast<double>(attention.window);
  switch (attention.mask) {
    case Mask::kFull:
      return length * length;
    case Mask::kCausal:
      return length * (length + 1) / 2;
    case Mask::kSliding: {
      const double reach = std::min(length, window);
      return reach * (reach + 1) / 2 + (length - reach) * window;
    }
    case Mask::kWindowed: {
      const double full_windows = std::floor(length / window);
      const double rest = length - full_windows * window;
      return full_windows * window * window + rest * rest;
    }
  }
  WEFT_CHECK(false, "unknown mask");
}

}  // namespace

double num_tokens(const Segments& segments) {
  double tokens = 0;
  for (const Segment& segment : segments) tokens += segment.length * segment.count;
  return tokens;
}

double num_attention_pairs(const Attention& attention, const Segments& segments) {
  double pairs = 0;
  for (const Segment& segment : segments) pairs += segment.count * pairs_in_sequence(attention, segment.length);
  return pairs;
}

}  // namespace weft
