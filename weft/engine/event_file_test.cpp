#include "weft/engine/event_file.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

namespace weft {
namespace {

/// CRC-32C bit by bit.
uint32_t plain_crc(const std::string& bytes) {
  uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0);
  }
  return ~crc;
}

uint32_t plain_mask(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

/// The records of a file, with every checksum looked at.
std::vector<std::string> records_of(const std::string& bytes) {
  std::vector<std::string> records;
  size_t at = 0;
  while (at < bytes.size()) {
    uint64_t size = 0;
    uint32_t of_size = 0, of_bytes = 0;
    std::memcpy(&size, bytes.data() + at, 8);
    std::memcpy(&of_size, bytes.data() + at + 8, 4);
    EXPECT_EQ(of_size, plain_mask(plain_crc(bytes.substr(at, 8))));
    records.push_back(bytes.substr(at + 12, size));
    std::memcpy(&of_bytes, bytes.data() + at + 12 + size, 4);
    EXPECT_EQ(of_bytes, plain_mask(plain_crc(records.back())));
    at += size + 16;
  }
  EXPECT_EQ(at, bytes.size());
  return records;
}

// The bytes of a whole file as TensorBoard's own reader takes it; the manual check of it reads the same tags.
TEST(EventFile, HasRecordsWithChecksumsAndEventsInThem) {
  std::string folder = (std::filesystem::temp_directory_path() / "weft_events_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  {
    auto file = EventFile::create(std::filesystem::path(folder) / "tensorboard", 300);
    ASSERT_TRUE(file.ok()) << file.error().message();
    EXPECT_FALSE(file->add(301, {{"loss", 2.5}, {"gradient_norm/vision", 0.25}}));
  }
  std::string bytes;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(folder) / "tensorboard")) {
    EXPECT_NE(entry.path().filename().string().find("tfevents"), std::string::npos) << "the name that is looked for";
    std::ifstream stream(entry.path(), std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(stream), {});
  }
  const std::vector<std::string> records = records_of(bytes);
  ASSERT_EQ(records.size(), 3u);
  // Past the tag and the eight bytes of the time.
  EXPECT_EQ(records[0].substr(9), std::string("\x10\x00\x1a\x0d", 4) + "brain.Event:2");
  EXPECT_EQ(records[1].substr(9), std::string("\x10\xad\x02\x3a\x02\x08\x01", 7)) << "a session from step 301 on";
  const std::string loss = std::string("\x0a\x04loss\x15\x00\x00\x20\x40", 11);
  const std::string norm = "\x0a\x14gradient_norm/vision" + std::string("\x15\x00\x00\x80\x3e", 5);
  std::string summary = "\x0a";
  summary += static_cast<char>(loss.size());
  summary += loss + "\x0a";
  summary += static_cast<char>(norm.size());
  summary += norm;
  std::string expected = std::string("\x10\xad\x02\x2a", 4);
  expected += static_cast<char>(summary.size());
  EXPECT_EQ(records[2].substr(9), expected + summary);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace weft
