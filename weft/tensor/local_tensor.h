#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/check.h"
#include "weft/comm/buffer.h"
#include "weft/mesh/box.h"

namespace weft {

// A tensor that one rank holds, as communication sees it: memory, and blocks of it.

/// A tensor that does not fit what it is used for on its own rank: its shape, type or device.
class TensorMisuse : public InternalError {
  using InternalError::InternalError;
};

/// What a tensor must be on one rank.
struct ExpectedTensor {
  std::vector<int64_t> shape;
  std::optional<at::ScalarType> type;  ///< none: any that groups can move
  std::optional<at::Device> device;    ///< none: any that groups could move
};

/// Throws a TensorMisuse that names the rank, what `what` is, what the tensor is and what was expected.
void check_tensor(const at::Tensor& x, const ExpectedTensor& expected, int64_t rank, const std::string& what);

/// Nothing for types that groups cannot move.
std::optional<DataType> data_type_of(at::ScalarType type);

/// A contiguous tensor's memory, ordered with the work of the current stream on a GPU.
Buffer buffer_of(const at::Tensor& x);

/// Whether nobody else has a hold of a tensor's memory, which lies in one piece.
bool is_own(const at::Tensor& x);

/// "[3, 4]".
std::string shape_text(std::span<const int64_t> shape);

/// `part`, which lies inside `whole`, with indices that count from where `whole` begins. Empty parts lie anywhere.
Box relative_box(const Box& part, const Box& whole);

/// Where a block of a contiguous tensor begins, if it is one stretch of its memory. Empty blocks begin at 0.
std::optional<int64_t> stretch_begin(const Box& block, std::span<const int64_t> shape);

/// A block of a tensor, as a view.
at::Tensor block_of(const at::Tensor& x, const Box& block);

/// Blocks of a tensor of one shape, one after the other.
class Blocks {
 public:
  Blocks() = default;
  Blocks(std::vector<Box> boxes, std::vector<int64_t> shape);

  /// The elements of each.
  const std::vector<int64_t>& counts() const { return counts_; }
  /// All of a tensor's blocks in contiguous memory; the tensor itself where it is that already.
  at::Tensor pack(const at::Tensor& x) const;
  /// The tensor that `packed` is packed from. The blocks must be all of it.
  at::Tensor unpack(const at::Tensor& packed) const;

 private:
  std::vector<Box> boxes_;
  std::vector<int64_t> shape_;
  std::vector<int64_t> counts_;
  int64_t num_elements_ = 0;
  bool are_in_order_ = false;  ///< as they lie in the tensor's memory, without gaps
};

}  // namespace weft
