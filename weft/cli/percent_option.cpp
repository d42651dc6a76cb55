#include "weft/cli/percent_option.h"

#include <charconv>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {

Result<double> parse_percent(const std::string& flag, const std::string& given, double most, std::string advice) {
  double number = 0;
  const char* end = given.data() + given.size();
  const auto [stop, code] = std::from_chars(given.data(), end, number);
  // Written so that it is false for what is no number.
  if (code == std::errc() && stop == end && number >= 0 && number <= most) return number / 100;
  return Error{.source = flag,
               .problem = fmt::format("is {}, a percentage from 0 to {:g} is needed", in_quotes(given), most),
               .advice = std::move(advice)};
}

}  // namespace weft
