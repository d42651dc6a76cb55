#include "weft/prepare/power_spectrum.h"

#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "weft/prepare/wide_vectors.h"

// Even samples are taken as real parts and odd ones as imaginary parts of 200 complex numbers, whose transform is made
// by Stockham's method with radices 5, 5, 4 and 2; no frame's rounding touches another frame.
// Everything that passes vectors is inlined, so no call depends on how.
#pragma GCC diagnostic ignored "-Wpsabi"
#define WEFT_INLINE [[gnu::always_inline]] inline

namespace weft {
namespace {

constexpr int64_t kHalf = PowerSpectrum::kSize / 2;
constexpr int64_t kLanes = PowerSpectrum::kLanes;
constexpr int64_t kComplex = 2 * kLanes;  ///< floats of one number of every lane: real parts, then imaginary

/// A complex number of every lane.
struct Number {
  Floats8 re, im;
};

/// One for all lanes.
struct Factor {
  float re, im;
};

WEFT_INLINE Number operator+(const Number& a, const Number& b) {
  return {a.re + b.re, a.im + b.im};
}
WEFT_INLINE Number operator-(const Number& a, const Number& b) {
  return {a.re - b.re, a.im - b.im};
}
WEFT_INLINE Number operator*(float s, const Number& a) {
  return {s * a.re, s * a.im};
}
WEFT_INLINE Number operator*(const Factor& a, const Number& b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
/// a / i.
WEFT_INLINE Number turned(const Number& a) {
  return {a.im, -a.re};
}

WEFT_INLINE void get(const float* from, Number& to) {
  std::memcpy(&to.re, from, sizeof to.re);
  std::memcpy(&to.im, from + kLanes, sizeof to.im);
}
WEFT_INLINE void put(float* to, const Number& value) {
  std::memcpy(to, &value.re, sizeof value.re);
  std::memcpy(to + kLanes, &value.im, sizeof value.im);
}

template <int kRadix>
WEFT_INLINE void transform(const Number (&a)[kRadix], Number (&b)[kRadix]) {
  if constexpr (kRadix == 2) {
    b[0] = a[0] + a[1];
    b[1] = a[0] - a[1];
  } else if constexpr (kRadix == 4) {
    const Number s = a[0] + a[2], d = a[0] - a[2], t = a[1] + a[3], e = turned(a[1] - a[3]);
    b[0] = s + t;
    b[1] = d + e;
    b[2] = s - t;
    b[3] = d - e;
  } else {
    constexpr float c1 = 0.30901699437494745F, c2 = -0.8090169943749475F;
    constexpr float s1 = 0.9510565162951535F, s2 = 0.5877852522924731F;
    const Number p = a[1] + a[4], q = a[2] + a[3], m = a[1] - a[4], n = a[2] - a[3];
    const Number u = a[0] + c1 * p + c2 * q, v = a[0] + c2 * p + c1 * q;
    const Number x = turned(s1 * m + s2 * n), y = turned(s2 * m - s1 * n);
    b[0] = a[0] + p + q;
    b[1] = u + x;
    b[2] = v + y;
    b[3] = v - y;
    b[4] = u - x;
  }
}

template <int kRadix>
WEFT_INLINE void run_stage(const float* factors, int64_t groups, int64_t stride, const float* __restrict from,
                           float* __restrict to) {
  for (int64_t p = 0; p < groups; ++p) {
    const float* factor = factors + p * (kRadix - 1) * 2;
    for (int64_t q = 0; q < stride; ++q) {
      const float* in = from + (q + stride * p) * kComplex;
      float* out = to + (q + stride * kRadix * p) * kComplex;
      Number a[kRadix], b[kRadix];
      for (int k = 0; k < kRadix; ++k) get(in + k * stride * groups * kComplex, a[k]);
      transform<kRadix>(a, b);
      put(out, b[0]);
      for (int k = 1; k < kRadix; ++k) {
        put(out + k * stride * kComplex, Factor{factor[2 * k - 2], factor[2 * k - 1]} * b[k]);
      }
    }
  }
}

WEFT_WIDE_PREPARE void run_stage_of_2(const float* factors, int64_t groups, int64_t stride, const float* from,
                                      float* to) {
  run_stage<2>(factors, groups, stride, from, to);
}
WEFT_WIDE_PREPARE void run_stage_of_4(const float* factors, int64_t groups, int64_t stride, const float* from,
                                      float* to) {
  run_stage<4>(factors, groups, stride, from, to);
}
WEFT_WIDE_PREPARE void run_stage_of_5(const float* factors, int64_t groups, int64_t stride, const float* from,
                                      float* to) {
  run_stage<5>(factors, groups, stride, from, to);
}

/// The spectrum of all samples from that of the even and odd ones taken together, squared.
WEFT_WIDE_PREPARE void join_halves(const float* ends, const float* __restrict from, float* __restrict power) {
  for (int64_t k = 0; k <= kHalf; ++k) {
    const float* z = from + k % kHalf * kComplex;
    const float* mirror = from + (kHalf - k) % kHalf * kComplex;
    Number a, b;
    get(z, a);
    get(mirror, b);
    b.im = -b.im;
    const Number even = 0.5F * (a + b), odd = 0.5F * turned(a - b);
    const Number x = even + Factor{ends[2 * k], ends[2 * k + 1]} * odd;
    const Floats8 squared = x.re * x.re + x.im * x.im;
    std::memcpy(power + k * kLanes, &squared, sizeof squared);
  }
}

Factor on_circle(int64_t part, int64_t whole) {
  const double angle = -2 * std::numbers::pi * static_cast<double>(part % whole) / static_cast<double>(whole);
  return {static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))};
}

}  // namespace

PowerSpectrum::PowerSpectrum() : samples_(kSize * kLanes), other_(kSize * kLanes), power_(kBins * kLanes) {
  int64_t size = kHalf, stride = 1;
  for (const int radix : {5, 5, 4, 2}) {
    Stage stage{.radix = radix, .groups = size / radix, .stride = stride};
    for (int64_t p = 0; p < stage.groups; ++p) {
      for (int k = 1; k < radix; ++k) {
        const Factor factor = on_circle(p * k, size);
        stage.factors.insert(stage.factors.end(), {factor.re, factor.im});
      }
    }
    stages_.push_back(std::move(stage));
    size /= radix;
    stride *= radix;
  }
  for (int64_t k = 0; k <= kHalf; ++k) {
    const Factor end = on_circle(k, kSize);
    ends_.insert(ends_.end(), {end.re, end.im});
  }
}

const float* PowerSpectrum::compute() {
  // [kSize, kLanes] is [kHalf, real or imaginary, kLanes] already.
  float *from = samples_.data(), *to = other_.data();
  for (const Stage& stage : stages_) {
    const auto run = stage.radix == 5 ? &run_stage_of_5 : stage.radix == 4 ? &run_stage_of_4 : &run_stage_of_2;
    run(stage.factors.data(), stage.groups, stage.stride, from, to);
    std::swap(from, to);
  }
  join_halves(ends_.data(), from, power_.data());
  return power_.data();
}

}  // namespace weft

#undef WEFT_INLINE
