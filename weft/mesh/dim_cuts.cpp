#include "weft/mesh/dim_cuts.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "weft/base/check.h"

namespace weft {

AxisMask shard_mask(const Layout& layout, size_t dim) {
  AxisMask mask = 0;
  for (const size_t axis : layout.shard_axes(dim)) {
    if (layout.grid().size(axis) > 1) mask |= AxisMask{1} << axis;
  }
  return mask;
}

DimCuts::DimCuts(const AxisGrid& grid, size_t dim, const Layout& from, const Layout& to)
    : grid_(grid), dim_(dim), length_(from.shape()[dim]) {
  for (const Layout* layout : {&from, &to}) {
    const Split& split = layout->split(dim);
    if (split.is_balanced()) continue;
    std::vector<size_t> axes = axes_of(shard_mask(*layout, dim));
    ragged_.push_back({std::move(axes), Split(split.sizes(), counts_of(shard_mask(*layout, dim)))});
  }
  over(0);
}

std::vector<size_t> DimCuts::axes_of(AxisMask mask) const {
  std::vector<size_t> axes;
  for (size_t axis = grid_.num_axes(); axis-- > 0;) {
    if ((mask >> axis & 1) != 0) axes.push_back(axis);
  }
  return axes;
}

std::vector<int64_t> DimCuts::counts_of(AxisMask mask) const {
  std::vector<int64_t> counts;
  counts.reserve(grid_.num_axes());
  for (const size_t axis : axes_of(mask)) counts.push_back(grid_.size(axis));
  return counts;
}

const std::vector<size_t>& DimCuts::over(AxisMask mask) {
  const auto [entry, is_new] = by_mask_.try_emplace(mask);
  std::vector<size_t>& cuts = entry->second;
  if (is_new) {
    add(mask, Split(length_, counts_of(mask)), cuts);
    for (const Ragged& ragged : ragged_) add_ragged(mask, ragged, cuts);
  }
  return cuts;
}

void DimCuts::add(AxisMask mask, Split split, std::vector<size_t>& cuts) {
  for (const size_t cut : cuts) {
    if (cuts_[cut].split == split) return;
  }
  int64_t longest = split.part(0).size();
  if (!split.is_balanced()) {
    for (const Range part : split.parts()) longest = std::max(longest, part.size());
  }
  cuts.push_back(cuts_.size());
  cuts_.push_back({mask, std::move(split), longest, {}});
}

void DimCuts::add_ragged(AxisMask mask, const Ragged& ragged, std::vector<size_t>& cuts) {
  // The given sizes say something about their outer axes alone (sums of parts) and about further axes inside theirs
  // (balanced within each part), and nothing about others.
  const std::vector<size_t> axes = axes_of(mask);
  const size_t common = std::min(axes.size(), ragged.axes.size());
  if (axes.empty() ||
      !std::equal(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(common), ragged.axes.begin()))
    return;
  std::vector<int64_t> counts = counts_of(mask);
  const int64_t num_parts = std::accumulate(counts.begin(), counts.end(), int64_t{1}, std::multiplies<>());
  const int64_t given_parts = ragged.split.num_parts();
  std::vector<int64_t> sizes;
  if (num_parts <= given_parts) {
    const int64_t joined = given_parts / num_parts;
    for (int64_t part = 0; part < num_parts; ++part)
      sizes.push_back(ragged.split.part(part * joined + joined - 1).end - ragged.split.part(part * joined).begin);
  } else {
    const std::vector<int64_t> inner_counts(counts.begin() + static_cast<std::ptrdiff_t>(common), counts.end());
    for (const int64_t size : ragged.split.sizes()) {
      for (const int64_t inner : Split(size, inner_counts).sizes()) sizes.push_back(inner);
    }
  }
  add(mask, Split(sizes, std::move(counts)), cuts);
}

size_t DimCuts::of(const Layout& layout) {
  const Split& split = layout.split(dim_);
  for (const size_t cut : over(shard_mask(layout, dim_))) {
    const Split& other = cuts_[cut].split;  // without counts of 1, which the layout may have
    if (split.is_balanced() ? other.is_balanced() : other.parts() == split.parts()) return cut;
  }
  WEFT_CHECK(false, "the layout's cut of dim {} is not known", dim_);
  return 0;
}

const DimCuts::Refinement& DimCuts::refinement(size_t fine, size_t coarse) {
  const auto [entry, is_new] = refinements_.try_emplace({fine, coarse});
  if (is_new) {
    const AxisMask coarse_mask = cuts_[coarse].mask;
    const AxisMask inner = cuts_[fine].mask & ~coarse_mask;
    const bool is_nested = coarse_mask == 0 || inner < (coarse_mask & (0u - coarse_mask));
    const bool is_balanced = cuts_[fine].split.is_balanced() && cuts_[coarse].split.is_balanced();
    entry->second = is_nested && is_balanced ? refine_balanced(cuts_[coarse].split, inner) : refine(fine, coarse);
  }
  return entry->second;
}

const std::vector<Range>& DimCuts::parts(size_t cut) {
  if (cuts_[cut].parts.empty()) cuts_[cut].parts = cuts_[cut].split.parts();
  return cuts_[cut].parts;
}

DimCuts::Refinement DimCuts::refine_balanced(const Split& coarse, AxisMask inner) const {
  const std::vector<int64_t> counts = counts_of(inner);
  // Balanced parts, nested or not, differ by one at most; the first is the longest and the last the shortest.
  const int64_t longest = coarse.part(0).size();
  const int64_t shortest = coarse.part(coarse.num_parts() - 1).size();
  const std::vector<int64_t> of_shortest = Split(shortest, counts).sizes();
  Refinement result{.holds = true, .longest_fine = Split(longest, counts).sizes()};
  for (size_t place = 0; place < of_shortest.size(); ++place)
    result.missing.push_back(std::max(longest - result.longest_fine[place], shortest - of_shortest[place]));
  result.most_missing = *std::max_element(result.missing.begin(), result.missing.end());
  return result;
}

DimCuts::Refinement DimCuts::refine(size_t fine, size_t coarse) {
  const AxisMask fine_mask = cuts_[fine].mask;
  const AxisMask coarse_mask = cuts_[coarse].mask;
  WEFT_CHECK((coarse_mask & ~fine_mask) == 0, "a coarse cut over axes that the fine one lacks");
  struct Digit {
    int64_t size, coarse_stride, place_stride;
  };
  std::vector<Digit> digits;  // of a fine part's number, the fastest first
  int64_t num_coarse = 1;
  int64_t num_places = 1;
  for (size_t axis = 0; axis < grid_.num_axes(); ++axis) {
    if ((fine_mask >> axis & 1) == 0) continue;
    const bool is_coarse = (coarse_mask >> axis & 1) != 0;
    digits.push_back({grid_.size(axis), is_coarse ? num_coarse : 0, is_coarse ? 0 : num_places});
    (is_coarse ? num_coarse : num_places) *= grid_.size(axis);
  }

  Refinement result{.holds = true,
                    .missing = std::vector<int64_t>(static_cast<size_t>(num_places), 0),
                    .longest_fine = std::vector<int64_t>(static_cast<size_t>(num_places), 0)};
  const std::vector<Range>& fine_parts = parts(fine);
  const std::vector<Range>& coarse_parts = parts(coarse);
  for (size_t part = 0; part < fine_parts.size(); ++part) {
    auto rest = static_cast<int64_t>(part);
    int64_t coarse_part = 0;
    size_t place = 0;
    for (const Digit& digit : digits) {
      coarse_part += rest % digit.size * digit.coarse_stride;
      place += static_cast<size_t>(rest % digit.size * digit.place_stride);
      rest /= digit.size;
    }
    const Range inner = fine_parts[part];
    const Range outer = coarse_parts[static_cast<size_t>(coarse_part)];
    if (!inner.is_inside(outer)) return {};
    result.missing[place] = std::max(result.missing[place], outer.size() - inner.size());
    result.longest_fine[place] = std::max(result.longest_fine[place], inner.size());
  }
  result.most_missing = *std::max_element(result.missing.begin(), result.missing.end());
  return result;
}

int64_t DimCuts::most_missing_after(size_t from, size_t to) {
  const std::vector<Range>& held = parts(from);
  const std::vector<Range>& wanted = parts(to);
  int64_t most = 0;
  for (size_t part = 0; part < wanted.size(); ++part)
    most = std::max(most, wanted[part].size() - intersection(wanted[part], held[part]).size());
  return most;
}

}  // namespace weft
