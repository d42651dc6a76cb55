#include "weft/plan/rank_set.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/spec/cluster.h"

namespace weft {
namespace {

Error bad_ranks(std::string_view text, const std::string& why) {
  return {.problem = fmt::format("is {}: {}", in_quotes(text), why), .advice = "Write ranks like 0-7,16."};
}

}  // namespace

std::string ranks_to_text(const std::vector<int64_t>& ranks) {
  std::string text;
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == first ? std::to_string(ranks[first]) : fmt::format("{}-{}", ranks[first], ranks[last]);
    first = last + 1;
  }
  return text;
}

Result<std::vector<int64_t>> parse_ranks(std::string_view text) {
  std::vector<int64_t> ranks;
  const char* at = text.data();
  const char* end = text.data() + text.size();
  const auto number = [&](int64_t& value) {
    const auto [next, code] = std::from_chars(at, end, value);
    const bool is_fine = code == std::errc() && *at != '-' && value < kMostDevices;
    at = next;
    return is_fine;
  };
  while (at < end) {
    int64_t first = 0;
    if (!number(first)) return bad_ranks(text, fmt::format("ranks are numbers from 0 to {}", kMostDevices - 1));
    int64_t last = first;
    if (at < end && *at == '-') {
      ++at;
      if (at == end || !number(last) || last < first)
        return bad_ranks(text, "a range goes from a smaller to a larger number");
    }
    if (static_cast<int64_t>(ranks.size()) + last - first >= kMostDevices) return bad_ranks(text, "too many ranks");
    for (int64_t rank = first; rank <= last; ++rank) ranks.push_back(rank);
    if (at < end && (*at++ != ',' || at == end)) return bad_ranks(text, "ranges are separated by commas");
  }
  if (ranks.empty()) return bad_ranks(text, "no ranks");
  return ranks;
}

}  // namespace weft
