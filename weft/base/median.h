#pragma once

#include <vector>

namespace weft {

/// 0 of no values.
double median_of(std::vector<double> values);

/// How far the median of as many values of the same kind may lie from this one, in 95 of 100 cases: half the distance
/// between the two order statistics that enclose it, which asks nothing of how values are distributed, or between the
/// least and the most where there are fewer than six.
double median_error(std::vector<double> values);

}  // namespace weft
