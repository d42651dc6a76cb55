#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "weft/comm/data_type.h"

namespace weft {

enum class DeviceKind : uint8_t { kCpu, kCuda };

/// Where memory is.
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;  ///< of the GPU

  bool operator==(const Device&) const = default;
};

/// "cpu", "cuda:1".
std::string text(Device device);

/// Memory that a communication operation writes, and for some operations reads. It is the caller's and must stay where
/// it is until the operation has been waited for.
struct Buffer {
  void* data = nullptr;
  int64_t count = 0;  ///< elements
  DataType type = DataType::kFp32;
  Device device;
  void* stream =
      nullptr;  ///< of a GPU: what was put there before comes first, what is put there after waiting comes after

  int64_t num_bytes() const { return count * bytes_per_element(type); }
  /// Elements from `begin`, `size` of them.
  Buffer part(int64_t begin, int64_t size) const;
};

/// Memory that an operation only reads.
struct ConstBuffer {
  const void* data = nullptr;
  int64_t count = 0;
  DataType type = DataType::kFp32;
  Device device;
  void* stream = nullptr;

  ConstBuffer() = default;
  ConstBuffer(const void* data_in, int64_t count_in, DataType type_in, Device device_in = {}, void* stream_in = nullptr)
      : data(data_in), count(count_in), type(type_in), device(device_in), stream(stream_in) {}
  ConstBuffer(const Buffer& buffer)  // every buffer can be read
      : ConstBuffer(buffer.data, buffer.count, buffer.type, buffer.device, buffer.stream) {}

  int64_t num_bytes() const { return count * bytes_per_element(type); }
  ConstBuffer part(int64_t begin, int64_t size) const;
};

/// "1024 fp32 on cpu".
std::string text(const ConstBuffer& buffer);

}  // namespace weft
