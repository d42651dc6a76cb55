#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/source_tree.h"
#include "weft/base/document.h"

// What someone meets who runs the program for the first time: paths, names and numbers that are not quite right.
namespace weft::first_run_test {
namespace {

const std::string kPlanFile = source_tree().string() + "/scenarios/plans/tiny-vl_one_rank.json";
const std::vector<std::string> kTinyPlan = {"plan",      "--model",    "tiny-vl", "--cluster",
                                            "local_cpu", "--workload", "tiny_vl"};

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void expect_error(const std::vector<std::string>& arguments, int status, const std::string& part) {
  const ProgramRun run = run_weft(arguments);
  EXPECT_EQ(run.exit_status, status) << run.err;
  EXPECT_NE(run.err.find(part), std::string::npos) << "no '" << part << "' in " << run.err;
  EXPECT_EQ(run.out, "");
}

TEST(FirstRun, AnOutputThatCannotBeWrittenIsRefusedBeforeTheWork) {
  const TemporaryFolder folder;
  const std::string lost = (folder.path() / "missing" / "out").string();
  // The inputs do not exist: were they read first, the error would name them.
  expect_error({"plan", "--model", "x", "--cluster", "x", "--workload", "x", "--out", lost}, 2, "--out: ");
  expect_error({"simulate", "--plan", "x", "--trace", lost}, 2, "--trace: ");
  expect_error({"simulate", "--plan", "x", "--svg", lost}, 2, "--svg: ");
  for (const char* flag : {"--csv", "--csv-lowered", "--trace", "--svg"}) {
    expect_error({"schedule", "--from", "x", flag, lost}, 2, std::string(flag) + ": ");
  }
  expect_error({"validate", "--published", "--calibrate-to", lost}, 2, "there is no folder");
  expect_error({"export", "--plan", source_tree().string() + "/scenarios/plans/llama3-8b_gpipe_tp2_pp2_dp2.json",
                "--to", "mindformers", "--out", lost},
               2, "--out: ");
}

TEST(FirstRun, ABatchThatIsTooLargeToSearchIsRefusedAtOnceWithTheLargestThatIsNot) {
  const auto start = std::chrono::steady_clock::now();
  expect_error(with(kTinyPlan, {"--global-batch", "100000000"}), 2, "--global-batch: is 100,000,000 samples");
  expect_error(with(kTinyPlan, {"--global-batch", "100000000"}), 2, "samples can be planned");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(FirstRun, ABatchOfMoreMicrobatchesThanAreSearchedDoesNotBlameMemory) {
  const ProgramRun run = run_weft({"plan", "--model", "qwen2-vl-7b", "--cluster", "ascend_910b_8", "--workload",
                                   "vl_sft", "--global-batch", "10000000"});
  EXPECT_EQ(run.exit_status, 2);
  EXPECT_NE(run.err.find("--global-batch: is 10,000,000 samples: what fits on 8 devices takes more than"),
            std::string::npos)
      << run.err;
  EXPECT_NE(run.err.find("samples can be planned, as tp "), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find("GiB"), std::string::npos) << run.err;
}

TEST(FirstRun, ALimitThatIsNoNumberOfSecondsIsRefused) {
  for (const char* limit : {"nan", "inf", "-1", "0", "1e9", "soon", "1s"}) {
    expect_error(with(kTinyPlan, {"--time-limit", limit}), 2,
                 std::string("--time-limit: is '") + limit + "', a number from 0.001 to 1000000 is needed");
    expect_error({"balance", "--costs", "x", "--time-limit", limit}, 2, "--time-limit: is '");
  }
}

TEST(FirstRun, ASearchFileOutOfRangeOrAboutAnotherModelIsRefused) {
  const TemporaryFolder folder;
  const auto expect_space = [&](const std::string& space, const std::string& part) {
    expect_error(with(kTinyPlan, {"--space", folder.write("space.yaml", space)}), 2, part);
  };
  expect_space("llm: {zero: 4}", "llm.zero: holds the number 4, a whole number from 0 to 3 is needed");
  expect_space("llm: {zero: {at_most: 4}}", "llm.zero.at_most: is 4");
  expect_space("llm: {vpp: 17}", "from 1 to 16 is needed");
  expect_space("llm: {tp: 0}", "llm.tp: holds the number 0");
  expect_space("vision: {mbs_scale: 65}", "from 1 to 64 is needed");
  expect_space("mbs: {at_least: 16}", "mbs: allows none of the values that are searched: 1, 2, 4, 8");
  expect_space("audio: {placement: inline}", "audio: is about the module 'audio', which tiny-vl does not have");
  expect_space("frozen: [audio]", "frozen: is about the module 'audio'");
}

TEST(FirstRun, MoreStagesThanLayersIsTheReasonThatIsGiven) {
  const TemporaryFolder folder;
  const std::string space = folder.write("space.yaml", "llm: {pp: 8}");
  const ProgramRun run = run_weft({"plan", "--model", "tiny-vl", "--cluster", "dgx_h100", "--workload", "vl_sft",
                                   "--global-batch", "64", "--space", space});
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_NE(run.err.find("pp is at most the llm's 4 layers"), std::string::npos) << run.err;
}

TEST(FirstRun, AFileOfAnotherKindIsNamedForWhatItIs) {
  const std::string scenarios = source_tree().string() + "/scenarios/";
  expect_error({"simulate", "--plan", scenarios + "workloads/tiny_vl.yaml"}, 2, "looks like a workload");
  expect_error({"check", "--plan", scenarios + "models/tiny-vl.json"}, 2, "looks like a model configuration");
  expect_error({"describe", "--cluster", scenarios + "workloads/tiny_vl.yaml"}, 2, "not like a cluster");
  expect_error({"describe", "--model", kPlanFile}, 2, "looks like a plan");
  expect_error({"balance", "--costs", scenarios + "clusters/dgx_h100.yaml"}, 2, "looks like a cluster");
  expect_error(with(kTinyPlan, {"--space", scenarios + "workloads/tiny_vl.yaml"}), 2, "not like a search file");
}

TEST(FirstRun, ATextThatWasCutOffIsSaidToEndEarly) {
  const TemporaryFolder folder;
  std::ostringstream whole;
  whole << std::ifstream(kPlanFile).rdbuf();
  const std::string cut = folder.write("cut.json", whole.str().substr(0, whole.str().size() / 2));
  expect_error({"check", "--plan", cut}, 2, "cut.json: is not valid JSON: the text ends in line ");
}

TEST(FirstRun, FlagsThatAreMissingBareOrRepeatedAreNamedWithWhatTheyTake) {
  expect_error({"check"}, 2, "check: --plan: is missing. Give --plan FILE: ");
  expect_error({"plan", "--model", "tiny-vl"}, 2, "plan: --cluster: is missing");
  expect_error({"check", "--plan"}, 2, "check: --plan: is given without a value. Give --plan FILE: ");
  expect_error({"check", "--plan", "--json"}, 2, "check: --plan: is given without a value");
  expect_error({"check", "--plan", "a", "--plan", "b"}, 2, "check: --plan: is given more than once");
  expect_error({"check", kPlanFile}, 2, "--plan: is missing");
  expect_error({"check", "--plan", "a", "b"}, 2, "'b' stands alone");
}

TEST(FirstRun, HelpAndVersionAreVerbsAndUnknownOnesAreNot) {
  EXPECT_EQ(run_weft({"help", "plan"}).out, run_weft({"plan", "--help"}).out);
  EXPECT_EQ(run_weft({"help"}).out, run_weft({"--help"}).out);
  EXPECT_EQ(run_weft({"version"}).out, run_weft({"--version"}).out);
  EXPECT_EQ(run_weft({"version"}).exit_status, 0);
  expect_error({"explode", "--help"}, 2, "'explode' is not a verb");
  expect_error({"help", "explode"}, 2, "'explode' is not a verb");
}

TEST(FirstRun, NamesThatPeopleTypeLeadToTheOnesHere) {
  expect_error({"describe", "--model", "Qwen/Qwen2.5-VL-7B-Instruct"}, 2, "That model is here as 'qwen2.5-vl-7b'.");
  expect_error({"describe", "--model", "meta-llama/Meta-Llama-3-8B"}, 2, "That model is here as 'llama3-8b'.");
  expect_error({"describe", "--model", "someone/unknown-7b"}, 2, "download that and give its path");
  expect_error({"describe", "--cluster", "H100"}, 2, "Such devices are in dgx_h100 or grand_teton_h100_500w.");
  expect_error({"schedule", "--name", "1F1B", "--pp", "2", "--microbatches", "4"}, 2, "Did you mean '1f1b'?");
  const ProgramRun llava = run_weft({"describe", "--model", "llava"});
  EXPECT_EQ(llava.err.find("Did you mean"), std::string::npos) << llava.err;
}

TEST(FirstRun, TinyModelsShowTheirMemoryInUnitsThatFit) {
  const ProgramRun run = run_weft({"simulate", "--plan", kPlanFile, "--batches", "0"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_NE(run.out.find("MiB"), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("most of it are"), std::string::npos) << run.out;
}

TEST(FirstRun, NounsAgreeWithTheirNumber) {
  const ProgramRun run = run_weft({"schedule", "--name", "gpipe", "--pp", "1", "--microbatches", "1"});
  EXPECT_NE(run.out.find("gpipe: 1 rank, 1 stage, 1 microbatch, "), std::string::npos) << run.out << run.err;
}

TEST(FirstRun, AGridOfSeveralChunksShowsTheStages) {
  const ProgramRun run =
      run_weft({"schedule", "--name", "interleaved_1f1b", "--pp", "2", "--vpp", "2", "--microbatches", "4", "--grid"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_NE(run.out.find("0F0"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("2F0"), std::string::npos) << run.out;
}

TEST(FirstRun, APictureIsAsWideAsItsBoxesNeed) {
  const TemporaryFolder folder;
  const std::string costs = folder.write(
      "costs.json", R"({"forward_ms": [100, 0.1], "backward_input_ms": [100, 0.1], "backward_weight_ms": 0})");
  const std::string svg = (folder.path() / "t.svg").string();
  const ProgramRun run =
      run_weft({"schedule", "--name", "1f1b", "--pp", "2", "--microbatches", "4", "--costs", costs, "--svg", svg});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  std::ostringstream text;
  text << std::ifstream(svg).rdbuf();
  EXPECT_NE(text.str().find("width=\"804\""), std::string::npos) << text.str().substr(0, 300);
  EXPECT_NE(text.str().find("bubble"), std::string::npos);
  EXPECT_NE(text.str().find(">100<"), std::string::npos) << "round ticks";
}

/// Starts the program, waits until it works, and interrupts it.
ProgramRun interrupted(const std::vector<std::string>& arguments, std::chrono::milliseconds after) {
  const TemporaryFolder folder;
  std::vector<std::string> words = {build_tree() / "weft"};
  const StartedProgram program = start_command(with(words, arguments), folder.path());
  std::this_thread::sleep_for(after);
  kill(program.process, SIGINT);
  return wait_for(program);
}

TEST(FirstRun, AnInterruptedValidationSaysSo) {
  const ProgramRun run = interrupted({"validate", "--published"}, std::chrono::milliseconds(300));
  EXPECT_EQ(run.exit_status, 130);
  EXPECT_NE(run.err.find("validate: was interrupted"), std::string::npos) << run.err;
}

TEST(FirstRun, AnInterruptedBalanceGivesTheBestSoFar) {
  const TemporaryFolder folder;
  // Blocks that are all different, so that the proof takes longer than this test.
  Json costs = {{"schedule", "interleaved_1f1b"}, {"pp", 4}, {"vpp", 2}, {"microbatches", 16}, {"memory_gib", 60},
                {"chain", Json::array()}};
  for (int k = 0; k < 8; ++k) {
    costs["chain"].push_back({{"name", "k" + std::to_string(k)},
                              {"count", 10},
                              {"forward_ms", 1 + 0.137 * k},
                              {"backward_ms", 2 + 0.211 * ((k * 5) % 7)},
                              {"activation_gib", 0.01 + 0.003 * k},
                              {"recompute_saves_gib", 0.005}});
  }
  const ProgramRun run =
      interrupted({"balance", "--costs", folder.write("costs.json", costs.dump()), "--time-limit", "600", "--json"},
                  std::chrono::milliseconds(3000));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_NE(run.err.find("balance: was interrupted; this is the best so far"), std::string::npos) << run.err;
  EXPECT_EQ(Json::parse(run.out)["optimal"], false);
}

TEST(FirstRun, AnInterruptedBalanceOfManyBlocksEndsWithinASecond) {
  const TemporaryFolder folder;
  // So many ways to place them that listing them takes far longer than a second.
  Json costs = {{"schedule", "interleaved_1f1b"}, {"pp", 16}, {"vpp", 8}, {"microbatches", 256}, {"memory_gib", 600},
                {"chain", Json::array()}};
  for (int k = 0; k < 6; ++k) {
    costs["chain"].push_back({{"name", "k" + std::to_string(k)},
                              {"count", 80},
                              {"forward_ms", 1 + 0.137 * k},
                              {"backward_ms", 2 + 0.211 * ((k * 5) % 7)},
                              {"activation_gib", 0.01 + 0.003 * k},
                              {"recompute_saves_gib", 0.005}});
  }
  const std::string file = folder.write("costs.json", costs.dump());
  std::vector<std::string> words = {build_tree() / "weft", "balance", "--costs", file, "--time-limit", "600"};
  const StartedProgram program = start_command(words, folder.path());
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  const auto start = std::chrono::steady_clock::now();
  kill(program.process, SIGINT);
  const ProgramRun run = wait_for(program);
  EXPECT_EQ(run.exit_status, 130) << run.err;
  EXPECT_NE(run.err.find("was interrupted before"), std::string::npos) << run.err;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << "one, on a machine that is not busy";
}

TEST(FirstRun, NothingIsColouredWhereNobodyLooks) {
  const ProgramRun run = run_weft({"check", "--plan", "missing.json"}, {"TERM=xterm"});
  EXPECT_EQ(run.err.find('\033'), std::string::npos) << run.err;
}

}  // namespace
}  // namespace weft::first_run_test
