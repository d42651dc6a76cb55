#include "weft/cost/scattered_table.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace weft::scattered_table_test {
namespace {

using Place = ScatteredTable::Place;
using Values = ScatteredTable::Values;

Values value(double v) {
  Values values{};
  values[0] = v;
  return values;
}

TEST(ScatteredTable, OnALineIsThePolygonThroughItsPlaces) {
  const ScatteredTable table({{0, 2}, {4, 2}, {1, 2}}, {value(1), value(-1), value(3)});
  for (const auto& [x, expected] : {std::pair{-5.0, 1.0}, {0, 1}, {0.25, 1.5}, {1, 3}, {2.5, 1}, {4, -1}, {9, -1}})
    EXPECT_NEAR(table.at({x, 2})[0], expected, 1e-9) << x;
}

TEST(ScatteredTable, PassesThroughEveryPlaceOfThePlane) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(0, 5);
  std::vector<Place> places;
  std::vector<Values> values;
  for (int i = 0; i < 60; ++i) {
    places.push_back({uniform(random), uniform(random)});
    values.push_back(value(std::sin(places.back().x) + places.back().y));
  }
  const ScatteredTable table(places, values);
  for (size_t i = 0; i < places.size(); ++i) EXPECT_NEAR(table.at(places[i])[0], values[i][0], 1e-7);
}

TEST(ScatteredTable, LeavesOutAsIfAPlaceWereNotKnown) {
  const std::vector<Place> places = {{0, 0}, {1, 0.5}, {2, 3}, {4, 1}, {2.5, 2}};
  std::vector<Values> values;
  for (const Place& place : places) values.push_back(value(place.x * place.x - place.y));
  const ScatteredTable table(places, values);
  for (size_t i = 0; i < table.size(); ++i) {
    std::vector<Place> others;
    std::vector<Values> others_values;
    for (size_t j = 0; j < table.size(); ++j) {
      if (j == i) continue;
      others.push_back(table.places()[j]);
      others_values.push_back(table.values()[j]);
    }
    const double expected = ScatteredTable(others, others_values).at(table.places()[i])[0];
    EXPECT_NEAR(table.left_out()[i][0], expected, 1e-9);
  }
}

TEST(ScatteredTable, HasTheMeanWherePlacesCoincideAndStaysSmall) {
  EXPECT_NEAR(ScatteredTable({{1, 1}, {1, 1}}, {value(2), value(4)}).at({3, 3})[0], 3, 1e-12);
  std::vector<Place> places;
  std::vector<Values> values;
  for (int i = 0; i < 2000; ++i) {
    places.push_back({i * 1e-3, 0});
    values.push_back(value(i));
  }
  const ScatteredTable table(places, values);
  EXPECT_LE(table.size(), 128u);
  EXPECT_NEAR(table.at({1, 0})[0], 1000, 20);
}

}  // namespace
}  // namespace weft::scattered_table_test
