#include "weft/prepare/frame_resizer.h"

#include <algorithm>
#include <cstring>

#include "weft/base/check.h"
#include "weft/prepare/wide_vectors.h"

// Across a row, the old pixels of a sum stand at places that differ from one new pixel to the next, which vectors do
// not like. So sixteen rows are laid side by side ([old pixel, colour, row]): there, every step of a sum is one weight
// times sixteen neighbouring bytes. Sums are of 32 bits and exact.
namespace weft {
namespace {

constexpr int64_t kStrip = 16;
/// The compilers' own vector (GCC and clang), for exchanging bytes.
using Bytes16 = uint8_t __attribute__((vector_size(16)));

inline void load(Bytes16& to, const uint8_t* from) {
  std::memcpy(&to, from, sizeof to);
}

/// 16 by 16 bytes, with rows and columns exchanged: four times, the halves of the list are interleaved.
[[gnu::always_inline]] inline void transpose(const uint8_t* const* from, uint8_t* to, int64_t to_stride) {
  Bytes16 a[16], b[16];
  for (int i = 0; i < 16; ++i) load(a[i], from[i]);
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 8; ++i) {
      b[2 * i] = __builtin_shufflevector(a[i], a[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      b[2 * i + 1] =
          __builtin_shufflevector(a[i], a[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    for (int i = 0; i < 16; ++i) a[i] = b[i];
  }
  for (int i = 0; i < 16; ++i) std::memcpy(to + i * to_stride, &a[i], sizeof a[i]);
}

/// Sixteen rows of `width` bytes (whole blocks, then what is left) as [byte, row].
WEFT_WIDE_PREPARE void lay_side_by_side(const uint8_t* const* rows, int64_t width, uint8_t* to) {
  const uint8_t* from[kStrip];
  int64_t x = 0;
  for (; x + kStrip <= width; x += kStrip) {
    for (int64_t i = 0; i < kStrip; ++i) from[i] = rows[i] + x;
    transpose(from, to + x * kStrip, kStrip);
  }
  for (; x < width; ++x) {
    for (int64_t i = 0; i < kStrip; ++i) to[x * kStrip + i] = rows[i][x];
  }
}

/// Sums of up to this many products are made without going through memory.
constexpr int32_t kFewProducts = 6;

inline uint8_t to_byte(int32_t sum, int shift) {
  return static_cast<uint8_t>(std::clamp(sum >> shift, 0, 255));
}

/// to[i] = the sum of weights[k] * from[k * step + i], over kCount products, for i below `size`.
template <int32_t kCount>
[[gnu::always_inline]] inline void sum_few(const int32_t* weights, int shift, const uint8_t* __restrict from,
                                           int64_t step, int64_t size, uint8_t* __restrict to) {
  const int32_t half = 1 << (shift - 1);
  for (int64_t i = 0; i < size; ++i) {
    int32_t sum = half;
    for (int32_t k = 0; k < kCount; ++k) sum += weights[k] * from[k * step + i];
    to[i] = to_byte(sum, shift);
  }
}

[[gnu::always_inline]] inline void sum_many(const int32_t* weights, int32_t count, int shift,
                                            const uint8_t* __restrict from, int64_t step, int64_t size,
                                            uint8_t* __restrict to) {
  constexpr int64_t kPiece = 48;
  int32_t sums[kPiece];
  for (int64_t begin = 0; begin < size; begin += kPiece) {
    const int64_t end = std::min(size - begin, kPiece);
    std::fill_n(sums, kPiece, 1 << (shift - 1));
    int32_t k = 0;
    for (; k + 4 <= count; k += 4) {
      const uint8_t* a = from + k * step + begin;
      for (int64_t i = 0; i < end; ++i) {
        sums[i] += weights[k] * a[i] + weights[k + 1] * a[step + i] + weights[k + 2] * a[2 * step + i] +
                   weights[k + 3] * a[3 * step + i];
      }
    }
    for (; k < count; ++k) {
      for (int64_t i = 0; i < end; ++i) sums[i] += weights[k] * from[k * step + begin + i];
    }
    for (int64_t i = 0; i < end; ++i) to[begin + i] = to_byte(sums[i], shift);
  }
}

[[gnu::always_inline]] inline void sum_products(const int32_t* weights, int32_t count, int shift, const uint8_t* from,
                                                int64_t step, int64_t size, uint8_t* to) {
  static_assert(kFewProducts == 6);
  switch (count) {
    case 1:
      return sum_few<1>(weights, shift, from, step, size, to);
    case 2:
      return sum_few<2>(weights, shift, from, step, size, to);
    case 3:
      return sum_few<3>(weights, shift, from, step, size, to);
    case 4:
      return sum_few<4>(weights, shift, from, step, size, to);
    case 5:
      return sum_few<5>(weights, shift, from, step, size, to);
    case 6:
      return sum_few<6>(weights, shift, from, step, size, to);
    default:
      return sum_many(weights, count, shift, from, step, size, to);
  }
}

/// From [old pixel, colour, row] to [new pixel, colour, row].
WEFT_WIDE_PREPARE void sum_across(const ResizeWeights& across, const uint8_t* strip, uint8_t* to) {
  constexpr int64_t kPixel = 3 * kStrip;
  for (int64_t x = 0; x < across.new_size; ++x) {
    const auto pixel = static_cast<size_t>(x);
    sum_products(across.of(x), across.count[pixel], across.precision_bits, strip + across.first[pixel] * kPixel, kPixel,
                 kPixel, to + x * kPixel);
  }
}

/// From [pixel (padded), colour, row] to [row, colour, pixel (padded)], the first `num_rows` rows.
WEFT_WIDE_PREPARE void lay_in_rows(const uint8_t* strip, int64_t padded, int64_t num_rows, uint8_t* to) {
  uint8_t block[kStrip * kStrip];
  const uint8_t* from[kStrip];
  for (int64_t x = 0; x < padded; x += kStrip) {
    for (int64_t c = 0; c < 3; ++c) {
      for (int64_t i = 0; i < kStrip; ++i) from[i] = strip + ((x + i) * 3 + c) * kStrip;
      uint8_t* first = to + c * padded + x;
      if (num_rows == kStrip) {
        transpose(from, first, 3 * padded);
        continue;
      }
      transpose(from, block, kStrip);
      for (int64_t i = 0; i < num_rows; ++i) std::memcpy(first + i * 3 * padded, block + i * kStrip, kStrip);
    }
  }
}

/// One new row of `width` bytes from rows that are `width` apart.
WEFT_WIDE_PREPARE void sum_down(const int32_t* weights, int32_t count, int shift, const uint8_t* from, int64_t width,
                                uint8_t* to) {
  sum_products(weights, count, shift, from, width, width, to);
}

}  // namespace

FrameResizer::FrameResizer(PixelSize old_size, PixelSize new_size)
    : across_(bicubic_weights(old_size.width, new_size.width)),
      down_(bicubic_weights(old_size.height, new_size.height)),
      row_stride_((new_size.width + kStrip - 1) / kStrip * kStrip) {
  strip_.resize(static_cast<size_t>(old_size.width * 3 * kStrip));
  new_strip_.resize(static_cast<size_t>(row_stride_ * 3 * kStrip));
}

void FrameResizer::load(const Pixels& picture, int64_t first, int64_t end) {
  WEFT_CHECK(picture.width == across_.old_size && picture.height == down_.old_size, "a picture of another size");
  WEFT_CHECK(0 <= first && first < end && end <= down_.new_size, "rows {} to {} of {}", first, end, down_.new_size);
  int64_t first_old = down_.old_size, end_old = 0;
  for (int64_t y = first; y < end; ++y) {
    const int64_t begin = down_.first[static_cast<size_t>(y)];
    first_old = std::min(first_old, begin);
    end_old = std::max(end_old, begin + down_.count[static_cast<size_t>(y)]);
  }
  first_loaded_ = first_old;
  narrowed_.resize(static_cast<size_t>((end_old - first_old) * 3 * row_stride_));
  for (int64_t y = first_old; y < end_old; y += kStrip) {
    const int64_t num_rows = std::min(kStrip, end_old - y);
    const uint8_t* rows[kStrip];
    for (int64_t i = 0; i < kStrip; ++i) rows[i] = picture.row(std::min(y + i, end_old - 1));
    lay_side_by_side(rows, picture.width * 3, strip_.data());
    sum_across(across_, strip_.data(), new_strip_.data());
    lay_in_rows(new_strip_.data(), row_stride_, num_rows, narrowed_.data() + (y - first_old) * 3 * row_stride_);
  }
}

void FrameResizer::rows(int64_t first, int64_t end, uint8_t* to) const {
  const int64_t width = 3 * row_stride_;
  for (int64_t y = first; y < end; ++y, to += width) {
    const auto row = static_cast<size_t>(y);
    const int64_t begin = down_.first[row] - first_loaded_;
    WEFT_CHECK(begin >= 0 && (begin + down_.count[row]) * width <= std::ssize(narrowed_), "row {} is not loaded", y);
    sum_down(down_.of(y), down_.count[row], down_.precision_bits, narrowed_.data() + begin * width, width, to);
  }
}

Pixels resized(const Pixels& picture, PixelSize size) {
  FrameResizer resizer({picture.height, picture.width}, size);
  resizer.load(picture, 0, size.height);
  Pixels result{.height = size.height, .width = size.width};
  result.rgb.resize(static_cast<size_t>(size.height * size.width * 3));
  std::vector<uint8_t> planes(static_cast<size_t>(3 * resizer.row_stride()));
  for (int64_t y = 0; y < size.height; ++y) {
    resizer.rows(y, y + 1, planes.data());
    uint8_t* to = result.row(y);
    for (int64_t x = 0; x < size.width; ++x) {
      for (int64_t c = 0; c < 3; ++c) to[3 * x + c] = planes[static_cast<size_t>(c * resizer.row_stride() + x)];
    }
  }
  return result;
}

}  // namespace weft
