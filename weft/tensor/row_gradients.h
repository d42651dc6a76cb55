#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/mesh/layout.h"

namespace weft {

/// The gradient of one macro batch on one rank of the mesh that made it, put together from parts that come back over
/// bridges at different times and in any order. Complete when all have come; then the backward that it is for may run.
class RowGradients {
 public:
  /// What there is to be put together.
  struct Description {
    Layout layout;             ///< of the macro batch (not of its gradient)
    int64_t rank = 0;          ///< in the world, for messages
    int64_t position = 0;      ///< of the rank in the layout's grid
    size_t dim = 0;            ///< that has the rows
    std::vector<Range> parts;  ///< rows of each part, of the whole macro batch. Rows of no part have gradient 0
    at::TensorOptions options;
  };
  explicit RowGradients(Description description);

  /// Adds what this rank gets of one part's gradient: its rows that are among the part's, maybe none. A part comes
  /// once. The tensor may be kept as it is.
  void add(size_t part, const at::Tensor& gradient);

  int64_t num_missing() const { return num_missing_; }
  bool is_complete() const { return num_missing_ == 0; }
  /// The gradient of all that this rank holds. It must be complete, and is given away.
  at::Tensor take();

 private:
  std::string missing_text() const;

  Description description_;
  std::vector<int64_t> shape_;
  std::vector<bool> has_come_;
  int64_t num_missing_;
  at::Tensor sum_;      ///< none until something that is not empty has come
  bool is_own_ = true;  ///< memory that nobody else sees
  bool is_taken_ = false;
};

}  // namespace weft
