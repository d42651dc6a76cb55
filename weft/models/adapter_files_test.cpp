#include "weft/models/adapter_files.h"

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "tests/support/weights/example_files.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

// The ranges are those of a plan's own adapters: sizes and scales follow from these numbers.
TEST(AdapterFiles, RanksAndAlphasOutOfRangeAreNamed) {
  const Model model = *read_model_file(source_tree() / "tests/parity/fixtures/qwen3/config.json");
  const auto problem_of = [&](const std::string& config, const std::string& shape, const std::string& data = "") {
    const ScratchFolder scratch;
    scratch.write("adapter_config.json", config);
    const std::string header =
        R"({"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": {"dtype": "F32", "shape": )" + shape +
        R"(, "data_offsets": [0, )" + std::to_string(data.size()) + "]}}";
    scratch.write("adapter_model.safetensors", file_of(header, data));
    const auto opened = AdapterFolder::open(scratch.path(), model);
    if (opened) return std::string();
    const std::string message = opened.error().message();
    return message.substr(message.find(".json") != std::string::npos ? message.find(".json") : message.find(".saf"));
  };
  const std::string good = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4})", four(16, '\0');
  EXPECT_EQ(problem_of(good, "[2, 2]", four), "");
  EXPECT_EQ(
      problem_of(R"({"r": 2, "lora_alpha": 4, "alpha_pattern": {"q_proj": 8}, "rank_pattern": {}})", "[2, 2]", four),
      "");
  expect_start(problem_of(good, "[1152921504606846976, 0]"),
               ".safetensors: base_model.model.model.layers.0.self_attn.");
  expect_start(problem_of(good, "[0, 4]"), ".safetensors: base_model.model.model.layers.0.self_attn.q_proj.lora_");
  expect_start(problem_of(R"({"r": -2, "lora_alpha": 4})", "[2, 2]", four),
               ".json: r: is -2, a whole number from 1 to 65536 is needed");
  expect_start(problem_of(R"({"r": 2, "lora_alpha": 1e308})", "[2, 2]", four), ".json: lora_alpha: is the number 1e");
  expect_start(problem_of(R"({"r": 2, "lora_alpha": -1})", "[2, 2]", four), ".json: lora_alpha: is the number -1, a");
  expect_start(problem_of(R"({"r": 2})", "[2, 2]", four), ".json: lora_alpha: is missing");
  expect_start(problem_of(R"({"r": 2, "lora_alpha": 4, "alpha_pattern": {"q_proj": -8}})", "[2, 2]", four),
               ".json: alpha_pattern.q_proj: is the number -8, a number from 0 to");
  expect_start(problem_of(R"({"r": 2, "lora_alpha": 4, "alpha_pattern": [1]})", "[2, 2]", four),
               ".json: alpha_pattern: is a list, a mapping");
}

}  // namespace
}  // namespace weft
