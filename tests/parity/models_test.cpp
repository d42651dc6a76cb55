#include <fstream>
#include <set>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/parity/fixture.h"
#include "weft/models/load_weights.h"

namespace weft::parity {
namespace {

class Models : public testing::TestWithParam<Case> {};

void print_largest(const std::string& what, double difference, const std::string& where = "") {
  fmt::print("  {}: largest relative difference {:.2e}{}\n", what, difference, where.empty() ? "" : " in " + where);
}

/// Gradients that are smaller than the largest by this factor are sums that cancel.
constexpr double kRounding = 1e-6;

/// Compares the gradient of every weight with "PREFIXname", and prints the largest difference.
void expect_gradients(const LoadedModel& loaded, const LoadedCase& given, const std::string& prefix, double tolerance) {
  double largest_gradient = 0;
  for (const auto& [name, tensor] : given.expected) {
    if (name.starts_with(prefix)) largest_gradient = std::max(largest_gradient, tensor.abs().max().item<double>());
  }
  const NamedWeights weights(loaded.parameters);
  double worst = 0;
  std::string worst_name;
  size_t compared = 0;
  const WeightFiles& files = loaded.network.numbers().files;
  std::set<std::string> names;
  for (const std::string& name : weights.names()) names.insert(files.stack_with(name).value_or(name));
  for (const std::string& name : names) {
    const at::Tensor found = weights.file_gradient(name, files);
    const auto expected = given.expected.find(prefix + name);
    if (expected == given.expected.end()) {
      EXPECT_TRUE(!found.defined() || found.abs().max().item<double>() == 0) << name << " has a gradient";
      continue;
    }
    ASSERT_TRUE(found.defined()) << name << " has no gradient";
    ++compared;
    // Without rotation, a bias of keys adds the same to all scores of a row: its gradient is nothing but rounding.
    if (expected->second.abs().max().item<double>() < kRounding * largest_gradient) {
      EXPECT_LT(found.abs().max().item<double>(), kRounding * largest_gradient) << name;
      continue;
    }
    const double difference = relative_difference(found, expected->second, 1e-5 * largest_gradient);
    EXPECT_LE(difference, tolerance) << name;
    if (difference > worst) {
      worst = difference;
      worst_name = name;
    }
  }
  EXPECT_GT(compared, 0u);
  print_largest(fmt::format("gradients of {} weights", compared), worst, worst_name);
}

void run_backward(const LoadedModel& loaded, const LoadedCase& given, const NetworkRun& run) {
  const at::Tensor loss = loaded.network.loss_sum(given.inputs, run) / static_cast<double>(given.inputs.num_targets());
  loss.backward();
}

TEST_P(Models, PositionsAreEqual) {
  const LoadedModel loaded = load_model(GetParam().folder, options_of(at::kFloat));
  const LoadedCase given = load_case(GetParam(), loaded, options_of(at::kFloat));
  EXPECT_TRUE(given.inputs.positions.equal(given.expected.at("position_ids")));
}

TEST_P(Models, EncoderRowsAndLogitsAndLossAreEqual) {
  const at::NoGradGuard no_graph;
  const LoadedModel loaded = load_model(GetParam().folder, options_of(at::kFloat));
  const LoadedCase given = load_case(GetParam(), loaded, options_of(at::kFloat));
  if (given.inputs.vision) {
    const at::Tensor rows = loaded.network.encode(ModuleKind::kVision, given.inputs, {});
    int64_t first = 0;
    for (const char* name : {"vision_rows", "video_rows"}) {
      const auto expected = given.expected.find(name);
      if (expected == given.expected.end()) continue;
      const double difference = relative_difference(rows.narrow(0, first, expected->second.size(0)), expected->second);
      EXPECT_LE(difference, 1e-5);
      print_largest(name, difference);
      first += expected->second.size(0);
    }
    EXPECT_EQ(first, rows.size(0));
  }
  if (given.inputs.audio) {
    const double difference = relative_difference(loaded.network.encode(ModuleKind::kAudio, given.inputs, {}),
                                                  given.expected.at("audio_rows"));
    EXPECT_LE(difference, 1e-5);
    print_largest("audio_rows", difference);
  }
  const double logits = relative_difference(loaded.network.logits(given.inputs, {}), given.expected.at("logits"));
  EXPECT_LE(logits, 1e-5);
  print_largest("logits", logits);
  const at::Tensor loss = loaded.network.loss_sum(given.inputs, {}) / static_cast<double>(given.inputs.num_targets());
  const double of_loss = relative_difference(loss, given.expected.at("loss"));
  EXPECT_LE(of_loss, 1e-5);
  print_largest("loss", of_loss);
}

TEST_P(Models, GradientsAreEqual) {
  const LoadedModel loaded = load_model(GetParam().folder, options_of(at::kFloat));
  const LoadedCase given = load_case(GetParam(), loaded, options_of(at::kFloat));
  run_backward(loaded, given, {});
  expect_gradients(loaded, given, "grad.", 1e-4);
}

TEST_P(Models, DeferredWeightGradientsAndRecomputedLayersGiveTheSame) {
  const LoadedModel plain = load_model(GetParam().folder, options_of(at::kDouble));
  const LoadedCase given = load_case(GetParam(), plain, options_of(at::kDouble));
  run_backward(plain, given, {});
  const LoadedModel other = load_model(GetParam().folder, options_of(at::kDouble));
  WeightGradients deferred;
  run_backward(other, given, {.context = {.deferred = &deferred}, .recomputes = true});
  EXPECT_GT(deferred.size(), 0u);
  const NamedWeights expected(plain.parameters);
  const NamedWeights found(other.parameters);
  EXPECT_FALSE(found.gradient("model.layers.0.self_attn.q_proj.weight").defined());
  deferred.run();
  for (const std::string& name : expected.names()) {
    const at::Tensor gradient = expected.gradient(name);
    ASSERT_EQ(gradient.defined(), found.gradient(name).defined()) << name;
    if (!gradient.defined()) continue;
    EXPECT_LE(relative_difference(found.gradient(name), gradient, 1e-9), 1e-12) << name;
  }
}

TEST_P(Models, DoublePrecisionIsDouble) {
  const at::NoGradGuard no_graph;
  const LoadedModel loaded = load_model(GetParam().folder, options_of(at::kDouble));
  const LoadedCase given = load_case(GetParam(), loaded, options_of(at::kDouble));
  const auto expected = given.expected.find("logits_f64");
  if (expected == given.expected.end()) GTEST_SKIP() << "this case has no expectation in double precision";
  const double logits = relative_difference(loaded.network.logits(given.inputs, {}), expected->second);
  EXPECT_LE(logits, 1e-12);
  print_largest("logits", logits);
}

TEST_P(Models, Bfloat16IsAsExactAsHuggingFaces) {
  const at::NoGradGuard no_graph;
  const LoadedModel loaded = load_model(GetParam().folder, options_of(at::kBFloat16));
  const LoadedCase given = load_case(GetParam(), loaded, options_of(at::kBFloat16));
  const at::Tensor expected = given.expected.at("logits");
  const at::Tensor found = loaded.network.logits(given.inputs, {}).to(at::kFloat);
  const double error = ((found - expected).norm() / expected.norm()).item<double>();
  const double theirs = given.facts.at("bf16_logits_error").get<double>();
  fmt::print("  logits: off by {:.4f}, Hugging Face's by {:.4f}\n", error, theirs);
  EXPECT_LE(error, 1.5 * theirs);
}

TEST_P(Models, BalancingLossAndItsGradientsAreEqual) {
  const LoadedModel loaded = load_model(GetParam().folder, options_of(at::kFloat));
  const LoadedCase given = load_case(GetParam(), loaded, options_of(at::kFloat));
  if (!given.expected.contains("loss_with_aux")) GTEST_SKIP() << "this model has no router";
  const double coefficient = given.facts.at("aux_coefficient").get<double>();
  std::vector<at::Tensor> losses;
  const NetworkRun run{.context = {.balance_scale = coefficient, .balance_losses = &losses}};
  at::Tensor loss = loaded.network.loss_sum(given.inputs, run) / static_cast<double>(given.inputs.num_targets());
  loss.backward();
  loss = loss.detach();
  for (const at::Tensor& one : losses) loss = loss + one * coefficient;
  EXPECT_LE(relative_difference(loss, given.expected.at("loss_with_aux")), 1e-5);
  expect_gradients(loaded, given, "grad_with_aux.", 1e-4);
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_P(Models, WeightsAreWrittenBackByteForByte) {
  const LoadedModel loaded = load_model(GetParam().folder, options_of(at::kFloat));
  const auto files = WeightFolder::open(GetParam().folder);
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / ("weft_" + GetParam().text());
  std::filesystem::create_directories(folder);
  const auto error = save_weights(folder, files->layout(), loaded.parameters, loaded.network.numbers().files);
  ASSERT_FALSE(error) << error->message();
  size_t compared = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    EXPECT_EQ(bytes_of(file.path()), bytes_of(GetParam().folder / file.path().filename())) << file.path();
    ++compared;
  }
  EXPECT_EQ(compared, files->files().size() + (files->layout().has_index ? 1 : 0));
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Models, testing::ValuesIn(all_cases()),
                         [](const auto& named) { return named.param.text(); });

}  // namespace
}  // namespace weft::parity
