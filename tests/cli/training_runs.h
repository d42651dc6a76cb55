#pragma once

#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/source_tree.h"
#include "weft/base/json.h"

// What tests of the program's training runs share.
namespace weft::train_test {

inline std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

/// Castagnoli's, bit by bit.
inline uint32_t plain_crc32c(const std::string& text) {
  uint32_t sum = 0xffffffffU;
  for (const char letter : text) {
    sum ^= static_cast<uint8_t>(letter);
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1U) != 0 ? 0x82f63b78U : 0U);
  }
  return ~sum;
}

/// Writes a checkpoint.json as who knows the format and seals what was changed.
inline void write_sealed(const std::filesystem::path& file, Json changed) {
  changed.erase("crc32c");
  std::string text = changed.dump();
  text.back() = ',';
  text += '\n';
  std::ofstream(file, std::ios::binary) << text << fmt::format("\"crc32c\": \"{:08x}\"\n}}\n", plain_crc32c(text));
}

/// Samples that take milliseconds, in double precision so that sums in another order do not show.
inline constexpr const char* kWorkload = R"(global_batch_samples: 8
text_tokens: {values: [12, 20, 33], weights: [0.3, 0.4, 0.3]}
images_per_sample: {values: [0, 1, 2], weights: [0.3, 0.5, 0.2]}
patches_per_image: {values: [16, 64], weights: [0.5, 0.5]}
precision: fp64
optimizer: adamw
)";

inline std::string config_text(int64_t steps, int64_t interval, const std::string& more = "") {
  std::string text = fmt::format(
      "steps: {}\nseed: 7\nthreads_per_rank: 1\noptimizer: {{learning_rate: 3.0e-3}}\n"
      "learning_rate_schedule: {{kind: constant, warmup_steps: {}}}\nevaluation_batches: 2\n",
      steps, steps > 2 ? 2 : 0);
  if (interval > 0) text += fmt::format("checkpoints: {{interval_steps: {}}}\n", interval);
  return text + more;
}

/// Plans, configurations and runs of one test.
class TrainingRuns : public testing::Test {
 protected:
  /// `space` pins what the search may choose.
  std::string plan(const std::string& name, int devices, const std::string& space, const std::string& model = "tiny-vl",
                   const std::string& workload_text = kWorkload) {
    const std::string workload = folder_.write("workload.yaml", workload_text);
    std::string cluster = text_of(source_tree() / "scenarios/clusters/local_cpu.yaml");
    const std::string usual = "devices_per_node: 8";
    cluster.replace(cluster.find(usual), usual.size(), fmt::format("devices_per_node: {}", devices));
    const std::string file = (folder_.path() / (name + ".json")).string();
    const ProgramRun run =
        run_weft({"plan", "--model", model, "--cluster", folder_.write("cluster.yaml", cluster), "--workload", workload,
                  "--space", folder_.write(name + ".yaml", space), "--out", file});
    EXPECT_EQ(run.exit_status, 0) << run.err;
    return file;
  }
  std::string two_ranks_plan() {
    return plan("two", 2,
                "mbs: 2\nllm: {tp: 1, pp: 2, cp: 1, dp: 1}\nvision: {placement: inline}\n"
                "schedule: [1f1b]\n");
  }
  std::string config(int64_t steps, int64_t interval, const std::string& more = "") {
    return folder_.write("train.yaml", config_text(steps, interval, more));
  }
  std::string run_folder(const std::string& name) const { return (folder_.path() / name).string(); }
  std::vector<Json> metrics(const std::string& name) const {
    std::vector<Json> lines;
    std::ifstream file(folder_.path() / name / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  std::string refusal(std::vector<std::string> arguments, int exit_status = 2) {
    arguments.insert(arguments.begin(), "train");
    const ProgramRun run = run_weft(arguments);
    EXPECT_EQ(run.exit_status, exit_status) << run.err;
    EXPECT_EQ(run.out, "");
    return run.err;
  }

  TemporaryFolder folder_;
};

inline testing::AssertionResult says(const std::string& text, const std::string& what) {
  if (text.find(what) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << text << "does not say\n" << what;
}

}  // namespace weft::train_test
