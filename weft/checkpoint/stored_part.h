#pragma once

#include <string>
#include <vector>

#include "weft/optim/stage_optimizer.h"

namespace weft {

/// Elements of one weight that a file of a checkpoint keeps, flat: the weight itself and, if it is trained, both
/// moments.
struct StoredPart {
  WeightPiece piece;      ///< rows, and columns where it is cut, of the named weight; how it may be cut is not kept
  ElementRange elements;  ///< of the piece, flattened
  std::string tensor;     ///< what its tensors are called in the file, before the names below
  bool is_trained = true;
  int64_t updates = -1;  ///< that its moments are of; -1: all of the checkpoint's
};

/// What follows `tensor` in the names of a part's tensors.
inline constexpr const char* kValueName = ".value";
inline constexpr const char* kMoment1Name = ".moment1";
inline constexpr const char* kMoment2Name = ".moment2";

/// A box of a weight's elements, which is seen as rows, and where a flat part keeps it.
struct PartBox {
  ElementRange rows;
  ElementRange columns;    ///< elements of a whole row
  int64_t first = 0;       ///< place in the part of the box's first element
  int64_t row_stride = 0;  ///< and how far its next row is from it
};

/// The boxes that consecutive elements of a piece are, three at most: a row's end, whole rows, a row's beginning.
std::vector<PartBox> boxes_of(const WeightPiece& piece, const ElementRange& elements);

/// A box that two parts have in common.
struct BoxCopy {
  int64_t num_rows = 0;
  int64_t num_columns = 0;
  int64_t to = 0;
  int64_t to_stride = 0;
  int64_t from = 0;
  int64_t from_stride = 0;
};

/// What there is in `from` of the elements that are still missing, which then are no longer.
std::vector<BoxCopy> take_common(std::vector<PartBox>& missing, const std::vector<PartBox>& from);

/// Copies between flat tensors of any type and device.
void copy_box(const BoxCopy& copy, const at::Tensor& to, const at::Tensor& from);
/// What the box is of a flat tensor that it goes to.
void zero_box(const BoxCopy& copy, const at::Tensor& to);

}  // namespace weft
