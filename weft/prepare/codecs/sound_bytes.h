#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>

namespace weft {

/// A file in memory, as libsndfile reads one: its calls, whose numbers may come from the file and be of any size.
struct SoundBytes {
  std::span<const uint8_t> bytes;
  int64_t at = 0;

  static SoundBytes& of(void* user) { return *static_cast<SoundBytes*>(user); }
  static int64_t size(void* user) { return std::ssize(of(user).bytes); }
  static int64_t tell(void* user) { return of(user).at; }
  /// A place before the first byte or after the last is that end. No sum is made that could overflow.
  static int64_t seek(int64_t offset, int from, void* user) {
    SoundBytes& self = of(user);
    const int64_t last = std::ssize(self.bytes);
    const int64_t base = from == SEEK_CUR ? self.at : from == SEEK_END ? last : 0;
    self.at = base + std::clamp<int64_t>(offset, -base, last - base);
    return self.at;
  }
  static int64_t read(void* to, int64_t count, void* user) {
    SoundBytes& self = of(user);
    count = std::clamp<int64_t>(count, 0, std::ssize(self.bytes) - self.at);
    if (count > 0) std::memcpy(to, self.bytes.data() + self.at, static_cast<size_t>(count));
    self.at += count;
    return count;
  }
  static int64_t write(const void*, int64_t, void*) { return 0; }
};

}  // namespace weft
