#include "weft/tensor/row_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "weft/tensor/local_tensor.h"
#include "weft/tensor/rows.h"

namespace weft {

RowGradients::RowGradients(Description description)
    : description_(std::move(description)),
      shape_(description_.layout.local_shape(description_.position)),
      has_come_(description_.parts.size(), false),
      num_missing_(static_cast<int64_t>(description_.parts.size())) {
  for (const Range& rows : description_.parts) {
    WEFT_CHECK(rows.begin <= rows.end && rows.is_inside({0, description_.layout.shape()[description_.dim]}),
               "rank {}: a part of rows {} to {}, expected rows of {}", description_.rank, rows.begin, rows.end,
               description_.layout.text());
  }
}

void RowGradients::add(size_t part, const at::Tensor& gradient) {
  const Description& d = description_;
  const std::string what = fmt::format("gradient of part {} of {} of a macro batch", part, d.parts.size());
  const auto refuse = [&](const std::string& mistake) {
    throw TensorMisuse(fmt::format("rank {}, {}: {}", d.rank, what, mistake));
  };
  if (part >= d.parts.size()) refuse(fmt::format("expected parts 0 to {}", std::ssize(d.parts) - 1));
  if (has_come_[part]) refuse("it has come before, expected every part once");
  const Range rows = local_rows(d.layout, d.dim, d.parts[part], d.position);
  std::vector<int64_t> part_shape = shape_;
  part_shape[d.dim] = rows.size();
  check_tensor(gradient, {.shape = part_shape, .type = d.options.dtype().toScalarType(), .device = d.options.device()},
               d.rank, what);

  const at::NoGradGuard no_grad;
  if (gradient.numel() > 0 && !sum_.defined() && part_shape == shape_) {
    sum_ = gradient.detach();  // most often the only part that this rank has rows of
    is_own_ = false;
  } else if (gradient.numel() > 0) {
    if (!sum_.defined()) sum_ = at::zeros(shape_, d.options);
    if (!is_own_) sum_ = sum_.clone();
    is_own_ = true;
    sum_.narrow(static_cast<int64_t>(d.dim), rows.begin, rows.size()).add_(gradient);
  }
  has_come_[part] = true;
  --num_missing_;
}

at::Tensor RowGradients::take() {
  if (is_taken_ || !is_complete()) {
    throw TensorMisuse(fmt::format("rank {}, gradient of a macro batch of {} parts: {}", description_.rank,
                                   description_.parts.size(),
                                   is_taken_ ? "it was taken before, expected once" : missing_text()));
  }
  is_taken_ = true;
  if (!sum_.defined()) sum_ = at::zeros(shape_, description_.options);
  return std::move(sum_);
}

std::string RowGradients::missing_text() const {
  std::string text;
  for (size_t part = 0; part < has_come_.size(); ++part) {
    if (!has_come_[part]) text += (text.empty() ? "" : ", ") + std::to_string(part);
  }
  return fmt::format("parts {} are missing, expected all", text);
}

}  // namespace weft
