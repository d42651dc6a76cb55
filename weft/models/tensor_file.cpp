#include "weft/models/tensor_file.h"

#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include "weft/weights/safetensors_file.h"

namespace weft {
namespace {

std::optional<at::ScalarType> any_tensor_type(WeightType type) {
  switch (type) {
    case WeightType::kBool:
      return at::kBool;
    case WeightType::kU8:
      return at::kByte;
    case WeightType::kI8:
      return at::kChar;
    case WeightType::kI16:
      return at::kShort;
    case WeightType::kI32:
      return at::kInt;
    case WeightType::kI64:
      return at::kLong;
    case WeightType::kF16:
      return at::kHalf;
    case WeightType::kBf16:
      return at::kBFloat16;
    case WeightType::kF32:
      return at::kFloat;
    case WeightType::kF64:
      return at::kDouble;
    default:
      return std::nullopt;
  }
}

}  // namespace

Result<std::map<std::string, at::Tensor>> read_tensors(const std::filesystem::path& path) {
  WEFT_TRY(const SafetensorsFile file, SafetensorsFile::open(path));
  std::map<std::string, at::Tensor> tensors;
  for (const WeightEntry& entry : file.entries()) {
    const auto type = any_tensor_type(entry.info.type);
    if (!type) {
      return Error{.source = path.string(),
                   .field = entry.info.name,
                   .problem = fmt::format("holds {}, a type that tensors do not have here", name_of(entry.info.type)),
                   .advice = "Convert it to a plain integer or floating-point type."};
    }
    const at::TensorOptions options = at::TensorOptions().dtype(*type);
    if (is_aligned(entry) && !entry.bytes.empty()) {
      tensors[entry.info.name] = at::from_blob(
          const_cast<std::byte*>(entry.bytes.data()), entry.info.shape, [owner = entry.owner](void*) {}, options);
    } else {
      at::Tensor copy = at::empty(entry.info.shape, options);
      if (!entry.bytes.empty()) std::memcpy(copy.data_ptr(), entry.bytes.data(), entry.bytes.size());
      tensors[entry.info.name] = copy;
    }
  }
  return tensors;
}

}  // namespace weft
