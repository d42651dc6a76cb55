#include "weft/base/paths.h"

#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>

namespace weft {
namespace {

namespace fs = std::filesystem;

TEST(Paths, AFolderThatCannotBeReadAndACircleOfLinksThrowNothing) {
  std::string name = (fs::temp_directory_path() / "weft_paths_XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const fs::path folder = fs::canonical(name);
  std::error_code problem;
  EXPECT_TRUE(paths_in(folder, problem).empty());
  EXPECT_FALSE(problem);
  std::ofstream(folder / "b") << "b";
  std::ofstream(folder / "a") << "a";
  EXPECT_EQ(paths_in(folder, problem), (std::vector<fs::path>{folder / "a", folder / "b"}));
  EXPECT_TRUE(paths_in(folder / "a", problem).empty());
  EXPECT_EQ(problem, std::errc::not_a_directory);
  fs::create_symlink("loop", folder / "loop");
  EXPECT_EQ(without_links(folder / "loop"), folder / "loop");
  EXPECT_TRUE(paths_in(folder / "loop", problem).empty());
  EXPECT_TRUE(problem);
  fs::create_directory_symlink("inner", folder / "link");
  fs::create_directory(folder / "inner");
  EXPECT_EQ(without_links(folder / "link/new"), folder / "inner/new");
  EXPECT_EQ(without_links("not/there"), fs::current_path() / "not/there");
  EXPECT_EQ(whole_path("x/../y"), fs::current_path() / "y");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace weft
