#pragma once

#include <functional>
#include <vector>

#include "weft/mesh/transition.h"

namespace weft {

/// A transition between states of a mesh's axes for tensors of any lengths: the steps follow from the states alone, so
/// that ragged rows need no search. They are the cheapest ones for lengths that every cut divides evenly into parts:
/// these lie inside of each other only if those of all lengths do.
class TransitionForm {
 public:
  /// The layout of a tensor with given states.
  using LayoutOf = std::function<Layout(const std::vector<AxisState>& states)>;

  TransitionForm() = default;
  TransitionForm(const AxisGrid& grid, size_t num_dims, const std::vector<AxisState>& from,
                 const std::vector<AxisState>& to);

  /// Every rank has in the end what it had, forward and backward.
  bool is_plain() const;
  /// The way there, and back, of a tensor with such layouts.
  std::vector<Step> forward(const LayoutOf& layout_of) const { return at(forward_, layout_of); }
  std::vector<Step> adjoint(const LayoutOf& layout_of) const { return at(adjoint_, layout_of); }

 private:
  static std::vector<Step> at(const std::vector<Step>& steps, const LayoutOf& layout_of);

  std::vector<Step> forward_;
  std::vector<Step> adjoint_;
};

}  // namespace weft
