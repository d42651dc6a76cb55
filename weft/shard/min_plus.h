#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

/// Least costs from one state to another through one layer, and through many of them: powers in which sums are minima
/// and products are sums.
class MinPlusPower {
 public:
  /// `costs` of one layer, by state before and state after.
  MinPlusPower(size_t num_states, std::vector<double> costs, int64_t count);

  double cost(size_t from, size_t to) const { return total_.costs[from * num_states_ + to]; }
  /// The states before, between and after the layers.
  std::vector<size_t> path(size_t from, size_t to) const;

 private:
  struct Matrix {
    std::vector<double> costs;
    std::vector<uint32_t> between;  ///< of a product: the state in the middle
    size_t left = 0;                ///< matrices that it is the product of
    size_t right = 0;
    int64_t layers = 1;
  };

  Matrix product(size_t left, size_t right) const;
  void walk(const Matrix& matrix, size_t from, size_t to, std::vector<size_t>& states) const;

  size_t num_states_;
  std::vector<Matrix> matrices_;
  Matrix total_;
};

}  // namespace weft
