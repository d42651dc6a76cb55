#include <gtest/gtest.h>

#include "tests/cli/run_program.h"

namespace weft {
namespace {

TEST(CommandLine, HelpNamesEveryVerbAndEveryVerbHasHelp) {
  const ProgramRun help = run_weft({"--help"});
  EXPECT_EQ(help.exit_status, 0);
  for (const char* verb : {"describe", "plan", "check", "simulate", "validate", "schedule", "export", "import",
                           "balance", "shard", "train", "eval", "predict", "convert", "doctor"}) {
    EXPECT_NE(help.out.find(verb), std::string::npos);
    const ProgramRun verb_help = run_weft({verb, "--help"});
    EXPECT_EQ(verb_help.exit_status, 0);
    const size_t examples = verb_help.out.find("Examples:\n");
    ASSERT_NE(examples, std::string::npos) << verb_help.out;
    EXPECT_NE(verb_help.out.find(std::string("  weft ") + verb, examples), std::string::npos) << verb_help.out;
    EXPECT_NE(verb_help.out.find("--json"), std::string::npos);
    EXPECT_EQ(verb_help.err, "");
  }
}

TEST(CommandLine, VersionIsPrinted) {
  const ProgramRun run = run_weft({"--version"});
  EXPECT_EQ(run.exit_status, 0);
  EXPECT_EQ(run.out.find("weft 0."), 0u) << run.out;
}

TEST(CommandLine, MistypedWordsAreGuessed) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"descirbe"},
       "'descirbe' is not a verb. Known are describe, plan, check, simulate, validate, schedule, export, import, "
       "balance, shard, "
       "profile, train, eval, predict, convert, doctor, help or version. Did you mean 'describe'?"},
      {{"describe", "--modle", "llama3-8b"}, "Did you mean '--model'?"},
      {{"describe", "--model", "llama3-8b", "--jsno"}, "Did you mean '--json'?"},
      {{"describe", "--worklaod=vl_sft"}, "Did you mean '--workload'?"},
      {{"describe", "--model", "lama3-8b"}, "Did you mean 'llama3-8b'?"},
      {{"describe", "--workload", "vl_stf"}, "Did you mean 'vl_sft'?"},
      {{"describe", "--cluster", "dgx_h1000"}, "Did you mean 'dgx_h100'?"},
      {{"--versoin"}, "Did you mean '--version'?"},
      {{}, "no verb given"},
      {{"describe"}, "nothing to describe"},
      {{"describe", "stray", "--model", "llama3-8b"}, "stray"},
      {{"describe", "--model"}, "--model"},
  };
  for (const auto& [arguments, part] : cases) {
    const ProgramRun run = run_weft(arguments);
    EXPECT_EQ(run.exit_status, 2) << part;
    EXPECT_EQ(run.out, "") << part;
    EXPECT_NE(run.err.find(part), std::string::npos) << "no '" << part << "' in " << run.err;
    EXPECT_EQ(run.err.find('\n'), run.err.size() - 1) << "one line: " << run.err;
  }
}

TEST(CommandLine, OutputThatCannotBeWrittenIsAFailure) {
  const ProgramRun run = run_weft({"describe", "--model", "llama3-8b"}, {}, "/dev/full");
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_NE(run.err.find("standard output: could not be written"), std::string::npos) << run.err;
}

TEST(CommandLine, ScenariosCanBeElsewhere) {
  const ProgramRun run = run_weft({"describe", "--model", "llama3-8b"}, {"WEFT_SCENARIOS=/nowhere"});
  EXPECT_EQ(run.exit_status, 2);
  EXPECT_NE(run.err.find("/nowhere/models"), std::string::npos) << run.err;
}

TEST(CommandLine, DescribingAModelDoesNotLoadTorch) {
  const ProgramRun run = run_weft({"describe", "--model", "qwen2-vl-72b"}, {"LD_DEBUG=files"});
  EXPECT_EQ(run.exit_status, 0);
  EXPECT_NE(run.err.find("libc.so"), std::string::npos) << "the loader reports what it loads";
  EXPECT_EQ(run.err.find("torch"), std::string::npos);
  EXPECT_EQ(run.err.find("libweft_runtime"), std::string::npos);
}

}  // namespace
}  // namespace weft
