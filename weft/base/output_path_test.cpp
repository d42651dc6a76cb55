#include "weft/base/output_path.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <gtest/gtest.h>

namespace weft {
namespace {

namespace fs = std::filesystem;

class OutputPath : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("weft_output_path_" + std::to_string(getpid()));
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::optional<std::string> in_folder(const char* name) const { return (folder_ / name).string(); }
  static std::string problem_of(const std::optional<std::string>& path) {
    const std::optional<Error> error = find_bad_output({{"--out", path}});
    return error ? error->message() : "";
  }

  fs::path folder_;
};

TEST_F(OutputPath, IsFineWhereAFileCanBeMadeAndLeavesNothingThere) {
  EXPECT_EQ(problem_of(in_folder("plan.json")), "");
  EXPECT_TRUE(fs::is_empty(folder_));
  std::ofstream(*in_folder("old.json")) << "kept";
  EXPECT_EQ(problem_of(in_folder("old.json")), "");
  EXPECT_EQ(fs::file_size(*in_folder("old.json")), 4u);
  EXPECT_EQ(problem_of("/dev/null"), "");
  EXPECT_EQ(problem_of(std::nullopt), "");
}

TEST_F(OutputPath, IsRefusedWhereNoFileCanBeMade) {
  EXPECT_NE(problem_of(in_folder("missing/plan.json")).find("there is no folder"), std::string::npos);
  EXPECT_NE(problem_of(folder_.string()).find("is a folder, a file is needed"), std::string::npos);
  EXPECT_NE(problem_of("").find("without a path"), std::string::npos);
  EXPECT_NE(problem_of("/proc/plan.json").find("cannot be written"), std::string::npos);
  std::ofstream(*in_folder("file")) << "x";
  EXPECT_NE(problem_of(in_folder("file/plan.json")).find("is not a folder"), std::string::npos);
}

TEST_F(OutputPath, IsRefusedWhereTwoOutputsWouldShareAFile) {
  const std::optional<std::string> first = in_folder("a.json"), second = in_folder("./a.json");
  const std::optional<Error> error = find_bad_output({{"--csv", first}, {"--svg", second}});
  ASSERT_TRUE(error);
  EXPECT_EQ(error->source, "--svg");
  EXPECT_NE(error->problem.find("--csv"), std::string::npos);
}

TEST_F(OutputPath, IsRefusedWhereItWouldReplaceAnInput) {
  const std::optional<std::string> plan = in_folder("plan.json"), link = in_folder("link.json"),
                                   hard = in_folder("hard.json"), around = in_folder("inner/../plan.json"),
                                   other = in_folder("other.json"), null_device = "/dev/null";
  std::ofstream(*plan) << "{}";
  fs::create_directory(*in_folder("inner"));
  fs::create_symlink("plan.json", *link);
  fs::create_hard_link(*plan, *hard);
  for (const auto& [output, input] :
       {std::pair{plan, plan}, {link, plan}, {plan, link}, {hard, plan}, {around, plan}}) {
    const std::optional<Error> error = find_bad_output({{"--trace", output}}, {{"--plan", input}});
    ASSERT_TRUE(error) << *output << " for " << *input;
    EXPECT_EQ(error->source, "--trace");
    EXPECT_NE(error->problem.find("which --plan reads"), std::string::npos) << error->problem;
  }
  EXPECT_FALSE(find_bad_output({{"--trace", other}}, {{"--plan", plan}, {"--profile", std::nullopt}, {"--a", ""}}));
  EXPECT_FALSE(find_bad_output({{"--trace", other}}, {{"--plan", other}})) << "a name in scenarios is no file";
  EXPECT_FALSE(find_bad_output({{"--trace", null_device}}, {{"--plan", null_device}}));
}

}  // namespace
}  // namespace weft
