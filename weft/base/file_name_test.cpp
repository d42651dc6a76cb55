#include "weft/base/file_name.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "weft/base/utf8.h"

namespace weft {
namespace {

TEST(FileName, IsTheFileWithoutItsEnding) {
  EXPECT_EQ(name_of_file("a/tiny.v2.yaml"), "tiny.v2");
  EXPECT_EQ(name_of_file("a/\xe4\xbd\xa0 b.json"), "\xe4\xbd\xa0 b");
}

TEST(FileName, OfAFolderIsTheWholeFolder) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "weft_file_name_test.v2";
  std::filesystem::create_directories(folder / "inner");
  EXPECT_EQ(name_of_file(folder), "weft_file_name_test.v2");
  EXPECT_EQ(name_of_file(folder / ""), "weft_file_name_test.v2");
  EXPECT_EQ(name_of_file(folder / "inner" / ".."), "weft_file_name_test.v2");
  std::filesystem::remove_all(folder);
}

TEST(FileName, IsOneLineOfUtf8WhateverTheFileIsCalled) {
  for (const auto& [file, name] : {std::pair{"a\xff", "a\xef\xbf\xbd"},
                                   {"\xc3(", "\xef\xbf\xbd("},
                                   {"a\nb", "a\\x0ab"},
                                   {"a\x1b[31mb", "a\\x1b[31mb"},
                                   {"a\x7f", "a\\x7f"}}) {
    EXPECT_EQ(name_of_file(std::string(file) + ".yaml"), name);
    EXPECT_TRUE(is_valid_utf8(name_of_file(file)));
  }
  EXPECT_EQ(name_of_file("a\xe2\x80\xa8.yaml").find("\xe2"), std::string::npos) << "a line separator";
}

}  // namespace
}  // namespace weft
