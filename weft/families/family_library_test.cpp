// What is refused of a library before anything of it is called. tests/own_family has libraries that are built.
#include "weft/families/family_library.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <gtest/gtest.h>

namespace weft {
namespace {

std::string finding(const std::string& paths) {
  const auto loaded = load_families(paths);
  return loaded ? "" : loaded.error().message();
}

TEST(FamilyLibraries, NoneAreNamed) {
  const auto loaded = load_families("");
  ASSERT_TRUE(loaded.ok());
  EXPECT_TRUE(loaded->empty());
  EXPECT_EQ(finding("::"), "");
}

TEST(FamilyLibraries, AMissingFileIsNamed) {
  const std::string message = finding("/nowhere/libmine.so");
  EXPECT_NE(message.find("/nowhere/libmine.so"), std::string::npos) << message;
  EXPECT_NE(message.find(kFamilyLibraries), std::string::npos) << message;
}

TEST(FamilyLibraries, AFileThatIsNoLibraryIsNamed) {
  const std::filesystem::path file =
      std::filesystem::path(testing::TempDir()) / ("weft_no_library_" + std::to_string(getpid()) + ".so");
  std::ofstream(file) << "text";
  const std::string message = finding(file.string());
  std::filesystem::remove(file);
  EXPECT_NE(message.find(file.string()), std::string::npos) << message;
  EXPECT_NE(message.find("cannot be loaded"), std::string::npos) << message;
}

}  // namespace
}  // namespace weft
