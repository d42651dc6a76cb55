#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft {

/// What the elements of a buffer are.
enum class DataType : uint8_t { kFp64, kFp32, kBf16, kFp16, kInt64, kInt32, kUint8, kBool };

inline constexpr DataType kAllDataTypes[] = {DataType::kFp64,  DataType::kFp32,  DataType::kBf16,  DataType::kFp16,
                                             DataType::kInt64, DataType::kInt32, DataType::kUint8, DataType::kBool};

int64_t bytes_per_element(DataType type);
/// "fp32".
std::string_view name_of(DataType type);
bool is_floating(DataType type);

}  // namespace weft
