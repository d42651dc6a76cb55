#pragma once

#include <cstdint>

namespace weft {

/// What a model wants of its samples beyond a workload's lengths. Tokens that it does not have are -1.
struct SampleForm {
  struct Brackets {
    int64_t begin = -1;
    int64_t inside = -1;  ///< repeated, once for each row that the encoder gives
    int64_t end = -1;
  };

  int64_t vocabulary = 0;
  int64_t max_tokens = 0;  ///< of a sample; 0: as many as one likes
  Brackets image;
  Brackets audio;
  int64_t other_special = -1;  ///< one more token that text does not use: that of videos
  int64_t merge_size = 1;      ///< patches in a row that become one embedding, and rows of patches
  int64_t tile_side = 0;       ///< patches along each side of an image; 0: images are of any size
  int64_t patch_elements = 0;
  int64_t mel_bins = 0;
};

}  // namespace weft
