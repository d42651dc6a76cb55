#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>
#include <vector>

#include "weft/prepare/pixels.h"

namespace weft {

/// The picture of tests/parity/make_media_fixtures.py: noise, slopes and edges.
inline Pixels drawn_picture(int64_t height, int64_t width, uint64_t seed = 0) {
  Pixels picture{.height = height, .width = width};
  for (uint64_t y = 0; y < static_cast<uint64_t>(height); ++y) {
    for (uint64_t x = 0; x < static_cast<uint64_t>(width); ++x) {
      for (uint64_t c = 0; c < 3; ++c) {
        uint64_t noise = (x * 2654435761 + y * 40503 + c * 97 + seed * 131) % 65521;
        noise = noise * noise % 65521;
        const uint64_t kind = (x / 16 + y / 16) % 3;
        const uint64_t value = kind == 0 ? noise : kind == 1 ? x * 5 + y * 3 + c * 60 : (x / 7 + y / 5 + c) % 2 * 255;
        picture.rgb.push_back(static_cast<uint8_t>(value % 256));
      }
    }
  }
  return picture;
}

/// The sounds of the same script.
inline std::vector<float> drawn_sound(int64_t count, std::string_view kind, double rate_hz = 16000) {
  std::vector<float> sound(static_cast<size_t>(count), 0);
  for (size_t i = 0; i < sound.size(); ++i) {
    const double t = static_cast<double>(i) / rate_hz;
    uint64_t n = (i * 2654435761 + 12345) % 65521;
    const auto noise = static_cast<float>(static_cast<double>(n * n % 65521) / 65521 - 0.5);
    if (kind == "chirp") sound[i] = static_cast<float>(0.5 * std::sin(2 * std::numbers::pi * (200 * t + 900 * t * t)));
    if (kind == "noise") sound[i] = noise;
    if (kind == "click") sound[i] = i + 1 == sound.size() ? 0.9F : 0;
    if (kind == "quiet") {
      sound[i] = static_cast<float>(1e-4 * std::sin(2 * std::numbers::pi * 440 * t) + 3e-6F * noise);
    }
  }
  return sound;
}

/// zlib's crc32.
template <typename T>
uint32_t checksum(const std::vector<T>& values) {
  static const std::vector<uint32_t> table = [] {
    std::vector<uint32_t> made(256);
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value & 1 ? 0xEDB88320u ^ value >> 1 : value >> 1;
      made[i] = value;
    }
    return made;
  }();
  uint32_t sum = 0xFFFFFFFFu;
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  for (size_t i = 0; i < values.size() * sizeof(T); ++i) sum = table[(sum ^ bytes[i]) & 0xFF] ^ sum >> 8;
  return ~sum;
}

}  // namespace weft
