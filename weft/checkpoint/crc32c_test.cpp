#include "weft/checkpoint/crc32c.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace weft {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// Of RFC 3720, appendix B.4, and the check value that catalogues of CRCs list.
TEST(Crc32c, AgreesWithPublishedVectors) {
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) {
    rising += static_cast<char>(i);
    falling += static_cast<char>(31 - i);
  }
  const std::vector<std::pair<std::string, uint32_t>> vectors = {
      {"", 0},
      {"123456789", 0xe3069283},
      {std::string(32, '\0'), 0x8a9136aa},
      {std::string(32, '\xff'), 0x62a8ab43},
      {rising, 0x46dd794e},
      {falling, 0x113fdb5c},
  };
  for (const auto& [text, expected] : vectors) {
    EXPECT_EQ(crc32c(bytes_of(text)), expected);
    EXPECT_EQ(crc32c_by_tables(bytes_of(text)), expected);
  }
}

TEST(Crc32c, OfPiecesIsThatOfTheWhole) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    std::string text(random() % 300, ' ');
    for (char& c : text) c = static_cast<char>(random());
    const size_t cut = random() % (text.size() + 1);
    const auto bytes = bytes_of(text);
    const uint32_t whole = crc32c(bytes);
    EXPECT_EQ(whole, crc32c_by_tables(bytes));
    EXPECT_EQ(whole, crc32c(bytes.subspan(cut), crc32c(bytes.first(cut))));
    EXPECT_EQ(whole, crc32c_by_tables(bytes.subspan(cut), crc32c_by_tables(bytes.first(cut))));
  }
}

}  // namespace
}  // namespace weft
