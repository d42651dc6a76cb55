#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// Canonical composition, or what also gives compatible characters up.
enum class NormalForm { kNfc, kNfkc };

/// Where a text and its normal form have a border in common.
struct NormalBorder {
  size_t before = 0;  ///< bytes of the text
  size_t after = 0;   ///< bytes of its normal form
};

/// A valid text in a normal form. `changed` is false where it is the same; then `text` is empty.
struct Normalized {
  bool changed = false;
  std::string text;
  std::vector<NormalBorder> borders;  ///< ascending, around every part that was looked at
};

Normalized normalize(std::string_view text, NormalForm form);

}  // namespace weft
