#include "weft/cli/duration_text.h"

#include <cmath>
#include <cstdint>

#include <fmt/format.h>

namespace weft {

std::string duration_text(double seconds) {
  constexpr int64_t kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < kMinute) return fmt::format("{} s", whole);
  if (whole < kHour) return fmt::format("{} min {} s", whole / kMinute, whole % kMinute);
  if (whole < kDay) return fmt::format("{} h {} min", whole / kHour, whole % kHour / kMinute);
  return fmt::format("{} d {} h", whole / kDay, whole % kDay / kHour);
}

}  // namespace weft
