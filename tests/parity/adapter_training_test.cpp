// Ten steps of adapters against PEFT's, on one rank and spread.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <mutex>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/parity/fixture.h"
#include "tests/support/source_tree.h"
#include "weft/checkpoint/initial_weights.h"
#include "weft/comm/run_ranks.h"
#include "weft/meaning/parallel_settings.h"
#include "weft/models/adapter_files.h"
#include "weft/models/tensor_file.h"
#include "weft/pipeline/training_rank.h"
#include "weft/spec/model_reader.h"
#include "weft/spec/scenario.h"

namespace weft::parity {
namespace {

struct AdapterCase {
  std::string fixture;
  const char* split;
  ParallelSettings settings;
};

void PrintTo(const AdapterCase& one, std::ostream* out) {
  *out << one.fixture << one.split;
}

std::filesystem::path adapters_folder() {
  return source_tree() / "tests/parity/adapters";
}

/// Every family on one rank, and some of them spread.
std::vector<AdapterCase> adapter_cases() {
  std::vector<AdapterCase> cases;
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(adapters_folder()))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    cases.push_back({name, "OneRank", {}});
    if (name == "qwen2_5_omni")  // its vision has one head
      cases.push_back({name, "Context", {.context_parallel = 2}});
    else
      cases.push_back({name, "Tensor", {.model_parallel = 2, .sequence_parallel = true}});
    cases.push_back({name, "Pipeline", {.pipeline_stage = 2}});
  }
  return cases;
}

class AdapterParity : public testing::TestWithParam<AdapterCase> {};

TEST_P(AdapterParity, LossesAndNormsAreThoseOfPeft) {
  const std::filesystem::path adapters = adapters_folder() / GetParam().fixture;
  Json facts;
  std::ifstream(adapters / "training.json") >> facts;
  const std::filesystem::path folder = source_tree() / "tests/parity/fixtures" / facts["fixture"].get<std::string>();
  const Model plain = *read_model_file(folder);
  const auto opened = AdapterFolder::open(adapters, plain);
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  const auto model = with_adapters(plain, opened->rules(), adapters.string());
  ASSERT_TRUE(model.ok()) << model.error().message();
  const Scenarios scenarios(source_tree() / "scenarios");
  const LoadedModel loaded = load_model(folder, options_of(at::kFloat));
  const RawInputs raw =
      load_case({GetParam().fixture, facts["case"].get<std::string>(), folder}, loaded, options_of(at::kFloat)).raw;
  ParallelSettings settings = GetParam().settings;
  settings.micro_batch_size = std::ssize(raw.lengths);
  settings.precision = {.compute = Precision::kFp32, .master = Precision::kFp32, .reduce = Precision::kFp32};
  const auto plan = make_plan(*model, *scenarios.cluster("local_cpu"),
                              *scenarios.workload(plain.modules.size() > 1 ? "vl_sft" : "text_4k"), settings);
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  const TrainingSettings training{.adamw = {.beta1 = facts["beta1"],
                                            .beta2 = facts["beta2"],
                                            .epsilon = facts["eps"],
                                            .weight_decay = facts["weight_decay"]},
                                  .max_gradient_norm = facts["clip_norm"]};
  ASSERT_EQ(facts["losses"].size(), 10u);
  std::mutex guard;
  double worst = 0;
  const auto error = run_ranks({.size = plan->world_size}, [&](World& world) {
    at::set_num_threads(1);
    auto made = TrainingRank::create(world, *plan, training);
    WEFT_CHECK(made.ok(), "{}", made.error().message());
    TrainingRank& rank = **made;
    const auto failed =
        load_initial_weights(*WeightFolder::open(folder), *model, world.all(), rank.optimizers(), {.folder = adapters});
    WEFT_CHECK(!failed, "{}", failed->message());
    const Inputs batch = prepare_inputs(rank.numbers(), rank.vocabulary(), raw)->to(rank.options());
    for (size_t step = 0; step < facts["losses"].size(); ++step) {
      const StepReport report = rank.step({batch}, batch.num_targets(), facts["lr"]);
      const std::lock_guard lock(guard);
      const double loss = facts["losses"][step], norm = facts["grad_norms"][step];
      EXPECT_NEAR(report.loss, loss, 1e-5 * loss) << "step " << step;
      worst = std::max(worst, std::abs(report.loss / loss - 1));
      // Norms follow weights, of which AdamW changes those with small gradients as much as others.
      EXPECT_NEAR(report.gradient_norm, norm, 1e-4 * norm) << "step " << step;
    }
  });
  EXPECT_FALSE(error) << error->message();
  fmt::print("  losses: largest relative difference {:.2e}\n", worst);
}

INSTANTIATE_TEST_SUITE_P(Families, AdapterParity, testing::ValuesIn(adapter_cases()),
                         [](const auto& test) { return test.param.fixture + "_" + test.param.split; });

class AdapterFiles : public testing::TestWithParam<std::string> {};

std::vector<std::string> adapter_names() {
  std::vector<std::string> names;
  for (const AdapterCase& one : adapter_cases()) {
    if (names.empty() || names.back() != one.fixture) names.push_back(one.fixture);
  }
  return names;
}

TEST_P(AdapterFiles, AreWrittenAsPeftWroteThem) {
  const std::filesystem::path folder = adapters_folder() / GetParam();
  const Model plain = *read_model_file(source_tree() / "tests/parity/fixtures" / GetParam());
  const auto opened = AdapterFolder::open(folder, plain);
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  const Model model = *with_adapters(plain, opened->rules(), "test");
  std::string name = (std::filesystem::temp_directory_path() / "weft_adapter_XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const std::filesystem::path written = name;
  const auto error =
      write_adapter_folder(written, model, "", [&](const std::string& weight) { return opened->value(weight); });
  ASSERT_FALSE(error) << error->message();
  const auto theirs = *read_tensors(folder / "adapter_model.safetensors");
  const auto ours = *read_tensors(written / "adapter_model.safetensors");
  EXPECT_EQ(ours.size(), theirs.size());
  for (const auto& [key, value] : theirs) {
    ASSERT_TRUE(ours.contains(key)) << key;
    EXPECT_TRUE(at::equal(ours.at(key), value)) << key;
  }
  Json config, peft;
  std::ifstream(written / "adapter_config.json") >> config;
  std::ifstream(folder / "adapter_config.json") >> peft;
  for (const char* field : {"peft_type", "r", "lora_alpha", "bias"}) EXPECT_EQ(config[field], peft[field]) << field;
  std::filesystem::remove_all(written);
}

INSTANTIATE_TEST_SUITE_P(Families, AdapterFiles, testing::ValuesIn(adapter_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace weft::parity
