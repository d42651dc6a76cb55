// Five AdamW steps of a tiny Qwen2-VL against PyTorch's, on one rank and spread.
#include <fstream>
#include <mutex>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "tests/parity/fixture.h"
#include "tests/support/source_tree.h"
#include "weft/checkpoint/initial_weights.h"
#include "weft/comm/run_ranks.h"
#include "weft/meaning/parallel_settings.h"
#include "weft/models/load_weights.h"
#include "weft/models/samples.h"
#include "weft/models/tensor_file.h"
#include "weft/pipeline/training_rank.h"
#include "weft/spec/model_reader.h"
#include "weft/spec/scenario.h"

namespace weft::parity {
namespace {

const std::string kFixture = "qwen2_vl_train";

struct Split {
  const char* name;
  ParallelSettings settings;
};

void PrintTo(const Split& split, std::ostream* out) {
  *out << split.name;
}

class TrainingParity : public testing::TestWithParam<Split> {};

TEST_P(TrainingParity, LossesNormsAndWeightsAreThoseOfPyTorch) {
  const std::filesystem::path folder = fixtures_folder() / kFixture;
  Json facts;
  std::ifstream(folder / "training.json") >> facts;
  const Model model = *read_model_file(folder);
  const Scenarios scenarios(source_tree() / "scenarios");
  ParallelSettings settings = GetParam().settings;
  settings.precision = {.compute = Precision::kFp32, .master = Precision::kFp32, .reduce = Precision::kFp32};
  const auto plan = make_plan(model, *scenarios.cluster("local_cpu"), *scenarios.workload("vl_sft"), settings);
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  const TrainingSettings training{.adamw = {.beta1 = facts["beta1"],
                                            .beta2 = facts["beta2"],
                                            .epsilon = facts["eps"],
                                            .weight_decay = facts["weight_decay"]},
                                  .max_gradient_norm = facts["clip_norm"]};
  std::mutex guard;
  const auto error = run_ranks({.size = plan->world_size}, [&](World& world) {
    at::set_num_threads(1);
    auto made = TrainingRank::create(world, *plan, training);
    WEFT_CHECK(made.ok(), "{}", made.error().message());
    TrainingRank& rank = **made;
    const auto failed = load_initial_weights(*WeightFolder::open(folder), model, world.all(), rank.optimizers());
    WEFT_CHECK(!failed, "{}", failed->message());
    for (size_t step = 0; step < facts["losses"].size(); ++step) {
      const RawInputs raw = *raw_inputs(*read_tensors(folder / ("step" + std::to_string(step) + ".safetensors")));
      const std::vector<RawInputs> samples = split_samples(rank.numbers(), raw);
      ASSERT_EQ(std::ssize(samples), 3);
      const int64_t num_targets = raw.targets.ne(-100).sum().item<int64_t>();
      std::vector<Inputs> microbatches;
      const bool is_whole = settings.micro_batch_size == 3;
      for (int64_t m = 0; m < settings.micro_batch_num; ++m) {
        const auto index = static_cast<size_t>(m * settings.data_parallel + rank.data_parallel_rank());
        microbatches.push_back(
            prepare_inputs(rank.numbers(), rank.vocabulary(), is_whole ? raw : samples[index])->to(rank.options()));
      }
      const StepReport report = rank.step(microbatches, num_targets, facts["lr"]);
      const std::lock_guard lock(guard);
      const double loss = facts["losses"][step], norm = facts["grad_norms"][step];
      EXPECT_NEAR(report.loss, loss, 1e-5 * loss) << "step " << step;
      EXPECT_NEAR(report.gradient_norm, norm, 1e-5 * norm) << "step " << step;
    }
    if (world.size() > 1) return;
    const NamedWeights weights(rank.parameters());
    const auto trained = *read_tensors(folder / "trained.safetensors");
    for (const auto& [name, expected] : trained) {
      const at::Tensor found = weights.value(name);
      ASSERT_TRUE(found.defined()) << name;
      // AdamW divides small gradients by their own size, so that rounding in them is not small in the weights.
      EXPECT_LE((found - expected).norm().item<double>(), 1e-4 * expected.norm().item<double>()) << name;
    }
  });
  EXPECT_FALSE(error) << error->message();
}

INSTANTIATE_TEST_SUITE_P(
    Splits, TrainingParity,
    testing::Values(Split{"OneRank", {.micro_batch_size = 3}}, Split{"Accumulated", {.micro_batch_num = 3}},
                    Split{"Data", {.data_parallel = 3}}, Split{"Zero3", {.data_parallel = 3, .optimizer_shard = 3}},
                    Split{"Tensor", {.model_parallel = 2, .micro_batch_size = 3, .sequence_parallel = true}},
                    Split{"Context", {.context_parallel = 2, .micro_batch_size = 3}},
                    Split{"Pipeline", {.pipeline_stage = 2, .micro_batch_num = 3}},
                    Split{"TensorAndPipeline", {.model_parallel = 2, .pipeline_stage = 2, .micro_batch_num = 3}}),
    [](const auto& split) { return split.param.name; });

}  // namespace
}  // namespace weft::parity
