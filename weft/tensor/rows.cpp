#include "weft/tensor/rows.h"

#include <numeric>

#include "weft/base/check.h"

namespace weft {

std::vector<int64_t> rows_of_parts(std::span<const int64_t> rows_of_samples,
                                   std::span<const int64_t> samples_of_parts) {
  std::vector<int64_t> rows;
  size_t sample = 0;
  for (const int64_t num_samples : samples_of_parts) {
    WEFT_CHECK(num_samples >= 0 && static_cast<size_t>(num_samples) <= rows_of_samples.size() - sample,
               "part {} has {} samples, expected 0 to {}", rows.size(), num_samples, rows_of_samples.size() - sample);
    const auto own = rows_of_samples.subspan(sample, static_cast<size_t>(num_samples));
    rows.push_back(std::accumulate(own.begin(), own.end(), int64_t{0}));
    sample += own.size();
  }
  WEFT_CHECK(sample == rows_of_samples.size(), "the parts have {} samples, expected all {}", sample,
             rows_of_samples.size());
  return rows;
}

Layout rows_layout(const Layout& layout, size_t dim, Range rows) {
  WEFT_CHECK(dim < layout.num_dims() && rows.begin <= rows.end && rows.is_inside({0, layout.shape()[dim]}),
             "rows {} to {} of dim {} of {}", rows.begin, rows.end, dim, layout.text());
  std::vector<Split> splits;
  for (size_t d = 0; d < layout.num_dims(); ++d) {
    const Split& split = layout.split(d);
    if (d != dim) {
      splits.push_back(split);
      continue;
    }
    std::vector<int64_t> sizes;
    for (const Range& part : split.parts()) sizes.push_back(intersection(part, rows).size());
    splits.emplace_back(sizes, split.counts());
  }
  return Layout::of_splits(layout.grid(), layout.states(), std::move(splits));
}

Range local_rows(const Layout& layout, size_t dim, Range rows, int64_t position) {
  const Range own = layout.range(dim, position);
  const Range common = intersection(own, rows);
  if (common.empty()) return {0, 0};
  return {common.begin - own.begin, common.end - own.begin};
}

}  // namespace weft
