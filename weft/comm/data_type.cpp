#include "weft/comm/data_type.h"

namespace weft {

int64_t bytes_per_element(DataType type) {
  switch (type) {
    case DataType::kFp64:
    case DataType::kInt64:
      return 8;
    case DataType::kFp32:
    case DataType::kInt32:
      return 4;
    case DataType::kBf16:
    case DataType::kFp16:
      return 2;
    case DataType::kUint8:
    case DataType::kBool:
      break;
  }
  return 1;
}

std::string_view name_of(DataType type) {
  switch (type) {
    case DataType::kFp64:
      return "fp64";
    case DataType::kFp32:
      return "fp32";
    case DataType::kBf16:
      return "bf16";
    case DataType::kFp16:
      return "fp16";
    case DataType::kInt64:
      return "int64";
    case DataType::kInt32:
      return "int32";
    case DataType::kUint8:
      return "uint8";
    case DataType::kBool:
      break;
  }
  return "bool";
}

bool is_floating(DataType type) {
  return type <= DataType::kFp16;
}

}  // namespace weft
