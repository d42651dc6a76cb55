#include "weft/weights/fresh_elements.h"

#include <algorithm>
#include <array>
#include <bit>

#include "weft/weights/philox.h"

// Processors with vectors of 256 bits get them. Without fused multiplication, which rounds otherwise: one seed is one
// model on all of them.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define WEFT_WIDE_VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define WEFT_WIDE_VECTORS
#endif

namespace weft {
namespace {

constexpr int64_t kBlocks = 32;
/// What is drawn at once, always from a multiple of itself on, so that an element comes from the same instructions
/// whatever its neighbours are needed for.
constexpr int64_t kStretch = 4 * kBlocks;

/// ln x for normal numbers x of (0, 1], to the last digits: x = m 2^e with m of [sqrt(1/2), sqrt(2)), and with
/// s = (m - 1) / (m + 1), ln m = 2 artanh s = 2 (s + s^3/3 + s^5/5 + ...), where |s| < 0.172.
inline float natural_logarithm(float x) {
  constexpr uint32_t kRootOfHalf = 0x3f3504f3;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto exponent = static_cast<int32_t>(bits - kRootOfHalf) >> 23;
  const float m = std::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23));
  const float s = (m - 1) / (m + 1);
  const float z = s * s;
  const float series = z * (1.0F / 3 + z * (1.0F / 5 + z * (1.0F / 7 + z * (1.0F / 9))));
  // ln 2 in two parts, of which the first times any exponent is exact.
  const auto e = static_cast<float>(exponent);
  return e * 0.693359375F + (2 * (s + s * series) + e * -2.12194440e-4F);
}

/// The square root of x of [0, 100], by Newton's steps towards 1 / sqrt(x) from a guess that halves the exponent. The
/// library's could set errno, which keeps it out of vectors.
inline float square_root(float x) {
  float reciprocal = std::bit_cast<float>(0x5f375a86 - (std::bit_cast<uint32_t>(x) >> 1));
#pragma GCC unroll 3
  for (int step = 0; step < 3; ++step) reciprocal *= 1.5F - 0.5F * x * reciprocal * reciprocal;
  return x * reciprocal;
}

struct Point {
  float x = 0;
  float y = 0;
};

/// The point of the unit circle at 2 pi turn / 2^32.
inline Point on_circle(uint32_t turn) {
  // The upper bits are the nearest quarter; the rest is an angle of [-pi/4, pi/4), whose sine and cosine are Taylor's.
  const uint32_t shifted = turn + 0x20000000;
  const auto rest = static_cast<int32_t>(turn - (shifted & 0xc0000000));
  const float a = static_cast<float>(rest) * 1.4629180792671596e-9F;  // pi / 2^31
  const float z = a * a;
  const float sine = a + a * z * (-1.0F / 6 + z * (1.0F / 120 + z * (-1.0F / 5040 + z * (1.0F / 362880))));
  const float cosine =
      1 - 0.5F * z + z * z * (1.0F / 24 + z * (-1.0F / 720 + z * (1.0F / 40320 + z * (-1.0F / 3628800))));
  // Odd quarters swap the two; the second and third turn x around, the third and fourth y.
  const uint32_t is_odd = 0U - ((shifted >> 30) & 1);
  const uint32_t sine_bits = std::bit_cast<uint32_t>(sine), cosine_bits = std::bit_cast<uint32_t>(cosine);
  const uint32_t x = (cosine_bits & ~is_odd) | (sine_bits & is_odd);
  const uint32_t y = (sine_bits & ~is_odd) | (cosine_bits & is_odd);
  const uint32_t x_sign = (shifted ^ (shifted << 1)) & 0x80000000;
  const uint32_t y_sign = shifted & 0x80000000;
  return {std::bit_cast<float>(x ^ x_sign), std::bit_cast<float>(y ^ y_sign)};
}

/// Two independent normal numbers of two uniform ones, after Box and Muller.
inline Point normal_pair(uint32_t length, uint32_t turn) {
  const float uniform = (static_cast<float>(length >> 1) + 1) * 0x1p-31F;  // of (0, 1]
  const float radius = square_root(-2 * natural_logarithm(uniform));
  const Point point = on_circle(turn);
  return {radius * point.x, radius * point.y};
}

WEFT_WIDE_VECTORS void draw_stretch(uint64_t key, uint64_t stretch, float deviation, float* to) {
  const std::array<uint32_t, 2> words = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  const uint64_t first = stretch * kBlocks;
  // kBlocks divides 2^32, so that a stretch's counters have one upper half.
  const auto low = static_cast<uint32_t>(first), high = static_cast<uint32_t>(first >> 32);
  std::array<std::array<uint32_t, kBlocks>, 4> bits;
  for (uint32_t i = 0; i < kBlocks; ++i) {
    const PhiloxBlock block = philox_4x32_10({low + i, high, 0, 0}, words);
    for (size_t word = 0; word < 4; ++word) bits[word][i] = block[word];
  }
  for (size_t pair = 0; pair < 2; ++pair) {
    float* x = to + 2 * static_cast<int64_t>(pair) * kBlocks;
    for (int64_t i = 0; i < kBlocks; ++i) {
      const Point normal =
          normal_pair(bits[2 * pair][static_cast<size_t>(i)], bits[2 * pair + 1][static_cast<size_t>(i)]);
      x[i] = deviation * normal.x;
      x[kBlocks + i] = deviation * normal.y;
    }
  }
}

}  // namespace

uint64_t fresh_weight_key(std::string_view name, uint64_t seed) {
  // FNV-1a, begun with the seed.
  uint64_t hash = 0xcbf29ce484222325u ^ (seed * 0x9e3779b97f4a7c15u);
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

void draw_fresh_elements(uint64_t key, int64_t first, float deviation, std::span<float> to) {
  std::array<float, kStretch> around;
  const int64_t end = first + std::ssize(to);
  for (int64_t at = first; at < end;) {
    const int64_t stretch = at / kStretch;
    const int64_t begin = at - stretch * kStretch;
    const int64_t count = std::min(kStretch - begin, end - at);
    float* here = to.data() + (at - first);
    if (count == kStretch) {
      draw_stretch(key, static_cast<uint64_t>(stretch), deviation, here);
    } else {
      draw_stretch(key, static_cast<uint64_t>(stretch), deviation, around.data());
      std::copy_n(around.data() + begin, count, here);
    }
    at += count;
  }
}

}  // namespace weft
