#include "weft/shard/elimination.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "weft/base/check.h"

namespace weft {
namespace {

/// Where a table's costs lie, for the choices of other variables in order.
class Strides {
 public:
  Strides(const ChoiceCosts& table, const std::vector<size_t>& order, const std::vector<size_t>& sizes) {
    for (const size_t variable : order) {
      size_t stride = 0, step = 1;
      for (size_t i = table.variables.size(); i-- > 0;) {
        if (table.variables[i] == variable) stride = step;
        step *= sizes[table.variables[i]];
      }
      strides_.push_back(stride);
    }
  }
  size_t of(size_t place) const { return strides_[place]; }

 private:
  std::vector<size_t> strides_;
};

/// Counts through the choices of variables, the last running fastest, and keeps the offsets of tables.
template <typename Body>
void for_each_choice(const std::vector<size_t>& order, const std::vector<size_t>& sizes,
                     const std::vector<Strides>& strides, std::vector<size_t>& offsets, const Body& body) {
  std::vector<size_t> choice(order.size(), 0);
  for (const size_t variable : order) {
    if (sizes[variable] == 0) return;
  }
  while (true) {
    body();
    size_t place = order.size();
    while (place-- > 0) {
      const bool is_last = ++choice[place] == sizes[order[place]];
      for (size_t t = 0; t < strides.size(); ++t) {
        offsets[t] += strides[t].of(place);
        if (is_last) offsets[t] -= strides[t].of(place) * sizes[order[place]];
      }
      if (!is_last) break;
      choice[place] = 0;
    }
    if (place == std::numeric_limits<size_t>::max()) return;
  }
}

}  // namespace

Elimination::Elimination(std::vector<size_t> domain_sizes)
    : sizes_(std::move(domain_sizes)), own_tables_(sizes_.size()), seen_(sizes_.size()) {}

void Elimination::add(ChoiceCosts table) {
  for (const size_t variable : table.variables) {
    std::vector<size_t>& own = own_tables_[variable];
    if (own.empty() || own.back() != tables_.size()) own.push_back(tables_.size());
  }
  tables_.push_back(std::move(table));
  is_used_up_.push_back(false);
}

double Elimination::entries(const std::vector<size_t>& variables) const {
  double product = 1;
  for (const size_t variable : variables) product *= static_cast<double>(sizes_[variable]);
  return product;
}

/// In the order in which tables name them first.
std::vector<size_t> Elimination::neighbours_of(size_t variable) {
  std::vector<size_t> neighbours;
  seen_[variable] = ++num_calls_;
  for (const size_t table : own_tables_[variable]) {
    for (const size_t other : tables_[table].variables) {
      if (std::exchange(seen_[other], num_calls_) != num_calls_) neighbours.push_back(other);
    }
  }
  return neighbours;
}

double Elimination::price_of(size_t variable) {
  const double price = entries(neighbours_of(variable)) * static_cast<double>(sizes_[variable]);
  return std::isnan(price) ? std::numeric_limits<double>::infinity() : price;
}

void Elimination::take_out(size_t variable, const std::vector<size_t>& neighbours) {
  std::vector<ChoiceCosts> own;
  for (const size_t table : own_tables_[variable]) {
    own.push_back(std::move(tables_[table]));
    tables_[table] = {};
    is_used_up_[table] = true;
  }
  own_tables_[variable].clear();
  for (const size_t neighbour : neighbours) {
    std::vector<size_t>& left = own_tables_[neighbour];
    left.erase(std::remove_if(left.begin(), left.end(), [&](size_t table) { return is_used_up_[table]; }), left.end());
  }
  std::vector<Strides> strides;
  std::vector<size_t> along;  // of the variable itself
  for (const ChoiceCosts& table : own) {
    strides.emplace_back(table, neighbours, sizes_);
    along.push_back(Strides(table, {variable}, sizes_).of(0));
  }
  ChoiceCosts made{neighbours, {}};
  TakenOut taken{variable, neighbours, {}};
  const auto count = static_cast<size_t>(entries(neighbours));
  made.costs.reserve(count);
  taken.best.reserve(count);
  std::vector<size_t> offsets(own.size(), 0);
  const size_t size = sizes_[variable];
  std::vector<double> sums(size);
  for_each_choice(neighbours, sizes_, strides, offsets, [&] {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (size_t t = 0; t < own.size(); ++t) {
      const double* costs = own[t].costs.data() + offsets[t];
      const size_t step = along[t];
      if (step == 1) {
        for (size_t i = 0; i < size; ++i) sums[i] += costs[i];
      } else {
        for (size_t i = 0; i < size; ++i) sums[i] += costs[i * step];
      }
    }
    const auto least = std::min_element(sums.begin(), sums.end());
    made.costs.push_back(*least);
    taken.best.push_back(static_cast<uint32_t>(least - sums.begin()));
  });
  add(std::move(made));
  taken_out_.push_back(std::move(taken));
}

bool Elimination::run(const std::vector<size_t>& kept) {
  std::vector<bool> is_kept(sizes_.size());
  for (const size_t variable : kept) is_kept[variable] = true;
  // The cheapest first, and of equals the first. Prices change for neighbours of what is taken out alone.
  std::vector<double> prices(sizes_.size());
  std::set<std::pair<double, size_t>> left;
  for (size_t variable = 0; variable < sizes_.size(); ++variable) {
    if (is_kept[variable]) continue;
    prices[variable] = price_of(variable);
    left.emplace(prices[variable], variable);
  }
  double work = 0;
  while (!left.empty()) {
    const auto [least, best] = *left.begin();
    const std::vector<size_t> neighbours = neighbours_of(best);
    work += least;
    if (work > kMostWork || entries(neighbours) > kMostEntries) return false;
    take_out(best, neighbours);
    left.erase(left.begin());
    for (const size_t neighbour : neighbours) {
      if (is_kept[neighbour]) continue;
      left.erase({prices[neighbour], neighbour});
      prices[neighbour] = price_of(neighbour);
      left.emplace(prices[neighbour], neighbour);
    }
  }
  if (entries(kept) > kMostEntries) return false;
  remaining_.variables = kept;
  remaining_.costs.assign(static_cast<size_t>(entries(kept)), 0.0);
  for (size_t i = 0; i < tables_.size(); ++i) {
    if (is_used_up_[i]) continue;
    const ChoiceCosts& table = tables_[i];
    const std::vector<Strides> strides{Strides(table, kept, sizes_)};
    std::vector<size_t> offsets{0};
    size_t place = 0;
    for_each_choice(kept, sizes_, strides, offsets, [&] { remaining_.costs[place++] += table.costs[offsets[0]]; });
  }
  return true;
}

void Elimination::complete(std::vector<size_t>& assignment) const {
  WEFT_CHECK(assignment.size() == sizes_.size(), "{} choices for {} variables", assignment.size(), sizes_.size());
  for (auto taken = taken_out_.rbegin(); taken != taken_out_.rend(); ++taken) {
    size_t place = 0;
    for (const size_t neighbour : taken->neighbours) place = place * sizes_[neighbour] + assignment[neighbour];
    assignment[taken->variable] = taken->best[place];
  }
}

}  // namespace weft
