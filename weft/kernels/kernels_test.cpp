#include <chrono>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/base/file.h"
#include "weft/kernels/gpu_kernels.h"
#include "weft/kernels/kernel_cache.h"
#include "weft/kernels/nvrtc.h"

namespace weft {
namespace {

constexpr size_t kMostBytes = 1 << 20;

/// Where scripts/setup put LibTorch and the compiler; empty where it unpacked none.
std::string unpacked_libraries() {
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(source_tree() / ".deps", missing))
    if (std::filesystem::exists(entry.path() / "lib/libnvrtc.so.13")) return (entry.path() / "lib").string();
  return {};
}

class KernelCaches : public testing::Test {
 protected:
  KernelCaches() { std::filesystem::create_directories(folder_); }
  ~KernelCaches() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / ("weft-kernels-" + std::to_string(getpid()));
};

TEST_F(KernelCaches, GiveBackWhatWasKeptUnderTheSameKeyAlone) {
  const KernelCache cache(folder_ / "new/deep");
  EXPECT_FALSE(cache.find("a"));
  const std::string code("\0machine\ncode\xff", 14);
  cache.keep("a", code);
  EXPECT_EQ(cache.find("a"), code);
  EXPECT_FALSE(cache.find("b"));
  // A file that lies under another key's name is not taken for that key's.
  std::filesystem::copy_file(cache.file_of("a"), cache.file_of("b"));
  EXPECT_FALSE(cache.find("b"));
}

TEST_F(KernelCaches, TakeADamagedFileForNone) {
  const KernelCache cache(folder_);
  cache.keep("key", "some machine code");
  const std::string whole = *read_file(cache.file_of("key"), kMostBytes);
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    ASSERT_FALSE(write_file(cache.file_of("key"), whole.substr(0, cut)));
    EXPECT_FALSE(cache.find("key")) << "cut after " << cut;
    std::string changed = whole;
    changed[cut] = static_cast<char>(changed[cut] ^ 4);
    ASSERT_FALSE(write_file(cache.file_of("key"), changed));
    EXPECT_FALSE(cache.find("key")) << "byte " << cut << " changed";
  }
  ASSERT_FALSE(write_file(cache.file_of("key"), whole + "x"));
  EXPECT_FALSE(cache.find("key"));
  ASSERT_FALSE(write_file(cache.file_of("key"), whole));
  EXPECT_TRUE(cache.find("key"));
}

TEST_F(KernelCaches, DoWithoutAFolderThatCannotBeWritten) {
  std::ofstream(folder_ / "file") << "no folder";
  const KernelCache cache(folder_ / "file/below");
  cache.keep("key", "code");
  EXPECT_FALSE(cache.find("key"));
  const KernelCache nowhere{std::filesystem::path()};
  nowhere.keep("key", "code");
  EXPECT_FALSE(nowhere.find("key"));
}

class Kernels : public testing::TestWithParam<int> {};

TEST_P(Kernels, CompileWithoutAGpu) {
  const auto nvrtc = Nvrtc::get(unpacked_libraries());
  if (!nvrtc) GTEST_SKIP() << nvrtc.error().message();
  for (const KernelSource& source : kernel_sources()) {
    const auto code = (*nvrtc)->compile(source.name, std::string(kCommonSource) + source.text, GetParam());
    ASSERT_TRUE(code) << code.error().message();
    EXPECT_TRUE(
        code->starts_with("\x7f"
                          "ELF"));
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, Kernels, testing::Values(80, 90));

TEST_F(KernelCaches, AreUsedByTheSecondStart) {
  const auto nvrtc = Nvrtc::get(unpacked_libraries());
  if (!nvrtc) GTEST_SKIP() << nvrtc.error().message();
  setenv("WEFT_KERNEL_CACHE", folder_.c_str(), 1);
  const KernelSource& source = kernel_sources().front();
  const auto first = compiled_kernels(source, 90, unpacked_libraries());
  ASSERT_TRUE(first) << first.error().message();
  ASSERT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  const std::filesystem::path file = *std::filesystem::directory_iterator(folder_);
  const auto written = std::filesystem::last_write_time(file);
  EXPECT_EQ(*compiled_kernels(source, 90, unpacked_libraries()), *first);
  EXPECT_EQ(std::filesystem::last_write_time(file), written);
  // A damaged file is compiled again, and mended.
  std::filesystem::resize_file(file, 100);
  EXPECT_EQ(*compiled_kernels(source, 90, unpacked_libraries()), *first);
  EXPECT_GT(std::filesystem::file_size(file), 100U);
  unsetenv("WEFT_KERNEL_CACHE");
}

TEST(Compiler, SaysWhatIsWrongWithASource) {
  const auto nvrtc = Nvrtc::get(unpacked_libraries());
  if (!nvrtc) GTEST_SKIP() << nvrtc.error().message();
  const auto code = (*nvrtc)->compile("broken", "extern \"C\" __global__ void k() { nonsense; }", 90);
  ASSERT_FALSE(code);
  EXPECT_NE(code.error().message().find("nonsense"), std::string::npos) << code.error().message();
  const auto unknown = (*nvrtc)->compile("future", "extern \"C\" __global__ void k() {}", 9990);
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message().find("sm_9990"), std::string::npos) << unknown.error().message();
}

}  // namespace
}  // namespace weft
