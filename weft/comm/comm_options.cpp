#include "weft/comm/comm_options.h"

#include <cmath>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/comm/variable.h"

namespace weft {
namespace {

constexpr double kLongestTimeout_s = 1e7;

}  // namespace

Result<CommOptions> comm_options_from_environment(CommOptions options) {
  if (const char* text = variable_text("WEFT_COMM_TIMEOUT_S")) {
    char* end = nullptr;
    const double seconds = std::strtod(text, &end);
    if (*end != '\0' || !(seconds > 0) || seconds > kLongestTimeout_s) {
      return Error{.source = "WEFT_COMM_TIMEOUT_S",
                   .problem = fmt::format("{} is no number of seconds above 0 and up to {}", in_quotes(text),
                                          with_commas(static_cast<int64_t>(kLongestTimeout_s))),
                   .advice = "Set it to how long a rank may wait for others, like 600."};
    }
    options.timeout = std::chrono::milliseconds(std::llround(std::ceil(seconds * 1000)));
  }
  if (const char* text = variable_text("WEFT_COMM_CHECKED")) {
    const std::string word = text;
    if (word != "0" && word != "1") {
      return Error{.source = "WEFT_COMM_CHECKED", .problem = fmt::format("{} is neither 0 nor 1", in_quotes(word))};
    }
    options.is_checked = word == "1";
  }
  if (const char* text = variable_text("WEFT_RECORDS")) options.records = text;
  return options;
}

}  // namespace weft
