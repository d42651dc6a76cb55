#include "weft/probe/exif.h"

#include <algorithm>

namespace weft {
namespace {

constexpr int64_t kEntryBytes = 12;
constexpr int kOrientationTag = 0x0112;
enum FieldType { kByte = 1, kShort = 3, kLong = 4 };

}  // namespace

int exif_orientation(HeaderBytes& bytes, int64_t begin, int64_t length) {
  const int64_t end = std::min(begin + length, bytes.size());
  if (end - begin < 8) return 1;
  const bool little = bytes.has(begin, "II");
  if (!little && !bytes.has(begin, "MM")) return 1;
  const auto word = [&](int64_t at) { return little ? bytes.little16(at) : bytes.big16(at); };
  const auto double_word = [&](int64_t at) { return little ? bytes.little32(at) : bytes.big32(at); };

  const int64_t directory = begin + double_word(begin + 4);
  if (directory > end - 2) return 1;
  const int64_t num_entries = word(directory);
  for (int64_t i = 0; i < num_entries; ++i) {
    const int64_t entry = directory + 2 + i * kEntryBytes;
    if (entry > end - kEntryBytes) return 1;
    if (word(entry) != kOrientationTag) continue;
    if (double_word(entry + 4) != 1) return 1;
    uint32_t value = 0;
    switch (word(entry + 2)) {
      case kByte:
        value = bytes.at(entry + 8);
        break;
      case kShort:
        value = word(entry + 8);
        break;
      case kLong:
        value = double_word(entry + 8);
        break;
      default:
        break;
    }
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace weft
