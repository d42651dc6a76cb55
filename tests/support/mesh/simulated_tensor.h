#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "weft/mesh/step.h"

namespace weft {

/// A tensor of doubles as all ranks of a mesh hold it, in one process: what steps mean, spelled out. The proofs of the
/// transitions run on it, and whatever executes them on real tensors can be compared with it.
struct SimulatedTensor {
  Layout layout;
  std::vector<std::vector<double>> local;  ///< by position, the elements of its box in row-major order
};

/// Elements in a layout from a source of numbers: copies are equal, everything else is drawn anew.
SimulatedTensor fill(const Layout& layout, const std::function<double()>& draw);

/// The tensor that all ranks hold together, in row-major order. Copies must be equal.
std::vector<double> logical_value(const SimulatedTensor& tensor);

/// The inner product of a tensor and its gradient (which has the gradient's layout): a copy with a replicated gradient
/// counts once, everything else counts on every rank.
double pairing(const SimulatedTensor& tensor, const SimulatedTensor& gradient);

/// Every rank does its part: local steps look at the rank's own elements, collectives at those of its group.
SimulatedTensor execute(const Step& step, const SimulatedTensor& tensor);
SimulatedTensor execute(std::span<const Step> steps, SimulatedTensor tensor);

/// Adds to `target`, which holds the elements of `target_box`, the elements that `source` has of it in `part`.
void add_part(const Box& part, std::span<const double> source, const Box& source_box, std::span<double> target,
              const Box& target_box);

}  // namespace weft
