#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/source_tree.h"
#include "weft/base/file.h"
#include "weft/base/json.h"

namespace weft {
namespace {

/// The manual's encoder: attention, dropout, layer norms, a cut vocabulary, a loss.
std::string encoder() {
  return (source_tree() / "docs/manual/encoder.txt").string();
}

std::vector<std::string> verify(const std::string& program, const std::string& mesh,
                                const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"shard", "--program", program,    "--mesh",
                                        mesh,    "--cluster", "dgx_h100", "--verify"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

class VerifiedProgram : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("weft_verify_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path) << text;
    return path;
  }

  std::filesystem::path folder_;
};

TEST_F(VerifiedProgram, HasOneRanksNumbersByStrategiesThatAreFoundAndGiven) {
  const std::string pins = write("pins.yaml",
                                 "weft_strategy: 1\noperators: {up: {tp: through}, r1: {tp: through}, \"n*\": {tp: h}, "
                                 "mix: {tp: s}, logits: {tp: v}}\n");
  const std::vector<std::vector<std::string>> runs = {verify(encoder(), "tp=2,cp=2,dp=2"),
                                                      verify(encoder(), "tp=8", {"--mode", "data"}),
                                                      verify(encoder(), "tp=8", {"--strategy", pins})};
  for (std::vector<std::string> arguments : runs) {
    const ProgramRun text = run_weft(arguments);
    ASSERT_EQ(text.exit_status, 0) << text.err;
    EXPECT_NE(text.out.find("run on 8 ranks: 1 output and 18 gradients are one rank's"), std::string::npos) << text.out;
    arguments.emplace_back("--json");
    const ProgramRun run = run_weft(arguments);
    ASSERT_EQ(run.exit_status, 0) << run.err;
    const Json verified = Json::parse(run.out)["verified"];
    EXPECT_EQ(verified["gradients"], 18);
    EXPECT_LE(verified["largest_difference"].get<double>(), 1e-12);
    EXPECT_EQ(verified["bytes_moved"], verified["bytes_planned"]);
    EXPECT_GT(verified["bytes_moved"], 0);
  }
}

TEST_F(VerifiedProgram, IsRefusedWhereItCannotRun) {
  const std::string text = *read_file(encoder(), 1 << 20);
  const auto with = [&](const std::string& what, const std::string& instead) {
    std::string changed = text;
    return write("changed.txt", changed.replace(changed.find(what), what.size(), instead));
  };
  const auto refused = [](const std::vector<std::string>& arguments, const std::string& expected) {
    const ProgramRun run = run_weft(arguments);
    EXPECT_EQ(run.exit_status, 2);
    EXPECT_NE(run.err.find(expected), std::string::npos) << run.err;
  };
  refused(verify(with(" ; does relu", ""), "tp=8"), "--verify: act.0-0: does not say what it does");
  refused(verify(with("dim b 4", "dim b 4000000"), "tp=8"), "too many to try a strategy with, at most 16,777,216");
  // Keys of a row are normed together, so that ranks with some of them need the others' squares.
  const std::string keys = "weight gk [r]\nkn = custom(qkv, gk) : b s k, r -> b s k ; whole r ; heads 4 4 2 ; ";
  const auto normed = [&](const std::string& rule) {
    return write("normed.txt",
                 "weft_program 1 normed\ndim b 4\ndim s 6\ndim k 24 unit 6\ndim r 8\ninput qkv [b s k]\n" + keys +
                     rule + "calls norm_keys\n");
  };
  refused(verify(normed(""), "tp=8"), "--verify: kn: the result of 'cut k' differs from one device's");
  EXPECT_EQ(run_weft(verify(normed("inside k ; "), "tp=8")).exit_status, 0);
  const std::string turned =
      write("turned.txt",
            "weft_program 1 turned\ndim b 4\ndim s 6\ndim k 24 unit 6\ndim a 1\ninput qkv [b s "
            "k]\ndata angles [b s a]\nt = custom(qkv, angles) : b s k, b s a -> b s k ; linear 0 "
            "; heads 4 4 2 ; calls rotary\n");
  refused(verify(turned, "tp=8"), "--verify: t: cannot be computed by 'cut a' on 2 ranks: 0 numbers turn a row");
  refused(verify(encoder(), "tp=8,dp=16", {"--nodes", "16"}), "128 ranks are too many");
}

}  // namespace
}  // namespace weft
