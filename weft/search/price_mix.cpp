#include "weft/search/price_mix.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/base/check.h"

namespace weft {
namespace {

void add(ChainRow& sum, const ChainRow& row, double times) {
  if (times == 0) return;
  sum.constant += times * row.constant;
  for (size_t stage = 0; stage < sum.stages.size(); ++stage) {
    for (size_t i = 0; i < kNumFigures; ++i) sum.stages[stage][i] += times * row.stages[stage][i];
  }
}

double value_of(const ChainRow& row, const StageOptions& options, const Chain& chain) {
  double sum = row.constant;
  for (size_t stage = 0; stage < chain.size(); ++stage) sum += row.value(stage, options[chain[stage]]);
  return sum;
}

/// The nearest point with entries of at least 0 that add up to 1.
void project_to_shares(std::vector<double>& point) {
  std::vector<double> sorted = point;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  double sum = 0, shift = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    sum += sorted[i];
    const double candidate = (sum - 1) / static_cast<double>(i + 1);
    if (sorted[i] > candidate) shift = candidate;
  }
  for (double& entry : point) entry = std::max(0.0, entry - shift);
}

}  // namespace

PriceMix::PriceMix(std::vector<ChainRow> constraints)
    : constraints_(std::move(constraints)), prices_(constraints_.size(), 0) {}

void PriceMix::add_objective(ChainRow row) {
  objectives_.push_back(std::move(row));
  shares_.push_back(0);
}

ChainRow PriceMix::mix() const {
  ChainRow sum;
  sum.stages.resize(objectives_.front().stages.size());
  for (size_t i = 0; i < objectives_.size(); ++i) add(sum, objectives_[i], shares_[i]);
  for (size_t i = 0; i < constraints_.size(); ++i) {
    add(sum, constraints_[i], prices_[i]);
    sum.constant -= prices_[i] * constraints_[i].limit;
  }
  return sum;
}

ChainRow PriceMix::improve(const ChainSearch& search, const StageOptions& options, const Effort& effort,
                           const std::function<void(const Chain&)>& meet) {
  if (std::all_of(shares_.begin(), shares_.end(), [](double share) { return share == 0; }))
    shares_.assign(shares_.size(), 1 / static_cast<double>(shares_.size()));
  ChainRow best = mix();
  std::vector<double> best_shares = shares_, best_prices = prices_;
  best_bound_ = 0;
  double pace = 1;
  int num_worse = 0;
  for (int i = 0; i < effort.iterations && !effort.deadline.is_over(); ++i) {
    const ChainRow row = mix();
    const Chain chain = search.least(row);
    if (chain.empty()) break;  // no chain is left: the search will see it
    const double bound = value_of(row, options, chain);
    if (bound > best_bound_) {
      best_bound_ = bound;
      best = row;
      best_shares = shares_;
      best_prices = prices_;
      num_worse = 0;
    } else if (++num_worse == 8) {
      // Steps are too long: back to the best point, with shorter ones.
      pace /= 2;
      num_worse = 0;
      shares_ = best_shares;
      shares_.resize(objectives_.size(), 0);
      prices_ = best_prices;
    }
    if (bound >= effort.target) break;
    meet(chain);

    std::vector<double> slopes;
    for (const ChainRow& objective : objectives_) slopes.push_back(value_of(objective, options, chain));
    const double mean = std::accumulate(slopes.begin(), slopes.end(), 0.0) / static_cast<double>(slopes.size());
    double length = 0;
    for (double& slope : slopes) {
      slope -= mean;
      length += slope * slope;
    }
    std::vector<double> excess;
    for (size_t r = 0; r < constraints_.size(); ++r) {
      // In the objective's unit, so that one step length suits both.
      const double scale = effort.target / constraints_[r].limit;
      excess.push_back((value_of(constraints_[r], options, chain) - constraints_[r].limit) * scale);
      if (prices_[r] == 0 && excess[r] < 0) excess[r] = 0;
      length += excess[r] * excess[r];
    }
    if (length == 0) break;
    const double step = pace * (effort.target - bound) / length;
    for (size_t r = 0; r < objectives_.size(); ++r) shares_[r] += step * slopes[r];
    project_to_shares(shares_);
    for (size_t r = 0; r < constraints_.size(); ++r) {
      const double scale = effort.target / constraints_[r].limit;
      prices_[r] = std::max(0.0, prices_[r] + step * excess[r] * scale);
    }
  }
  shares_ = best_shares;
  shares_.resize(objectives_.size(), 0);
  prices_ = best_prices;
  return best;
}

}  // namespace weft
