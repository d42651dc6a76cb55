#pragma once

#include "weft/layers/parameter.h"

namespace weft {

/// One of the ranks that tensor parallelism spreads a module over.
struct TensorShare {
  int64_t num_ranks = 1;
  int64_t rank = 0;
};

/// The part of a parameter that a rank holds: the same pieces, smaller.
ParameterSpec cut_parameter(const ParameterSpec& whole, const TensorShare& share);

/// What a rank holds of a parameter of all experts: an equal part of them, in order. Others stay as they are.
ParameterSpec cut_experts(const ParameterSpec& whole, const TensorShare& share);

/// How many ranks hold the same elements of a piece, and which of them this is.
struct PieceCopies {
  int64_t count = 1;
  int64_t place = 0;
};
PieceCopies copies_of(const WeightPiece& piece, const TensorShare& share);

/// Makes a rank's parts of parameters. They are shapes: an optimizer gives them memory.
class CutParameters : public ParameterMaker {
 public:
  /// `of_expert`: how tensor parallelism cuts one expert.
  CutParameters(at::TensorOptions options, TensorShare share, TensorShare experts, TensorShare of_expert)
      : whole_(options, ValueMemory::kLater), share_(share), experts_(experts), of_expert_(of_expert) {}

  ParameterPtr make(ParameterSpec spec) override {
    const bool is_expert = !spec.pieces.empty() && spec.pieces.front().is_expert;
    ParameterSpec own = cut_parameter(cut_experts(spec, experts_), is_expert ? of_expert_ : share_);
    // Whole experts of tensor-parallel ranks are others' on each of them, not copies.
    if (is_expert && of_expert_.num_ranks < share_.num_ranks) {
      for (WeightPiece& piece : own.pieces) piece.cut.unit = CutUnit::kElements;
    }
    return whole_.make(std::move(own));
  }
  void next_block() override { block_begins_.push_back(all().size()); }
  const std::vector<ParameterPtr>& all() const { return whole_.all(); }
  /// The place in all() at which each block begins but the first.
  const std::vector<size_t>& block_begins() const { return block_begins_; }

 private:
  WholeParameters whole_;
  TensorShare share_;
  TensorShare experts_;
  TensorShare of_expert_;
  std::vector<size_t> block_begins_;
};

}  // namespace weft
