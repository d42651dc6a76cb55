#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/mesh/axis_grid.h"
#include "weft/mesh/box.h"
#include "weft/mesh/split.h"

namespace weft {

/// What the ranks along one mesh axis hold of a tensor, and what they will hold of its gradient. The last two states
/// look alike going forward and differ going back; see docs/design/layout-transitions.md.
enum class Spread : uint8_t {
  kShard,                  ///< each a part of one dim; so is the gradient
  kPartial,                ///< each a summand: the tensor is their sum; the gradient is the same on all
  kReplicated,             ///< each a copy; the gradient is the same on all
  kReplicatedPartialGrad,  ///< each a copy, used for different work: the gradient is the sum of what they hold
};

/// A layout's state on one mesh axis.
struct AxisState {
  Spread spread = Spread::kReplicated;
  size_t dim = 0;  ///< that is sharded; 0 otherwise

  static AxisState shard(size_t dim) { return {Spread::kShard, dim}; }
  static AxisState partial() { return {Spread::kPartial}; }
  static AxisState replicated() { return {Spread::kReplicated}; }
  static AxisState replicated_partial_grad() { return {Spread::kReplicatedPartialGrad}; }

  bool is_shard() const { return spread == Spread::kShard; }
  bool is_partial() const { return spread == Spread::kPartial; }
  bool is_replicated() const { return spread == Spread::kReplicated || spread == Spread::kReplicatedPartialGrad; }
  /// The state of the gradient. Twice is the state itself.
  AxisState gradient() const;
  /// "shard 1", "partial", "replicated" or "replicated with partial gradient".
  std::string text() const;

  bool operator==(const AxisState&) const = default;
};

/// The sizes of all parts of one sharded dim, where they are not the balanced ones. See Split for their order.
struct PartSizes {
  size_t dim = 0;
  std::vector<int64_t> sizes;
};

/// Where one logical tensor is on a mesh: its shape and a state for every axis of the mesh's grid. Several axes may
/// shard one dim; the outer axis of the mesh then cuts first, so ranks next to each other hold rows next to each other.
class Layout {
 public:
  static constexpr size_t kMostDims = 8;
  static constexpr int64_t kMostElements = int64_t{1} << 53;

  static Result<Layout> create(AxisGrid grid, std::vector<int64_t> shape, std::vector<AxisState> states,
                               const std::vector<PartSizes>& part_sizes = {});
  /// Of states and dims that are known to fit together: a split for every dim over exactly the axes that shard it.
  static Layout of_splits(AxisGrid grid, std::vector<AxisState> states, std::vector<Split> splits);

  const AxisGrid& grid() const { return grid_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  size_t num_dims() const { return shape_.size(); }
  const std::vector<AxisState>& states() const { return states_; }
  const AxisState& state(size_t axis) const { return states_[axis]; }
  AxisList partial_axes() const;
  AxisList replicated_axes() const;
  /// The axes that shard a dim, innermost first, and how.
  const AxisList& shard_axes(size_t dim) const { return shard_axes_[dim]; }
  const Split& split(size_t dim) const { return splits_[dim]; }

  /// What the rank at a position of the grid holds.
  Range range(size_t dim, int64_t position) const;
  Box box(int64_t position) const;
  std::vector<int64_t> local_shape(int64_t position) const;
  int64_t num_local_elements(int64_t position) const;
  int64_t num_elements() const;

  /// The layout of the gradient of a tensor with this layout. Its own gradient is this layout again.
  Layout gradient() const;

  /// "[6, 4] on tp 2 × dp 3: tp shard 1, dp partial", with the sizes of parts that are not balanced.
  std::string text() const;

  bool operator==(const Layout& other) const {
    return grid_ == other.grid_ && shape_ == other.shape_ && states_ == other.states_ && splits_ == other.splits_;
  }

 private:
  Layout() = default;

  AxisGrid grid_;
  std::vector<int64_t> shape_;
  std::vector<AxisState> states_;     ///< per axis
  std::vector<AxisList> shard_axes_;  ///< per dim
  std::vector<Split> splits_;         ///< per dim
};

}  // namespace weft
