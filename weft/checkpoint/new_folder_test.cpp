#include "weft/checkpoint/new_folder.h"

#include <algorithm>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/weights/example_files.h"

namespace weft {
namespace {

using std::filesystem::path;

std::vector<std::string> listed(const path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

void write(const path& file, const char* text) {
  std::ofstream(file) << text;
}

TEST(NewFolders, OneProcessMakesIt) {
  const ScratchFolder scratch;
  const path folder = scratch / "a/model";
  {
    auto first = NewFolder::begin(folder);
    ASSERT_TRUE(first.ok()) << first.error().message();
    write(first->hidden() / "file", "first");
    const auto second = NewFolder::begin(folder);
    ASSERT_FALSE(second.ok());
    EXPECT_NE(second.error().message().find("is being written by another process (process "), std::string::npos)
        << second.error().message();
    EXPECT_TRUE(std::filesystem::exists(first->hidden() / "file")) << "the second has taken nothing away";
    EXPECT_FALSE(std::filesystem::exists(folder));
    ASSERT_FALSE(first->finish());
  }
  EXPECT_EQ(listed(scratch / "a"), std::vector<std::string>{"model"});
  EXPECT_EQ(listed(folder), std::vector<std::string>{"file"});
  EXPECT_FALSE(NewFolder::begin(folder).ok()) << "it is there now";
}

TEST(NewFolders, ALinkIsRefusedBeforeAnythingIsWritten) {
  const ScratchFolder scratch;
  std::filesystem::create_directory(scratch / "empty");
  std::filesystem::create_directory_symlink(scratch / "empty", scratch / "model");
  std::filesystem::create_directory_symlink("loop", scratch / "loop");
  std::filesystem::create_directory_symlink("nowhere", scratch / "dangling");
  for (const char* name : {"model", "loop", "dangling", "model/"}) {
    const auto begun = NewFolder::begin(scratch / name);
    ASSERT_FALSE(begun.ok()) << name;
    EXPECT_NE(begun.error().message().find("is there already, and not an empty folder"), std::string::npos);
  }
}

TEST(NewFolders, WhatIsNotFinishedLeavesNothing) {
  const ScratchFolder scratch;
  {
    const auto begun = NewFolder::begin(scratch / "model/");  // a final slash is no name
    ASSERT_TRUE(begun.ok()) << begun.error().message();
    EXPECT_EQ(begun->hidden(), scratch / ".saving-model");
    write(begun->hidden() / "file", "half");
  }
  EXPECT_TRUE(listed(scratch.path()).empty());
}

TEST(NewFolders, NothingThatAppearsMeanwhileIsReplaced) {
  const ScratchFolder scratch;
  std::filesystem::create_directory(scratch / "model");
  auto begun = NewFolder::begin(scratch / "model");
  ASSERT_TRUE(begun.ok()) << "an empty folder is in nobody's way";
  write(begun->hidden() / "file", "mine");
  write(scratch / "model" / "file", "another's");
  const auto error = begun->finish();
  ASSERT_TRUE(error);
  EXPECT_NE(error->message().find("cannot be given its name: Directory not empty"), std::string::npos);
  std::string text;
  std::ifstream(scratch / "model" / "file") >> text;
  EXPECT_EQ(text, "another's");
}

TEST(NewFolders, WhatADeadProcessBeganIsClearedUp) {
  const ScratchFolder scratch;
  std::filesystem::create_directory(scratch / ".saving-model");
  write(scratch / ".saving-model" / "old", "half");
  write(scratch / ".saving-model.lock", "process 1 on nowhere\n");
  {
    auto begun = NewFolder::begin(scratch / "model");
    ASSERT_TRUE(begun.ok()) << begun.error().message();
    EXPECT_TRUE(listed(begun->hidden()).empty());
    ASSERT_FALSE(begun->finish());
  }
  EXPECT_EQ(listed(scratch.path()), std::vector<std::string>{"model"});
}

}  // namespace
}  // namespace weft
