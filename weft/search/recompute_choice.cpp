#include "weft/search/recompute_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace weft {
namespace {

/// Depth first over kinds, the cheapest saving first; a fractional knapsack bounds what the rest must cost.
class LeastSearch {
 public:
  LeastSearch(std::span<const RecomputeKind> kinds, double need_gib) : kinds_(kinds), blocks_(kinds.size(), 0) {
    for (size_t k = 0; k < kinds.size(); ++k) {
      if (kinds[k].num_blocks > 0 && kinds[k].saves_gib > 0) order_.push_back(k);
    }
    // adds / saves, cross-multiplied so that nothing is divided by a tiny saving.
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      return kinds_[a].adds_ms * kinds_[b].saves_gib < kinds_[b].adds_ms * kinds_[a].saves_gib;
    });
    left_gib_.assign(order_.size() + 1, 0);
    for (size_t i = order_.size(); i-- > 0;) {
      left_gib_[i] = left_gib_[i + 1] + kinds_[order_[i]].num_blocks * kinds_[order_[i]].saves_gib;
    }
    tolerance_gib_ = 1e-12 * (1 + need_gib);
    descend(0, need_gib, 0);
  }

  const std::vector<int32_t>& best() const { return best_; }

 private:
  void descend(size_t depth, double need_gib, double adds_ms) {
    if (need_gib <= tolerance_gib_) {
      if (adds_ms < best_ms_) {
        best_ms_ = adds_ms;
        best_ = blocks_;
      }
      return;
    }
    if (left_gib_[depth] + tolerance_gib_ < need_gib) return;
    const RecomputeKind& kind = kinds_[order_[depth]];
    // All of the rest at the price of the cheapest is the least that covering the need can cost.
    if (adds_ms + kind.adds_ms * (need_gib / kind.saves_gib) * (1 - 1e-12) >= best_ms_) return;
    const double wanted = std::ceil((need_gib - tolerance_gib_) / kind.saves_gib);
    const int32_t most = wanted >= kind.num_blocks ? kind.num_blocks : static_cast<int32_t>(wanted);
    for (int32_t n = most; n >= 0; --n) {
      blocks_[order_[depth]] = n;
      descend(depth + 1, need_gib - n * kind.saves_gib, adds_ms + n * kind.adds_ms);
    }
    blocks_[order_[depth]] = 0;
  }

  std::span<const RecomputeKind> kinds_;
  std::vector<size_t> order_;
  std::vector<double> left_gib_;  // what the kinds from here on could save
  double tolerance_gib_ = 0;
  std::vector<int32_t> blocks_;
  std::vector<int32_t> best_;
  double best_ms_ = std::numeric_limits<double>::infinity();
};

RecomputeChoice sum_up(std::span<const RecomputeKind> kinds, std::vector<int32_t> blocks) {
  RecomputeChoice choice{.blocks = std::move(blocks)};
  for (size_t k = 0; k < kinds.size(); ++k) {
    choice.adds_ms += choice.blocks[k] * kinds[k].adds_ms;
    choice.saves_gib += choice.blocks[k] * kinds[k].saves_gib;
  }
  return choice;
}

}  // namespace

std::optional<RecomputeChoice> choose_least(std::span<const RecomputeKind> kinds, double need_gib) {
  if (need_gib <= 0) return sum_up(kinds, std::vector<int32_t>(kinds.size(), 0));
  const LeastSearch search(kinds, need_gib);
  if (search.best().empty()) return std::nullopt;
  return sum_up(kinds, search.best());
}

std::vector<RecomputeChoice> choose_pareto(std::span<const RecomputeKind> kinds, size_t most) {
  std::vector<RecomputeChoice> front = {{.blocks = std::vector<int32_t>(kinds.size(), 0)}};
  for (size_t k = 0; k < kinds.size(); ++k) {
    if (kinds[k].saves_gib <= 0) continue;
    if (front.size() > most) break;
    std::vector<RecomputeChoice> all;
    all.reserve(front.size() * static_cast<size_t>(kinds[k].num_blocks + 1));
    for (const RecomputeChoice& choice : front) {
      for (int32_t n = 0; n <= kinds[k].num_blocks; ++n) {
        all.push_back(choice);
        all.back().blocks[k] = n;
        all.back().adds_ms += n * kinds[k].adds_ms;
        all.back().saves_gib += n * kinds[k].saves_gib;
      }
    }
    std::stable_sort(all.begin(), all.end(), [](const RecomputeChoice& a, const RecomputeChoice& b) {
      return a.adds_ms != b.adds_ms ? a.adds_ms < b.adds_ms : a.saves_gib > b.saves_gib;
    });
    front.clear();
    for (RecomputeChoice& choice : all) {
      if (front.empty() || choice.saves_gib > front.back().saves_gib + 1e-12) front.push_back(std::move(choice));
    }
  }
  return front;
}

RecomputeChoice choose_all(std::span<const RecomputeKind> kinds) {
  std::vector<int32_t> blocks;
  for (const RecomputeKind& kind : kinds) blocks.push_back(kind.saves_gib > 0 ? kind.num_blocks : 0);
  return sum_up(kinds, std::move(blocks));
}

}  // namespace weft
