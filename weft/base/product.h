#pragma once

#include <cstdint>
#include <initializer_list>

namespace weft {

/// A product that stays at the largest number where it is above that: numbers of files may multiply to anything.
inline int64_t product_of(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return INT64_MAX;
  }
  return product;
}

}  // namespace weft
