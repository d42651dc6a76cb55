#include "weft/engine/metrics_hook.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(MetricsHook, GivesEveryLineToTheCommand) {
  std::string folder = (std::filesystem::temp_directory_path() / "weft_hook_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  {
    auto hook = MetricsHook::start("cat > '" + folder + "/lines'");
    ASSERT_TRUE(hook.ok()) << hook.error().message();
    for (int i = 0; i < 50; ++i) EXPECT_FALSE((*hook)->send(std::to_string(i) + "\n"));
  }
  std::ifstream file(folder + "/lines");
  std::string expected;
  for (int i = 0; i < 50; ++i) expected += std::to_string(i) + "\n";
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), expected);
  std::filesystem::remove_all(folder);
}

TEST(MetricsHook, ACommandThatEndsOrDoesNotReadHoldsNothingUp) {
  auto ended = MetricsHook::start("exit 3");
  ASSERT_TRUE(ended.ok());
  std::optional<std::string> note;
  for (int i = 0; i < 200 && !note; ++i) {
    note = (*ended)->send("line\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_TRUE(note);
  EXPECT_NE(note->find("has ended"), std::string::npos);
  EXPECT_FALSE((*ended)->send("line\n")) << "it is noted once";

  // What arrives is whole lines, whatever was left out.
  std::string folder = (std::filesystem::temp_directory_path() / "weft_hook_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string line = std::string(9999, 'x') + "\n";
  {
    auto slow = MetricsHook::start("sleep 1; cat > '" + folder + "/lines'");
    ASSERT_TRUE(slow.ok());
    note.reset();
    for (int i = 0; i < 500; ++i) {
      if (auto told = (*slow)->send(line)) note = told;
    }
    ASSERT_TRUE(note);
    EXPECT_NE(note->find("keep up"), std::string::npos);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    (*slow)->send("last\n");
  }
  std::ifstream file(folder + "/lines");
  int64_t num_lines = 0;
  for (std::string read; std::getline(file, read);) EXPECT_TRUE(read + "\n" == line || read == "last") << ++num_lines;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace weft
