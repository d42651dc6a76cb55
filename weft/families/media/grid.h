#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "weft/base/result.h"

namespace weft {

/// An image or a video as the vision encoder sees it: t frames (of temporal patches) of h rows of w patches.
struct Grid {
  int64_t t = 1;
  int64_t h = 0;
  int64_t w = 0;

  bool operator==(const Grid&) const = default;
};

/// The most patches that attention's 32-bit segment borders can count.
inline constexpr int64_t kMaxPatches = INT32_MAX;

int64_t num_patches(const Grid& grid);

/// What the encoder hands to the language model: one token for each block of `merge_size` by `merge_size` patches.
int64_t num_merged_tokens(const Grid& grid, int64_t merge_size);

/// "1 x 8 x 12".
std::string to_string(const Grid& grid);

/// Every side positive, h and w divisible by `merge_size`, and no more than kMaxPatches patches together. Returns their
/// number. `field` is what the error calls the list.
Result<int64_t> check_grids(std::span<const Grid> grids, int64_t merge_size, std::string_view field);

}  // namespace weft
