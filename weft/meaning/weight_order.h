#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace weft {

/// What an action does with the weights of one of its stage's blocks.
enum class WeightStep : uint8_t {
  kGather,       ///< its values must be there
  kStartGather,  ///< they should be on their way
  kRelease,      ///< they may go
  kExpect,       ///< gradients of its weights are made from now on
  kComplete,     ///< gradients of its weights, and of all blocks behind it, are complete
};

/// In which order: the values of a block are there while it runs, and those of the block that runs next are on their
/// way. It does not depend on what data a microbatch has, so that data-parallel ranks communicate alike. `visit` takes
/// a WeightStep and a block.
class WeightOrder {
 public:
  /// By block of a stage. Backwards do not reach blocks without one.
  explicit WeightOrder(std::vector<bool> has_backward) : has_backward_(std::move(has_backward)) {}

  size_t num_blocks() const { return has_backward_.size(); }

  template <typename Visit>
  void before_forward(size_t block, Visit visit) const {
    visit(WeightStep::kGather, block);
    if (block + 1 < num_blocks()) visit(WeightStep::kStartGather, block + 1);
  }
  template <typename Visit>
  void after_forward(size_t block, Visit visit) const {
    visit(WeightStep::kRelease, block);
  }

  void begin_backward() { backward_at_ = num_blocks(); }
  /// The block that the backward is in, or behind which it begins.
  size_t backward_at() const { return backward_at_; }
  /// The backward has come to a block, past those between.
  template <typename Visit>
  void reach(size_t block, Visit visit) {
    while (backward_at_ > block) {
      if (backward_at_ < num_blocks()) leave(backward_at_, visit);
      enter(--backward_at_, visit);
    }
  }
  template <typename Visit>
  void end_backward(Visit visit) {
    reach(0, visit);
    if (num_blocks() > 0) leave(0, visit);
  }

 private:
  template <typename Visit>
  void enter(size_t block, Visit& visit) const {
    if (!has_backward_[block]) return;
    visit(WeightStep::kGather, block);
    if (block > 0 && has_backward_[block - 1]) visit(WeightStep::kStartGather, block - 1);
    visit(WeightStep::kExpect, block);
  }
  template <typename Visit>
  void leave(size_t block, Visit& visit) const {
    if (!has_backward_[block]) return;
    visit(WeightStep::kComplete, block);
    visit(WeightStep::kRelease, block);
  }

  std::vector<bool> has_backward_;
  size_t backward_at_ = 0;
};

/// Of blocks that have a `has_backward`.
template <typename Blocks>
WeightOrder weight_order(const Blocks& blocks) {
  std::vector<bool> has_backward;
  for (const auto& block : blocks) has_backward.push_back(block.has_backward);
  return WeightOrder(std::move(has_backward));
}

}  // namespace weft
