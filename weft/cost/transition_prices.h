#pragma once

#include <vector>

#include "weft/cost/axis_links.h"
#include "weft/cost/layout_codes.h"
#include "weft/program/program.h"

namespace weft {

/// One step on the way from a layout to another: what happens over which axes.
struct PricedStep {
  StepKind kind = StepKind::kIdentity;
  unsigned axes = 0;  ///< bit a is axis a
  size_t dim = 0;     ///< that is cut or joined
  size_t to_dim = 0;  ///< that an all-to-all cuts
  size_t before = 0;  ///< codes of layouts
  size_t after = 0;
  double bytes = 0;  ///< that a rank has of the tensor, where it has more of it
  double ms = 0;
};

/// The fastest steps between any two layouts of a tensor, by the links of the axes that they run over.
class TransitionPrices {
 public:
  /// `dims` are those of the tensor. Kinds of steps in `forbidden` are not used.
  TransitionPrices(const AxisLinks& links, const std::vector<ProgramDim>& dims, double bytes_per_element,
                   const std::vector<StepKind>& forbidden);

  const LayoutCodes& codes() const { return codes_; }
  double ms(size_t from, size_t to) const { return ms_[from * codes_.count() + to]; }
  std::vector<PricedStep> steps(size_t from, size_t to) const;
  /// The layout of the gradient of a value in a layout.
  size_t gradient(size_t code) const { return gradients_[code]; }
  /// Elements that are kept of a value that is made in one layout and read in another: as it was made, but summands as
  /// they are read.
  double kept_elements(size_t made, size_t read) const { return kept_[made * codes_.count() + read]; }
  /// Elements of the rank that has most.
  double local_elements(size_t code) const { return elements_[code]; }

 private:
  void add_steps(const AxisLinks& links, size_t from);
  void add_step(const AxisLinks& links, StepKind kind, unsigned axes, size_t from, size_t to, size_t dim,
                size_t to_dim);

  LayoutCodes codes_;
  double bytes_per_element_;
  std::vector<StepKind> forbidden_;
  std::vector<double> elements_;
  std::vector<size_t> gradients_;
  std::vector<double> kept_;       ///< by made and read
  std::vector<double> ms_;         ///< by from and to
  std::vector<uint32_t> first_;    ///< the first step of the way, in steps_
  std::vector<PricedStep> steps_;  ///< all single steps
};

/// Elements of a dim's largest part when it is cut into so many.
double largest_part(const ProgramDim& dim, int64_t parts);

}  // namespace weft
