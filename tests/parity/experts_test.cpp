// Mixtures of experts, shared out over ranks, against Hugging Face's.
#include <algorithm>
#include <mutex>
#include <set>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/parity/fixture.h"
#include "tests/support/source_tree.h"
#include "weft/checkpoint/initial_weights.h"
#include "weft/comm/run_ranks.h"
#include "weft/meaning/check.h"
#include "weft/meaning/parallel_settings.h"
#include "weft/models/load_weights.h"
#include "weft/pipeline/training_rank.h"
#include "weft/spec/model_reader.h"
#include "weft/spec/scenario.h"

namespace weft::parity {
namespace {

struct SharedOut {
  std::string fixture;
  std::string name;
  int64_t ep = 1;
  bool divides_samples = false;  ///< among the ranks; else each has all of them
  bool is_balanced = false;

  std::string text() const {
    return fmt::format("{}_{}_ep{}{}{}", fixture, name, ep, divides_samples ? "_divided" : "",
                       is_balanced ? "_balanced" : "");
  }
};

void PrintTo(const SharedOut& shared, std::ostream* out) {
  *out << shared.text();
}

/// Samples of a text from one to another.
RawInputs samples_between(const RawInputs& raw, size_t begin, size_t end) {
  int64_t first = 0, count = 0;
  for (size_t sample = 0; sample < end; ++sample) (sample < begin ? first : count) += raw.lengths[sample];
  RawInputs some;
  some.input_ids = raw.input_ids.narrow(0, first, count);
  some.targets = raw.targets.narrow(0, first, count);
  some.lengths.assign(raw.lengths.begin() + static_cast<std::ptrdiff_t>(begin),
                      raw.lengths.begin() + static_cast<std::ptrdiff_t>(end));
  return some;
}

Plan plan_of(const Model& model, const SharedOut& shared) {
  const Scenarios scenarios(source_tree() / "scenarios");
  auto plan =
      make_plan(model, *scenarios.cluster("local_cpu"), *scenarios.workload("text_4k"),
                {.data_parallel = shared.ep,
                 .precision = {.compute = Precision::kFp32, .master = Precision::kFp32, .reduce = Precision::kFp32}});
  WEFT_CHECK(plan.ok(), "{}", plan.error().message());
  plan->modules.back().ep = shared.ep;
  const std::vector<Violation> violations = check_plan(*plan);
  WEFT_CHECK(violations.empty(), "{}: {}", violations.front().field, violations.front().message);
  return *std::move(plan);
}

int64_t num_expert_weights(const std::vector<ParameterPtr>& parameters) {
  const std::vector<std::string> names = NamedWeights(parameters).names();
  return std::count_if(names.begin(), names.end(),
                       [](const std::string& name) { return name.find(".mlp.experts.") != std::string::npos; });
}

class SharedExperts : public testing::TestWithParam<SharedOut> {};

TEST_P(SharedExperts, LossAndGradientsAreThoseOfHuggingFace) {
  const SharedOut& shared = GetParam();
  const Case which{.fixture = shared.fixture, .name = shared.name, .folder = fixtures_folder() / shared.fixture};
  const LoadedModel loaded = load_model(which.folder, at::TensorOptions().dtype(at::kFloat));
  const LoadedCase given = load_case(which, loaded, at::TensorOptions().dtype(at::kFloat));
  Json config = loaded.model.config;
  const auto num_experts = config.at("num_local_experts").get<int64_t>();
  if (num_experts % shared.ep != 0 || (shared.divides_samples && std::ssize(given.raw.lengths) < shared.ep))
    GTEST_SKIP() << "other fixtures than the committed ones: " << num_experts << " experts";
  if (shared.is_balanced) config["router_aux_loss_coef"] = given.facts.at("aux_coefficient");
  const Model model = *read_model({.source = shared.fixture, .root = std::move(config)}, shared.fixture);
  const Plan plan = plan_of(model, shared);
  const std::string prefix = shared.is_balanced ? "grad_with_aux." : "grad.";
  double largest_gradient = 0;
  std::set<std::string> left;  // expected gradients that no rank had yet
  for (const auto& [name, tensor] : given.expected) {
    if (!name.starts_with(prefix)) continue;
    left.insert(name.substr(prefix.size()));
    largest_gradient = std::max(largest_gradient, tensor.abs().max().item<double>());
  }
  ASSERT_FALSE(left.empty());
  const int64_t copies = shared.divides_samples ? 1 : shared.ep;
  std::mutex guard;
  double worst = 0;
  const auto error = run_ranks({.size = plan.world_size}, [&](World& world) {
    at::set_num_threads(1);
    const auto made = TrainingRank::create(world, plan, {});
    WEFT_CHECK(made.ok(), "{}", made.error().message());
    TrainingRank& rank = **made;
    const auto failed = load_initial_weights(*WeightFolder::open(which.folder), model, world.all(), rank.optimizers());
    WEFT_CHECK(!failed, "{}", failed->message());
    const size_t samples = given.raw.lengths.size();
    const auto place = static_cast<size_t>(rank.data_parallel_rank());
    const auto ranks = static_cast<size_t>(shared.ep);
    const RawInputs mine = shared.divides_samples
                               ? samples_between(given.raw, place * samples / ranks, (place + 1) * samples / ranks)
                               : given.raw;
    const StepReport report = rank.step({prepare_inputs(rank.numbers(), rank.vocabulary(), mine)->to(rank.options())},
                                        copies * given.inputs.num_targets(), /*learning_rate=*/0);
    const std::lock_guard lock(guard);
    const double loss = given.expected.at(shared.is_balanced ? "loss_with_aux" : "loss").item<double>();
    EXPECT_NEAR(report.loss + report.balance_loss, loss, 1e-5 * loss);
    EXPECT_EQ(report.balance_loss > 0, shared.is_balanced);
    // Experts of this rank, and all other weights.
    const NamedWeights weights(rank.parameters());
    for (const std::string& name : weights.names()) {
      const at::Tensor found = weights.gradient(name);
      const auto expected = given.expected.find(prefix + name);
      if (expected == given.expected.end()) {
        EXPECT_TRUE(!found.defined() || found.abs().max().item<double>() == 0) << name << " has a gradient";
        continue;
      }
      ASSERT_TRUE(found.defined()) << name << " has no gradient";
      left.erase(name);
      const double difference = relative_difference(found, expected->second, 1e-5 * largest_gradient);
      EXPECT_LE(difference, 1e-4) << name;
      worst = std::max(worst, difference);
    }
    EXPECT_EQ(num_expert_weights(rank.parameters()) * shared.ep, num_expert_weights(loaded.parameters));
  });
  EXPECT_FALSE(error) << error->message();
  EXPECT_TRUE(left.empty()) << *left.begin() << " is on no rank";
  fmt::print("  gradients: largest relative difference {:.2e}\n", worst);
}

INSTANTIATE_TEST_SUITE_P(
    Fixtures, SharedExperts,
    testing::Values(SharedOut{.fixture = "qwen3_moe_norm", .name = "single", .ep = 2},
                    SharedOut{.fixture = "qwen3_moe_norm", .name = "single", .ep = 2, .is_balanced = true},
                    SharedOut{.fixture = "qwen3_moe_norm", .name = "packed", .ep = 2, .divides_samples = true},
                    SharedOut{.fixture = "qwen3_moe_norm", .name = "packed", .ep = 2, .is_balanced = true},
                    SharedOut{.fixture = "qwen3_moe_norm", .name = "packed", .ep = 4, .divides_samples = true},
                    SharedOut{.fixture = "qwen3_moe_mixed", .name = "packed", .ep = 5, .divides_samples = true},
                    SharedOut{.fixture = "qwen3_moe_mixed", .name = "packed", .ep = 5, .is_balanced = true}),
    [](const auto& shared) { return shared.param.text(); });

}  // namespace
}  // namespace weft::parity
