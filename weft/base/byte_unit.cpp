#include "weft/base/byte_unit.h"

#include <cmath>

#include <fmt/format.h>

#include "weft/base/units.h"

namespace weft {

std::string ByteUnit::number(double count) const {
  return fmt::format("{:.2f}", count / bytes);
}

ByteUnit byte_unit_for(double bytes) {
  for (const ByteUnit& unit : {ByteUnit{"GiB", kGiB}, ByteUnit{"MiB", kMiB}, ByteUnit{"KiB", kKiB}}) {
    if (std::abs(bytes) >= unit.bytes) return unit;
  }
  return {"B", 1};
}

std::string format_memory(double bytes) {
  const ByteUnit unit = byte_unit_for(bytes);
  return fmt::format("{} {}", unit.number(bytes), unit.name);
}

}  // namespace weft
