#include "weft/cost/scattered_table.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

#include "weft/base/check.h"

namespace weft {
namespace {

using Place = ScatteredTable::Place;
using Values = ScatteredTable::Values;
using Matrix = std::vector<std::vector<double>>;

double distance(const Place& a, const Place& b) {
  return std::sqrt((a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y));
}

/// Gauss and Jordan, with pivots: tables are small.
Matrix inverse(Matrix a) {
  const size_t n = a.size();
  Matrix result(n, std::vector<double>(n, 0));
  for (size_t i = 0; i < n; ++i) result[i][i] = 1;
  for (size_t column = 0; column < n; ++column) {
    size_t pivot = column;
    for (size_t row = column + 1; row < n; ++row) {
      if (std::abs(a[row][column]) > std::abs(a[pivot][column])) pivot = row;
    }
    WEFT_CHECK(a[pivot][column] != 0, "places of a table coincide");
    std::swap(a[pivot], a[column]);
    std::swap(result[pivot], result[column]);
    const double scale = 1 / a[column][column];
    for (size_t k = 0; k < n; ++k) {
      a[column][k] *= scale;
      result[column][k] *= scale;
    }
    for (size_t row = 0; row < n; ++row) {
      const double factor = a[row][column];
      if (row == column || factor == 0) continue;
      for (size_t k = 0; k < n; ++k) {
        a[row][k] -= factor * a[column][k];
        result[row][k] -= factor * result[column][k];
      }
    }
  }
  return result;
}

/// Joins what falls into one cell of a grid.
void join(double cell, std::vector<Place>& places, std::vector<Values>& values) {
  struct Sum {
    Place place;
    Values values{};
    double count = 0;
  };
  std::map<std::pair<int64_t, int64_t>, Sum> cells;
  for (size_t i = 0; i < places.size(); ++i) {
    Sum& sum = cells[{std::llround(places[i].x / cell), std::llround(places[i].y / cell)}];
    sum.place.x += places[i].x;
    sum.place.y += places[i].y;
    for (size_t v = 0; v < values[i].size(); ++v) sum.values[v] += values[i][v];
    sum.count += 1;
  }
  places.clear();
  values.clear();
  for (auto& [ignored, sum] : cells) {
    places.push_back({sum.place.x / sum.count, sum.place.y / sum.count});
    for (double& value : sum.values) value /= sum.count;
    values.push_back(sum.values);
  }
}

}  // namespace

ScatteredTable::ScatteredTable(const std::vector<Place>& places, const std::vector<Values>& values)
    : places_(places), values_(values) {
  constexpr size_t kMostPlaces = 128;
  constexpr double kSame = 1e-7;
  join(kSame, places_, values_);
  for (double cell = 1e-3; places_.size() > kMostPlaces; cell *= 2) join(cell, places_, values_);
  const size_t n = places_.size();
  least_ = most_ = constant_ = values_.front();
  for (const Values& known : values_) {
    for (size_t v = 0; v < kValues; ++v) {
      least_[v] = std::min(least_[v], known[v]);
      most_[v] = std::max(most_[v], known[v]);
    }
  }
  weights_.assign(n, Values{});
  if (n < 2) return;
  Matrix system(n + 1, std::vector<double>(n + 1, 1));
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) system[i][j] = distance(places_[i], places_[j]);
  }
  system[n][n] = 0;
  const Matrix solved = inverse(std::move(system));
  constant_ = {};
  for (size_t j = 0; j < n; ++j) {
    for (size_t v = 0; v < kValues; ++v) {
      constant_[v] += solved[n][j] * values_[j][v];
      for (size_t i = 0; i < n; ++i) weights_[i][v] += solved[i][j] * values_[j][v];
    }
  }
  // Rippa: leaving a place out changes the value there by its weight over the inverse's diagonal.
  left_out_ = values_;
  for (size_t i = 0; i < n; ++i) {
    for (size_t v = 0; v < kValues; ++v) {
      double least = INFINITY, most = -INFINITY;
      for (size_t j = 0; j < n; ++j) {
        if (j == i) continue;
        least = std::min(least, values_[j][v]);
        most = std::max(most, values_[j][v]);
      }
      left_out_[i][v] = std::clamp(values_[i][v] - weights_[i][v] / solved[i][i], least, most);
    }
  }
}

ScatteredTable::Values ScatteredTable::at(const Place& place) const {
  Values result = constant_;
  for (size_t i = 0; i < places_.size(); ++i) {
    const double r = distance(place, places_[i]);
    for (size_t v = 0; v < kValues; ++v) result[v] += r * weights_[i][v];
  }
  for (size_t v = 0; v < kValues; ++v) result[v] = std::clamp(result[v], least_[v], most_[v]);
  return result;
}

}  // namespace weft
