#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "weft/mesh/layout.h"

namespace weft {

/// A set of mesh axes as bits.
using AxisMask = uint32_t;

/// Every way in which one dim may be cut on the way from one layout to another: over any axes, balanced or with the
/// sizes of the parts that the first or the last layout has. A cut is known by a number; 0 is the whole dim.
/// Axes of size 1 cut nothing and do not appear. Worked out when first asked for.
class DimCuts {
 public:
  /// How a finer cut lies in a coarser one, by the place among the axes that only the finer one is cut over.
  struct Refinement {
    bool holds = false;                 ///< every fine part lies in the coarse part of the same ranks
    int64_t most_missing = 0;           ///< largest coarse part less the fine part in it
    std::vector<int64_t> missing;       ///< the same by place
    std::vector<int64_t> longest_fine;  ///< by place
  };

  DimCuts(const AxisGrid& grid, size_t dim, const Layout& from, const Layout& to);

  AxisMask mask(size_t cut) const { return cuts_[cut].mask; }
  const Split& split(size_t cut) const { return cuts_[cut].split; }
  int64_t longest_part(size_t cut) const { return cuts_[cut].longest_part; }
  /// The cuts over exactly these axes.
  const std::vector<size_t>& over(AxisMask mask);
  /// The cut of a layout. It must be one of the two given ones.
  size_t of(const Layout& layout);
  /// coarse's axes must be some of fine's.
  const Refinement& refinement(size_t fine, size_t coarse);
  /// The most that a rank lacks of its part in `to` when it has its part in `from`, both over the same axes.
  int64_t most_missing_after(size_t from, size_t to);

 private:
  struct Cut {
    AxisMask mask = 0;
    Split split;
    int64_t longest_part = 0;
    std::vector<Range> parts;  ///< empty until asked for
  };
  /// Sizes that a layout gives to the parts of this dim.
  struct Ragged {
    std::vector<size_t> axes;  ///< outermost first
    Split split;
  };

  /// Outermost first.
  std::vector<size_t> axes_of(AxisMask mask) const;
  std::vector<int64_t> counts_of(AxisMask mask) const;
  void add(AxisMask mask, Split split, std::vector<size_t>& cuts);
  void add_ragged(AxisMask mask, const Ragged& ragged, std::vector<size_t>& cuts);
  const std::vector<Range>& parts(size_t cut);
  Refinement refine(size_t fine, size_t coarse);
  Refinement refine_balanced(const Split& coarse, AxisMask inner) const;

  const AxisGrid& grid_;
  size_t dim_;
  int64_t length_;
  std::vector<Ragged> ragged_;
  std::vector<Cut> cuts_;
  std::map<AxisMask, std::vector<size_t>> by_mask_;
  std::map<std::pair<size_t, size_t>, Refinement> refinements_;
};

/// A layout's sharding axes of one dim, without those of size 1.
AxisMask shard_mask(const Layout& layout, size_t dim);

}  // namespace weft
