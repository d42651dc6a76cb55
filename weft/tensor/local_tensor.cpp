#include "weft/tensor/local_tensor.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace weft {
namespace {

[[noreturn]] void refuse(int64_t rank, const std::string& what, const std::string& mistake) {
  throw TensorMisuse(fmt::format("rank {}, {}: {}", rank, what, mistake));
}

}  // namespace

void check_tensor(const at::Tensor& x, const ExpectedTensor& expected, int64_t rank, const std::string& what) {
  if (!x.defined()) refuse(rank, what, fmt::format("there is no tensor, expected {}", shape_text(expected.shape)));
  if (x.layout() != at::kStrided) refuse(rank, what, "the tensor is sparse, expected a dense one");
  if (x.sizes() != at::IntArrayRef(expected.shape)) {
    refuse(rank, what,
           fmt::format("the tensor is {}, expected {}", shape_text({x.sizes().data(), x.sizes().size()}),
                       shape_text(expected.shape)));
  }
  if (!data_type_of(x.scalar_type())) {
    refuse(rank, what,
           fmt::format("the tensor is {}, expected Double, Float, BFloat16, Half, Long, Int, Byte or Bool",
                       c10::toString(x.scalar_type())));
  }
  if (expected.type && x.scalar_type() != *expected.type) {
    refuse(rank, what,
           fmt::format("the tensor is {}, expected {}", c10::toString(x.scalar_type()), c10::toString(*expected.type)));
  }
  if (!x.is_cpu() && !x.is_cuda()) {
    refuse(rank, what, fmt::format("the tensor is on {}, expected cpu or cuda", x.device().str()));
  }
  const bool is_elsewhere = expected.device && (x.device().type() != expected.device->type() ||
                                                (expected.device->has_index() && x.device() != *expected.device));
  if (is_elsewhere) {
    refuse(rank, what, fmt::format("the tensor is on {}, expected {}", x.device().str(), expected.device->str()));
  }
}

std::optional<DataType> data_type_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return DataType::kFp64;
    case at::kFloat:
      return DataType::kFp32;
    case at::kBFloat16:
      return DataType::kBf16;
    case at::kHalf:
      return DataType::kFp16;
    case at::kLong:
      return DataType::kInt64;
    case at::kInt:
      return DataType::kInt32;
    case at::kByte:
      return DataType::kUint8;
    case at::kBool:
      return DataType::kBool;
    default:
      return {};
  }
}

Buffer buffer_of(const at::Tensor& x) {
  WEFT_CHECK(x.is_contiguous(), "memory of a tensor that is not contiguous");
  Buffer buffer{.data = x.data_ptr(), .count = x.numel(), .type = *data_type_of(x.scalar_type())};
  if (x.is_cuda()) {
    buffer.device = {DeviceKind::kCuda, x.device().index()};
    buffer.stream = c10::impl::VirtualGuardImpl(x.device().type()).getStream(x.device()).native_handle();
  }
  return buffer;
}

bool is_own(const at::Tensor& x) {
  if (x.use_count() != 1 || !x.is_contiguous()) return false;
  // A view holds what it is a view of, also outside of graphs. That nobody else has is its own, too.
  const bool holds_base = x.is_view() && x._base().use_count() == 1;
  return x.storage().use_count() == (holds_base ? 2 : 1);
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Box relative_box(const Box& part, const Box& whole) {
  Box box(part.size());
  for (size_t dim = 0; dim < part.size(); ++dim)
    box[dim] = {part[dim].begin - whole[dim].begin, part[dim].end - whole[dim].begin};
  return box;
}

std::optional<int64_t> stretch_begin(const Box& block, std::span<const int64_t> shape) {
  if (num_elements(block) == 0) return 0;
  int64_t begin = 0;
  bool is_cut = false;
  for (size_t dim = 0; dim < block.size(); ++dim) {
    // Once several indices of a dim are taken, all of the dims inside it must be.
    if (is_cut && block[dim].size() != shape[dim]) return {};
    is_cut = is_cut || block[dim].size() > 1;
    begin = begin * shape[dim] + block[dim].begin;
  }
  return begin;
}

at::Tensor block_of(const at::Tensor& x, const Box& block) {
  at::Tensor view = x;
  for (size_t dim = 0; dim < block.size(); ++dim) {
    const auto d = static_cast<int64_t>(dim);
    // Empty parts lie anywhere, outside of what is cut too.
    const int64_t begin = block[dim].empty() ? 0 : block[dim].begin;
    if (block[dim].size() != x.size(d)) view = view.narrow(d, begin, block[dim].size());
  }
  return view;
}

Blocks::Blocks(std::vector<Box> boxes, std::vector<int64_t> shape)
    : boxes_(std::move(boxes)), shape_(std::move(shape)) {
  are_in_order_ = true;
  for (const Box& box : boxes_) {
    counts_.push_back(num_elements(box));
    if (counts_.back() > 0) are_in_order_ = are_in_order_ && stretch_begin(box, shape_) == num_elements_;
    num_elements_ += counts_.back();
  }
}

at::Tensor Blocks::pack(const at::Tensor& x) const {
  if (are_in_order_) {
    const at::Tensor all = x.contiguous().view({x.numel()});
    return num_elements_ == x.numel() ? all : all.narrow(0, 0, num_elements_);
  }
  at::Tensor packed = at::empty({num_elements_}, x.options());
  int64_t begin = 0;
  for (size_t i = 0; i < boxes_.size(); ++i) {
    if (counts_[i] == 0) continue;
    const at::Tensor block = block_of(x, boxes_[i]);
    packed.narrow(0, begin, counts_[i]).view(block.sizes()).copy_(block);
    begin += counts_[i];
  }
  return packed;
}

at::Tensor Blocks::unpack(const at::Tensor& packed) const {
  if (are_in_order_) return packed.view(shape_);
  at::Tensor x = at::empty(shape_, packed.options());
  int64_t begin = 0;
  for (size_t i = 0; i < boxes_.size(); ++i) {
    if (counts_[i] == 0) continue;
    const at::Tensor block = block_of(x, boxes_[i]);
    block.copy_(packed.narrow(0, begin, counts_[i]).view(block.sizes()));
    begin += counts_[i];
  }
  return x;
}

}  // namespace weft
