#include "weft/search/chain_search.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/search/precision.h"

namespace weft {

ChainSearch::ChainSearch(const StageOptions& options)
    : options_(options), alive_(options.size(), 1), columns_(static_cast<size_t>(options.num_stages())) {}

void ChainSearch::add_row(ChainRow row) {
  for (size_t stage = 0; stage < row.stages.size(); ++stage) {
    std::vector<Column>& columns = columns_[stage];
    for (size_t figure = 0; figure < kNumFigures; ++figure) {
      const double weight = row.stages[stage][figure];
      auto column = std::find_if(columns.begin(), columns.end(), [&](const Column& c) { return c.figure == figure; });
      if (column == columns.end()) {
        if (weight == 0) continue;
        columns.push_back({figure, std::vector<double>(rows_.size(), 0)});
        column = columns.end() - 1;
      }
      column->weights.push_back(weight);
    }
  }
  rows_.push_back(std::move(row));
  is_behind_current_ = false;
}

bool ChainSearch::has_room(size_t more_rows) const {
  // Far more than any real pipeline asks for: 64 stages of 512 blocks have room for 2,700 rows.
  constexpr double kMostBytes = 2.0 * (1 << 30);
  constexpr double kTables = 3;  // ahead, behind, needless
  const auto cells = static_cast<double>(at(options_.num_stages(), options_.num_blocks() + 1));
  return kTables * sizeof(double) * cells * static_cast<double>(rows_.size() + more_rows) <= kMostBytes;
}

void ChainSearch::set_alive(std::vector<char> alive) {
  alive_ = std::move(alive);
  is_behind_current_ = false;
}

void ChainSearch::price(int32_t stage, const StageOption& option, double* values) const {
  const size_t n = rows_.size();
  std::fill_n(values, n, 0.0);
  for (const Column& column : columns_[static_cast<size_t>(stage)]) {
    const double figure = option.figures[column.figure];
    const double* weights = column.weights.data();
    for (size_t r = 0; r < n; ++r) values[r] += weights[r] * figure;
  }
}

bool ChainSearch::sum_behind(const Deadline& end) {
  RareDeadline deadline(end);
  const int32_t stages = options_.num_stages(), blocks = options_.num_blocks();
  const size_t n = rows_.size();
  behind_.assign(at(stages, blocks + 1) * n, kInfinity);
  std::fill_n(behind(stages, blocks), n, 0.0);
  std::vector<double> price_of(n);
  for (int32_t stage = stages - 1; stage >= 0; --stage) {
    for (int32_t first = options_.low(stage); first <= options_.high(stage); ++first) {
      if (deadline.is_over()) return false;
      double* best = behind(stage, first);
      for (size_t i = options_.begin(stage, first); i < options_.begin(stage, first + 1); ++i) {
        if (!alive_[i]) continue;
        price(stage, options_[i], price_of.data());
        const double* rest = behind(stage + 1, options_[i].end());
        for (size_t r = 0; r < n; ++r) best[r] = std::min(best[r], price_of[r] + rest[r]);
      }
    }
  }
  is_behind_current_ = true;
  return true;
}

bool ChainSearch::sum_ahead(const Deadline& end) {
  RareDeadline deadline(end);
  const int32_t stages = options_.num_stages(), blocks = options_.num_blocks();
  const size_t n = rows_.size();
  ahead_.assign(at(stages, blocks + 1) * n, kInfinity);
  for (size_t r = 0; r < n; ++r) ahead(0, 0)[r] = rows_[r].constant;
  std::vector<double> price_of(n);
  for (int32_t stage = 0; stage < stages; ++stage) {
    for (int32_t first = options_.low(stage); first <= options_.high(stage); ++first) {
      if (deadline.is_over()) return false;
      const double* so_far = ahead(stage, first);
      if (n > 0 && so_far[0] == kInfinity) continue;
      for (size_t i = options_.begin(stage, first); i < options_.begin(stage, first + 1); ++i) {
        if (!alive_[i]) continue;
        price(stage, options_[i], price_of.data());
        double* best = ahead(stage + 1, options_[i].end());
        for (size_t r = 0; r < n; ++r) best[r] = std::min(best[r], so_far[r] + price_of[r]);
      }
    }
  }
  return true;
}

double ChainSearch::bound(const Deadline& end) {
  if (!is_behind_current_ && !sum_behind(end)) return 0;
  double bound = 0;
  for (size_t r = 0; r < rows_.size(); ++r) {
    if (!rows_[r].is_constraint()) bound = std::max(bound, rows_[r].constant + behind(0, 0)[r]);
  }
  return bound;
}

/// Removes options that take some row to its limit even with the best company; returns how many. When the deadline
/// comes, those that were not looked at yet stay.
size_t ChainSearch::filter(double target, const Deadline& end) {
  RareDeadline deadline(end);
  limits_.resize(rows_.size());
  for (size_t r = 0; r < rows_.size(); ++r) limits_[r] = rows_[r].is_constraint() ? rows_[r].limit : target;
  const size_t n = rows_.size();
  std::vector<double> price_of(n);
  is_behind_current_ = false;
  if (!sum_behind(end)) return 0;
  // What was removed before is not part of anything below this target.
  known_bound_ = std::max(known_bound_, std::min(target, bound(end)));
  if (!sum_ahead(end)) return 0;
  size_t num_removed = 0;
  for (int32_t stage = 0; stage < options_.num_stages(); ++stage) {
    for (int32_t first = options_.low(stage); first <= options_.high(stage) && !deadline.is_over(); ++first) {
      const double* so_far = ahead(stage, first);
      for (size_t i = options_.begin(stage, first); i < options_.begin(stage, first + 1); ++i) {
        if (!alive_[i]) continue;
        price(stage, options_[i], price_of.data());
        const double* rest = behind(stage + 1, options_[i].end());
        bool fits = true;
        for (size_t r = 0; r < n; ++r) fits &= so_far[r] + price_of[r] + rest[r] < limits_[r];
        if (fits) continue;
        alive_[i] = 0;
        ++num_removed;
      }
    }
  }
  if (num_removed > 0) is_behind_current_ = false;
  return num_removed;
}

/// From the most that the stages behind can still add follows below which value a row no longer matters.
void ChainSearch::find_most_behind() {
  const int32_t stages = options_.num_stages(), blocks = options_.num_blocks();
  const size_t n = rows_.size();
  std::vector<double> price_of(n);
  needless_.assign(at(stages, blocks + 1) * n, -kInfinity);
  std::fill_n(needless_.data() + at(stages, blocks) * n, n, 0.0);
  for (int32_t stage = stages - 1; stage >= 0; --stage) {
    for (int32_t first = options_.low(stage); first <= options_.high(stage); ++first) {
      double* most = needless_.data() + at(stage, first) * n;
      for (size_t i = options_.begin(stage, first); i < options_.begin(stage, first + 1); ++i) {
        if (!alive_[i]) continue;
        price(stage, options_[i], price_of.data());
        const double* rest = needless_.data() + at(stage + 1, options_[i].end()) * n;
        for (size_t r = 0; r < n; ++r) most[r] = std::max(most[r], price_of[r] + rest[r]);
      }
    }
  }
  // A hair less than what would just reach the limit, so that rounding cannot call a needed row needless.
  constexpr double kHair = 1e-11;
  for (size_t cell = 0; cell < at(stages, blocks + 1); ++cell) {
    for (size_t r = 0; r < n; ++r) {
      double& value = needless_[cell * n + r];
      const bool is_bounded = value > -kInfinity && limits_[r] < kInfinity;
      value = is_bounded ? limits_[r] * (1 - kHair) - value : -kInfinity;
    }
  }
}

/// Whether no kept label is at least as good in all rows that matter.
bool ChainSearch::keep(const double* values, const double* needless, const std::vector<double>& kept) const {
  const size_t n = rows_.size();
  std::vector<double> needed(n);
  for (size_t r = 0; r < n; ++r) needed[r] = std::max(values[r], needless[r]);
  for (size_t label = 0; label < kept.size() / n; ++label) {
    const double* other = kept.data() + label * n;
    size_t r = 0;
    while (r < n && other[r] <= needed[r]) ++r;
    if (r == n) return false;
  }
  return true;
}

ChainSearch::Outcome ChainSearch::find_below(double target, const Effort& effort) {
  constexpr int kMostFilterRounds = 6;
  for (int round = 0; round < kMostFilterRounds; ++round) {
    const size_t num_removed = filter(target, effort.deadline);
    if (effort.deadline.is_over()) return {};
    if (num_removed * 50 < options_.size()) break;
  }
  if (!is_behind_current_ && !sum_behind(effort.deadline)) return {};
  find_most_behind();
  if (effort.deadline.is_over()) return {};

  const int32_t stages = options_.num_stages(), blocks = options_.num_blocks();
  const size_t n = rows_.size();
  std::vector<std::vector<Label>> layers(static_cast<size_t>(stages) + 1);
  layers[0].push_back({.parent = -1, .block = 0, .option = 0});
  std::vector<double> values(n), next_values, price_of(n);
  for (size_t r = 0; r < n; ++r) values[r] = rows_[r].constant;
  bool is_complete = true;
  std::vector<std::vector<Candidate>> candidates(static_cast<size_t>(blocks) + 1);
  for (int32_t stage = 0; stage < stages; ++stage) {
    const std::vector<Label>& layer = layers[static_cast<size_t>(stage)];
    for (auto& list : candidates) list.clear();
    for (size_t label = 0; label < layer.size(); ++label) {
      if (label % 256 == 0 && effort.deadline.is_over()) return {};
      const double* so_far = values.data() + label * n;
      const int32_t block = layer[label].block;
      for (size_t i = options_.begin(stage, block); i < options_.begin(stage, block + 1); ++i) {
        if (!alive_[i]) continue;
        price(stage, options_[i], price_of.data());
        const double* rest = behind(stage + 1, options_[i].end());
        double largest = 0;
        bool fits = true;
        for (size_t r = 0; r < n; ++r) {
          const double least = so_far[r] + price_of[r] + rest[r];
          fits &= least < limits_[r];
          if (!rows_[r].is_constraint()) largest = std::max(largest, least);
        }
        if (!fits) continue;
        candidates[static_cast<size_t>(options_[i].end())].push_back(
            {.bound = largest, .parent = static_cast<int32_t>(label), .option = i});
      }
    }
    std::vector<Label>& next = layers[static_cast<size_t>(stage) + 1];
    next_values.clear();
    for (int32_t block = 0; block <= blocks; ++block) {
      auto& list = candidates[static_cast<size_t>(block)];
      if (list.empty()) continue;
      std::sort(list.begin(), list.end(), [](const Candidate& a, const Candidate& b) {
        if (a.bound != b.bound) return a.bound < b.bound;
        return a.parent != b.parent ? a.parent < b.parent : a.option < b.option;
      });
      const double* needless = needless_.data() + at(stage + 1, block) * n;
      std::vector<double> kept;
      for (const Candidate& candidate : list) {
        if (kept.size() >= effort.labels_a_block * n && n > 0) {
          is_complete = false;
          break;
        }
        price(stage, options_[candidate.option], price_of.data());
        const double* so_far = values.data() + static_cast<size_t>(candidate.parent) * n;
        for (size_t r = 0; r < n; ++r) price_of[r] += so_far[r];
        if (!keep(price_of.data(), needless, kept)) continue;
        kept.insert(kept.end(), price_of.begin(), price_of.end());
        next.push_back({.parent = candidate.parent, .block = block, .option = candidate.option});
        if (next.size() % 256 == 0 && effort.deadline.is_over()) return {};
      }
      next_values.insert(next_values.end(), kept.begin(), kept.end());
    }
    values.swap(next_values);
  }

  Outcome outcome{.is_complete = is_complete};
  const std::vector<Label>& last = layers.back();  // sorted: all of them end at the last block
  for (size_t label = 0; label < last.size() && outcome.found.size() < effort.most_found; ++label) {
    Chain chain(static_cast<size_t>(stages));
    auto index = static_cast<int32_t>(label);
    for (int32_t stage = stages; stage > 0; --stage) {
      const Label& step = layers[static_cast<size_t>(stage)][static_cast<size_t>(index)];
      chain[static_cast<size_t>(stage) - 1] = step.option;
      index = step.parent;
    }
    outcome.found.push_back(std::move(chain));
  }
  return outcome;
}

Chain ChainSearch::least(const ChainRow& row) const {
  const int32_t stages = options_.num_stages(), blocks = options_.num_blocks();
  std::vector<double> best(at(stages, blocks + 1), kInfinity);
  std::vector<size_t> choice(best.size(), 0);
  best[at(stages, blocks)] = 0;
  for (int32_t stage = stages - 1; stage >= 0; --stage) {
    for (int32_t first = options_.low(stage); first <= options_.high(stage); ++first) {
      double& here = best[at(stage, first)];
      for (size_t i = options_.begin(stage, first); i < options_.begin(stage, first + 1); ++i) {
        if (!alive_[i]) continue;
        const double value =
            row.value(static_cast<size_t>(stage), options_[i]) + best[at(stage + 1, options_[i].end())];
        if (value < here) {
          here = value;
          choice[at(stage, first)] = i;
        }
      }
    }
  }
  Chain chain;
  if (best[at(0, 0)] == kInfinity) return chain;
  for (int32_t stage = 0, block = 0; stage < stages; ++stage) {
    chain.push_back(choice[at(stage, block)]);
    block = options_[chain.back()].end();
  }
  return chain;
}

Chain ChainSearch::least_bottleneck() const {
  const int32_t stages = options_.num_stages(), blocks = options_.num_blocks();
  // The largest stage first, then the sum, which tells chains apart whose largest stage is the same.
  struct Load {
    double largest = kInfinity;
    double sum = kInfinity;
  };
  std::vector<Load> best(at(stages, blocks + 1));
  std::vector<size_t> choice(best.size(), 0);
  best[at(stages, blocks)] = {0, 0};
  for (int32_t stage = stages - 1; stage >= 0; --stage) {
    for (int32_t first = options_.low(stage); first <= options_.high(stage); ++first) {
      Load& here = best[at(stage, first)];
      for (size_t i = options_.begin(stage, first); i < options_.begin(stage, first + 1); ++i) {
        if (!alive_[i]) continue;
        const double own = options_[i].total_ms();
        const Load& rest = best[at(stage + 1, options_[i].end())];
        const Load load{std::max(own, rest.largest), own + rest.sum};
        if (load.largest < here.largest || (load.largest == here.largest && load.sum < here.sum)) {
          here = load;
          choice[at(stage, first)] = i;
        }
      }
    }
  }
  Chain chain;
  if (best[at(0, 0)].largest == kInfinity) return chain;
  for (int32_t stage = 0, block = 0; stage < stages; ++stage) {
    chain.push_back(choice[at(stage, block)]);
    block = options_[chain.back()].end();
  }
  return chain;
}

}  // namespace weft
