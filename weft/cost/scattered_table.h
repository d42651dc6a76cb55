#pragma once

#include <array>
#include <vector>

namespace weft {

/// Values that are known at some places of a plane, and interpolated between them: each place pulls with its distance
/// (a radial basis of |r| and a constant). On a line this is the polygon through the places, constant beyond its ends;
/// in the plane it needs neither a grid nor rows. It passes through every value.
class ScatteredTable {
 public:
  static constexpr size_t kValues = 6;
  using Values = std::array<double, kValues>;
  struct Place {
    double x = 0;
    double y = 0;
  };

  ScatteredTable() = default;
  /// Places that coincide have the mean of their values; of very many, neighbours are joined.
  ScatteredTable(const std::vector<Place>& places, const std::vector<Values>& values);

  /// Never beyond the values that are known.
  Values at(const Place& place) const;
  size_t size() const { return places_.size(); }
  const std::vector<Place>& places() const { return places_; }
  const std::vector<Values>& values() const { return values_; }
  /// What would be read at a place if it were not known itself, by place. Nothing for a single one.
  const std::vector<Values>& left_out() const { return left_out_; }

 private:
  std::vector<Place> places_;
  std::vector<Values> values_;
  std::vector<Values> weights_;
  Values constant_{}, least_{}, most_{};
  std::vector<Values> left_out_;
};

}  // namespace weft
