#include "weft/weights/mapped_file.h"

#include <fstream>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/support/weights/example_files.h"

namespace weft {
namespace {

/// Of mapped files, in this process.
int64_t resident_file_bytes() {
  std::ifstream status("/proc/self/statm");
  int64_t all = 0, resident = 0, shared = 0;
  status >> all >> resident >> shared;
  return shared * sysconf(_SC_PAGESIZE);
}

TEST(MappedFile, GivesMemoryBackAndKeepsItsContent) {
  constexpr int64_t kBytes = int64_t{16} << 20;
  const ScratchFolder scratch;
  std::string text(kBytes, ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 131 >> 7);
  const auto file = MappedFile::open(scratch.write("some.bytes", text));
  ASSERT_TRUE(file.ok());
  const auto bytes = (*file)->bytes();
  const auto is_same = [&] { return std::memcmp(bytes.data(), text.data(), text.size()) == 0; };

  const int64_t before = resident_file_bytes();
  EXPECT_TRUE(is_same());
  EXPECT_GT(resident_file_bytes(), before + kBytes * 9 / 10);
  done_with(bytes.subspan(1));
  EXPECT_LT(resident_file_bytes(), before + kBytes / 10);
  done_with(bytes.subspan(100, 50));  // no whole page
  EXPECT_TRUE(is_same());
}

}  // namespace
}  // namespace weft
