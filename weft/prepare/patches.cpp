#include "weft/prepare/patches.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "weft/base/check.h"
#include "weft/prepare/frame_resizer.h"
#include "weft/prepare/wide_vectors.h"

namespace weft {
namespace {

/// A byte x of a colour becomes (x - mean) / deviation, all three float32 as transformers fuses them: the division is
/// part of the rule, a product with the reciprocal rounds otherwise.
struct Normalization {
  std::array<float, 3> mean;
  std::array<float, 3> deviation;

  explicit Normalization(const PatchRules& rules) {
    for (size_t c = 0; c < 3; ++c) {
      const double scale = 1.0 / rules.rescale;
      mean[c] = static_cast<float>(rules.mean[c]) * static_cast<float>(scale);
      deviation[c] = static_cast<float>(rules.deviation[c]) * static_cast<float>(scale);
    }
  }
};

/// Rows of pixels from which one row of merge blocks is cut, of each frame of a temporal patch.
struct Band {
  std::vector<const uint8_t*> frames;  ///< each [row, colour, stride]
  int64_t stride = 0;
};

template <int64_t kPatch>
[[gnu::always_inline]] inline void write_row(const uint8_t* from, float mean, float deviation, int64_t patch,
                                             float* to) {
  const int64_t size = kPatch > 0 ? kPatch : patch;
  for (int64_t x = 0; x < size; ++x) to[x] = (static_cast<float>(from[x]) - mean) / deviation;
}

template <int64_t kPatch>
[[gnu::always_inline]] inline void write_patch(const Band& band, const PatchRules& rules, const Normalization& normal,
                                               int64_t first_row, int64_t first_column, float* to) {
  const int64_t patch = kPatch > 0 ? kPatch : rules.patch;
  for (int64_t c = 0; c < 3; ++c) {
    const float mean = normal.mean[static_cast<size_t>(c)], deviation = normal.deviation[static_cast<size_t>(c)];
    const uint8_t* previous = nullptr;
    for (int64_t t = 0; t < rules.temporal_patch; ++t, to += patch * patch) {
      const uint8_t* frame = band.frames[static_cast<size_t>(t)];
      if (frame == previous) {
        std::memcpy(to, to - patch * patch, static_cast<size_t>(patch * patch) * sizeof(float));
        continue;
      }
      previous = frame;
      const uint8_t* from = frame + (first_row * 3 + c) * band.stride + first_column;
      for (int64_t y = 0; y < patch; ++y, from += 3 * band.stride) {
        write_row<kPatch>(from, mean, deviation, patch, to + y * patch);
      }
    }
  }
}

/// Patches [begin, end) of one row of merge blocks.
template <int64_t kPatch>
[[gnu::always_inline]] inline void write_patches(const Band& band, const PatchRules& rules, const Normalization& normal,
                                                 PatchRange range, float* to) {
  const int64_t merged = rules.merge * rules.merge;
  for (int64_t i = range.begin; i < range.end; ++i, to += rules.values_per_patch()) {
    const int64_t block = i / merged, row = i % merged / rules.merge, column = i % rules.merge;
    write_patch<kPatch>(band, rules, normal, row * rules.patch, (block * rules.merge + column) * rules.patch, to);
  }
}

WEFT_WIDE_PREPARE void write_patches_of_14(const Band& band, const PatchRules& rules, const Normalization& normal,
                                           PatchRange range, float* to) {
  write_patches<14>(band, rules, normal, range, to);
}

WEFT_WIDE_PREPARE void write_patches_of_any(const Band& band, const PatchRules& rules, const Normalization& normal,
                                            PatchRange range, float* to) {
  write_patches<0>(band, rules, normal, range, to);
}

}  // namespace

void prepare_patches(std::span<const Pixels* const> frames, const PatchRules& rules, PixelSize size, PatchRange range,
                     std::span<float> to) {
  WEFT_CHECK(!frames.empty(), "a picture without a frame");
  const PatchGrid grid = patch_grid(rules, size, std::ssize(frames));
  WEFT_CHECK(0 <= range.begin && range.begin <= range.end && range.end <= grid.num_patches(), "patches {} to {} of {}",
             range.begin, range.end, grid.num_patches());
  WEFT_CHECK(std::ssize(to) == range.size() * rules.values_per_patch(), "{} values for {} patches", to.size(),
             range.size());
  const Normalization normal(rules);
  const int64_t per_band = rules.merge * grid.w, per_time = grid.h * grid.w;
  const int64_t band_rows = rules.factor();
  const PixelSize old_size{frames[0]->height, frames[0]->width};
  // Frames of a temporal patch; one where the last frame, or an image, is repeated.
  std::vector<FrameResizer> resizers;
  std::vector<std::vector<uint8_t>> bands;
  float* out = to.data();
  for (int64_t t = 0; t < grid.t; ++t) {
    const int64_t begin = std::max(range.begin - t * per_time, int64_t{0});
    const int64_t end = std::min(range.end - t * per_time, per_time);
    if (begin >= end) continue;
    const int64_t first_frame = t * rules.temporal_patch;
    const int64_t num_frames = std::min(rules.temporal_patch, std::ssize(frames) - first_frame);
    const int64_t first_band = begin / per_band, end_band = (end + per_band - 1) / per_band;
    while (std::ssize(resizers) < num_frames) {
      resizers.emplace_back(old_size, size);
      bands.emplace_back(static_cast<size_t>(band_rows * 3 * resizers.back().row_stride()));
    }
    for (int64_t f = 0; f < num_frames; ++f) {
      resizers[static_cast<size_t>(f)].load(*frames[static_cast<size_t>(first_frame + f)], first_band * band_rows,
                                            end_band * band_rows);
    }
    Band band{.stride = resizers[0].row_stride()};
    for (int64_t f = 0; f < rules.temporal_patch; ++f) {
      band.frames.push_back(bands[static_cast<size_t>(std::min(f, num_frames - 1))].data());
    }
    for (int64_t b = first_band; b < end_band; ++b) {
      for (int64_t f = 0; f < num_frames; ++f) {
        resizers[static_cast<size_t>(f)].rows(b * band_rows, (b + 1) * band_rows, bands[static_cast<size_t>(f)].data());
      }
      const PatchRange part{std::max(begin - b * per_band, int64_t{0}), std::min(end - b * per_band, per_band)};
      const auto write = rules.patch == 14 ? &write_patches_of_14 : &write_patches_of_any;
      write(band, rules, normal, part, out);
      out += part.size() * rules.values_per_patch();
    }
  }
}

}  // namespace weft
