#include "weft/mesh/row_deal.h"

#include <algorithm>
#include <cmath>

#include "weft/base/check.h"

namespace weft {
namespace {

/// The place of an ascending list that is nearest to a wish.
int64_t nearest(std::span<const int64_t> places, double wish) {
  const auto above = std::lower_bound(places.begin(), places.end(), wish,
                                      [](int64_t place, double w) { return static_cast<double>(place) < w; });
  if (above == places.begin()) return *above;
  const int64_t below = *(above - 1);
  if (above == places.end()) return below;
  return static_cast<double>(*above) - wish < wish - static_cast<double>(below) ? *above : below;
}

}  // namespace

RowDeal::RowDeal(std::vector<std::vector<Range>> ranges) {
  for (std::vector<Range>& own : ranges) {
    std::vector<Range>& kept = ranges_.emplace_back();
    int64_t count = 0;
    for (const Range& range : own) {
      if (range.empty()) continue;
      WEFT_CHECK(kept.empty() || kept.back().end <= range.begin, "rows {} to {} come after row {}", range.begin,
                 range.end, kept.back().end);
      count += range.size();
      if (!kept.empty() && kept.back().end == range.begin) {
        kept.back().end = range.end;
      } else {
        kept.push_back(range);
      }
    }
    counts_.push_back(count);
    num_rows_ += count;
  }
}

RowDeal RowDeal::zigzag(std::span<const int64_t> lengths, int64_t num_ranks) {
  const auto ranks = static_cast<size_t>(num_ranks);
  std::vector<std::vector<Range>> ranges(ranks);
  int64_t row = 0;
  int64_t turn = 0;  // whose turn it is to take a row that is left over
  std::vector<int64_t> size(2 * ranks);
  for (const int64_t length : lengths) {
    const int64_t share = length / (2 * num_ranks);
    std::fill(size.begin(), size.end(), share);
    for (int64_t left = length - 2 * num_ranks * share; left > 0; --left) {
      const auto rank = static_cast<size_t>(turn);
      ++(size[rank] > share ? size[2 * ranks - 1 - rank] : size[rank]);
      turn = (turn + 1) % num_ranks;
    }
    for (size_t part = 0; part < size.size(); ++part) {
      const size_t rank = part < ranks ? part : 2 * ranks - 1 - part;
      ranges[rank].push_back({row, row + size[part]});
      row += size[part];
    }
  }
  return RowDeal(std::move(ranges));
}

RowDeal RowDeal::contiguous(int64_t num_rows, int64_t num_ranks, std::span<const int64_t> allowed,
                            std::span<const int64_t> preferred) {
  std::vector<std::vector<Range>> ranges;
  const double share = static_cast<double>(num_rows) / static_cast<double>(num_ranks);
  constexpr double kMostLost = 1.0 / 16;  // of a share, at each of a rank's two ends
  int64_t begin = 0;
  for (int64_t rank = 1; rank <= num_ranks; ++rank) {
    int64_t end = num_rows;
    if (rank < num_ranks) {
      const double wish = share * static_cast<double>(rank);
      if (!allowed.empty()) end = nearest(allowed, wish);
      if (!preferred.empty()) {
        const int64_t better = nearest(preferred, wish);
        if (std::abs(static_cast<double>(better) - wish) <= kMostLost * share) end = better;
      }
      end = std::clamp(end, begin, num_rows);
    }
    ranges.push_back({{begin, end}});
    begin = end;
  }
  return RowDeal(std::move(ranges));
}

std::vector<int64_t> RowDeal::rows(int64_t rank) const {
  std::vector<int64_t> all;
  all.reserve(static_cast<size_t>(num_rows(rank)));
  for (const Range& range : ranges(rank)) {
    for (int64_t row = range.begin; row < range.end; ++row) all.push_back(row);
  }
  return all;
}

}  // namespace weft
