#include "weft/prepare/codecs/sound_bytes.h"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(SoundBytes, APlaceFarBeyondAnEndIsThatEnd) {
  const std::vector<uint8_t> bytes(10);
  SoundBytes file{.bytes = bytes, .at = 7};
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
  for (const int from : {SEEK_SET, SEEK_CUR, SEEK_END}) {
    file.at = 7;
    EXPECT_EQ(SoundBytes::seek(kMost, from, &file), 10) << from;
    file.at = 7;
    EXPECT_EQ(SoundBytes::seek(kLeast, from, &file), 0) << from;
  }
  file.at = 7;
  EXPECT_EQ(SoundBytes::seek(-2, SEEK_CUR, &file), 5);
  EXPECT_EQ(SoundBytes::seek(-2, SEEK_END, &file), 8);
  EXPECT_EQ(SoundBytes::seek(3, SEEK_SET, &file), 3);
  EXPECT_EQ(SoundBytes::tell(&file), 3);
}

TEST(SoundBytes, NoMoreIsReadThanThereIs) {
  const std::vector<uint8_t> bytes = {1, 2, 3, 4};
  SoundBytes file{.bytes = bytes, .at = 2};
  std::vector<uint8_t> to(8);
  EXPECT_EQ(SoundBytes::read(to.data(), std::numeric_limits<int64_t>::max(), &file), 2);
  EXPECT_EQ(to[1], 4);
  EXPECT_EQ(SoundBytes::read(to.data(), 8, &file), 0);
  EXPECT_EQ(SoundBytes::read(to.data(), -1, &file), 0);
}

}  // namespace
}  // namespace weft
