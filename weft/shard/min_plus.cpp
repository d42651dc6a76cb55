#include "weft/shard/min_plus.h"

#include <limits>
#include <optional>

namespace weft {

MinPlusPower::MinPlusPower(size_t num_states, std::vector<double> costs, int64_t count) : num_states_(num_states) {
  matrices_.push_back({.costs = std::move(costs), .between = {}});
  std::optional<size_t> power;
  size_t square = 0;
  for (int64_t left = count; left > 0; left /= 2) {
    if (left % 2 == 1) {
      if (!power) {
        power = square;
      } else {
        matrices_.push_back(product(*power, square));
        power = matrices_.size() - 1;
      }
    }
    if (left > 1) {
      matrices_.push_back(product(square, square));
      square = matrices_.size() - 1;
    }
  }
  total_ = matrices_[*power];
}

MinPlusPower::Matrix MinPlusPower::product(size_t left, size_t right) const {
  const size_t n = num_states_;
  Matrix made{.costs = std::vector<double>(n * n, std::numeric_limits<double>::infinity()),
              .between = std::vector<uint32_t>(n * n, 0),
              .left = left,
              .right = right,
              .layers = matrices_[left].layers + matrices_[right].layers};
  for (size_t from = 0; from < n; ++from) {
    for (size_t mid = 0; mid < n; ++mid) {
      const double head = matrices_[left].costs[from * n + mid];
      if (head == std::numeric_limits<double>::infinity()) continue;
      for (size_t to = 0; to < n; ++to) {
        const double way = head + matrices_[right].costs[mid * n + to];
        if (way < made.costs[from * n + to]) {
          made.costs[from * n + to] = way;
          made.between[from * n + to] = static_cast<uint32_t>(mid);
        }
      }
    }
  }
  return made;
}

void MinPlusPower::walk(const Matrix& matrix, size_t from, size_t to, std::vector<size_t>& states) const {
  if (matrix.between.empty()) {
    states.push_back(to);
    return;
  }
  const size_t mid = matrix.between[from * num_states_ + to];
  walk(matrices_[matrix.left], from, mid, states);
  walk(matrices_[matrix.right], mid, to, states);
}

std::vector<size_t> MinPlusPower::path(size_t from, size_t to) const {
  std::vector<size_t> states{from};
  walk(total_, from, to, states);
  return states;
}

}  // namespace weft
