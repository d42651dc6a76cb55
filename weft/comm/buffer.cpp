#include "weft/comm/buffer.h"

#include <fmt/format.h>

namespace weft {

std::string text(Device device) {
  return device.kind == DeviceKind::kCpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

Buffer Buffer::part(int64_t begin, int64_t size) const {
  Buffer result = *this;
  result.data = static_cast<std::byte*>(data) + begin * bytes_per_element(type);
  result.count = size;
  return result;
}

ConstBuffer ConstBuffer::part(int64_t begin, int64_t size) const {
  ConstBuffer result = *this;
  result.data = static_cast<const std::byte*>(data) + begin * bytes_per_element(type);
  result.count = size;
  return result;
}

std::string text(const ConstBuffer& buffer) {
  return fmt::format("{} {} on {}", buffer.count, name_of(buffer.type), text(buffer.device));
}

}  // namespace weft
