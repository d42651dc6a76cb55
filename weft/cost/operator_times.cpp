#include "weft/cost/operator_times.h"

#include <algorithm>
#include <cmath>

#include "weft/base/as_double.h"

namespace weft {
namespace {

double elements_of(const std::vector<int64_t>& lengths) {
  double elements = 1;
  for (const int64_t length : lengths) elements *= as_double(length);
  return elements;
}

/// What times of one operator grow with: numbers that a product multiplies, pairs of rows of attention, and otherwise
/// elements.
double work_of(const OperatorPart& part) {
  const auto lengths = lengths_in(part.parts);
  if (!lengths) return 0;
  double sum = 0, product = 1;
  for (const std::vector<int64_t>& tensor : *lengths) {
    sum += elements_of(tensor);
    product *= elements_of(tensor);
  }
  if (part.op.starts_with("einsum(") && lengths->size() == 3) return std::sqrt(product);
  if (part.op.starts_with("attention(") && lengths->front().size() > 1)
    return sum * as_double(*(lengths->front().end() - 2));
  return sum;
}

bool is_nearer(int64_t busy, int64_t than, int64_t wanted) {
  if ((busy <= wanted) != (than <= wanted)) return busy <= wanted;
  return busy <= wanted ? busy > than : busy < than;
}

}  // namespace

OperatorTimes::OperatorTimes(const Profile& profile, int64_t busy_ranks) : precision_(profile.precision) {
  for (const OperatorMeasurement& m : profile.operators) {
    const Measured measured{.parts = m.part.parts,
                            .work = work_of(m.part),
                            .busy_ranks = m.busy_ranks,
                            .time = {.forward_ms = m.forward_ms,
                                     .input_gradient_ms = m.backward_input_ms,
                                     .weight_gradient_ms = m.backward_weight_ms}};
    std::vector<Measured>& all = parts_[{m.part.op, m.part.inside}];
    const auto same =
        std::find_if(all.begin(), all.end(), [&](const Measured& other) { return other.parts == measured.parts; });
    if (same == all.end()) {
      all.push_back(measured);
    } else if (is_nearer(m.busy_ranks, same->busy_ranks, busy_ranks)) {
      *same = measured;
    }
  }
}

std::optional<OperatorTimes::Found> OperatorTimes::find(const OperatorPart& part) const {
  const auto known = parts_.find({part.op, part.inside});
  if (known == parts_.end()) return std::nullopt;
  for (const Measured& measured : known->second) {
    if (measured.parts == part.parts) return Found{.time = measured.time};
  }
  const double work = work_of(part);
  const auto distance = [&](const Measured& m) {
    return work > 0 && m.work > 0 ? std::abs(std::log(m.work / work)) : INFINITY;
  };
  const Measured& nearest =
      *std::min_element(known->second.begin(), known->second.end(),
                        [&](const Measured& a, const Measured& b) { return distance(a) < distance(b); });
  if (!std::isfinite(distance(nearest))) return std::nullopt;
  Found found{.time = nearest.time, .is_scaled = true};
  for (double* ms : {&found.time.forward_ms, &found.time.input_gradient_ms, &found.time.weight_gradient_ms})
    *ms *= work / nearest.work;
  return found;
}

}  // namespace weft
