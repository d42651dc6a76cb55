#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

namespace weft {

/// Hashes of keys that have several parts. Equal parts give equal hashes; equality of the keys themselves decides.
class Hasher {
 public:
  template <typename T>
  requires std::integral<T> || std::is_enum_v<T>
  void add(T part) { mix(static_cast<uint64_t>(part)); }
  void add(double part) { mix(std::bit_cast<uint64_t>(part + 0.0)); }  // -0.0 equals 0.0

  size_t value() const { return hash_; }

 private:
  void mix(uint64_t bits) {
    hash_ ^= bits;
    hash_ *= 1099511628211u;  // FNV-1a's prime
    hash_ ^= hash_ >> 29;
  }

  uint64_t hash_ = 14695981039346656037u;
};

}  // namespace weft
