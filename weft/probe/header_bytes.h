#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "weft/base/result.h"

namespace weft {

/// A media file's bytes, as far as a header asks for them. A byte that is not there reads as 0 and is remembered, so
/// that a parser stays plain and asks once at its end. A parser that jumps through a hostile file is stopped the same
/// way, after kMostWindows reads from disk.
class HeaderBytes {
 public:
  static constexpr int64_t kMostWindows = 16'384;

  static Result<HeaderBytes> open(const std::filesystem::path& path);
  /// The bytes must outlive this.
  static HeaderBytes of(std::span<const uint8_t> bytes);

  int64_t size() const { return size_; }
  /// A byte was asked for that is not there, or too many places were looked at.
  bool ran_out() const { return ran_out_; }

  uint8_t at(int64_t offset);
  uint16_t big16(int64_t offset);
  uint32_t big32(int64_t offset);
  uint16_t little16(int64_t offset);
  uint32_t little24(int64_t offset);
  uint32_t little32(int64_t offset);
  uint64_t little64(int64_t offset);
  bool has(int64_t offset, std::string_view letters);

 private:
  static constexpr int64_t kWindow = 512;

  struct Closer {
    void operator()(int* descriptor) const;
  };

  HeaderBytes() = default;
  void look_at(int64_t offset);

  std::span<const uint8_t> memory_;
  std::unique_ptr<int, Closer> file_;
  int64_t size_ = 0;
  std::array<uint8_t, kWindow> window_{};
  int64_t window_begin_ = 0;
  int64_t window_end_ = 0;
  int64_t num_windows_ = 0;
  bool ran_out_ = false;
};

}  // namespace weft
