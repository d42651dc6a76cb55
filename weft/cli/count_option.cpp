#include "weft/cli/count_option.h"

#include <charconv>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {

Result<int64_t> parse_count(const std::string& flag, const std::string& given, IntegerRange range) {
  int64_t number = 0;
  const char* end = given.data() + given.size();
  const auto [stop, code] = std::from_chars(given.data(), end, number);
  if (code == std::errc() && stop == end && number >= range.min && number <= range.max) return number;
  return Error{
      .source = flag,
      .problem = fmt::format("is {}, a whole number from {} to {} is needed", in_quotes(given), range.min, range.max)};
}

}  // namespace weft
