// What reassigning samples brings a step when a few images are large. First eight thread ranks with a tiny model, each
// of which sleeps what its samples are predicted to take in Qwen2-VL-7B on eight H200; then two that compute a small
// model. With samples in the batch's order and balanced: predicted and measured step, and how much more the busiest
// rank has to do than the mean.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "bench/vl_steps.h"
#include "weft/cost/sample_cost.h"
#include "weft/meaning/balance.h"

namespace {

using namespace weft;

constexpr auto kVision = ModuleKind::kVision;
constexpr double kForwardShare = 1.0 / 3;  ///< of forward and backward together

/// One sample in eight has a large image, the others a small one or none.
std::vector<VlSample> skewed_samples(int64_t count, int64_t text, int64_t small_side, int64_t large_side) {
  std::mt19937_64 random(4);
  std::vector<VlSample> samples;
  for (int64_t i = 0; i < count; ++i) {
    VlSample sample{.tokens = text};
    const uint64_t drawn = random() % 8;
    if (drawn > 0) sample.image_sides = {drawn == 7 ? large_side : small_side};
    sample.tokens += sample.image_rows() + 2;
    samples.push_back(sample);
  }
  return samples;
}

BatchCosts costs_of(const Plan& plan, const std::vector<VlSample>& samples) {
  const CostModel model = must(CostModel::create(plan));
  const PlanSampleCosts costs(model, plan);
  BatchCosts all;
  for (const VlSample& sample : samples) {
    all.llm.push_back(costs.llm_ms(sample.load()));
    all.encoders[kVision].push_back(costs.encoder_ms(kVision, sample.load()));
  }
  return all;
}

/// Without a pipeline, everything of the llm's data-parallel ranks and of as many of the encoder.
BatchShape shape_of(int64_t ranks, int64_t microbatches) {
  return {.llm = {ranks, microbatches, 1}, .encoders = {{kVision, {.data_parallel = ranks, .mbs_scale = 1}}}};
}

double sum_of(const std::vector<int64_t>& samples, const std::vector<double>& costs) {
  double sum = 0;
  for (const int64_t sample : samples) sum += costs[static_cast<size_t>(sample)];
  return sum;
}

struct Predicted {
  double step_ms = 0;
  std::vector<double> busy_ms;  ///< by rank

  double spread() const {
    const double sum = std::accumulate(busy_ms.begin(), busy_ms.end(), 0.0);
    return *std::max_element(busy_ms.begin(), busy_ms.end()) * static_cast<double>(busy_ms.size()) / sum;
  }
};

/// A rank encodes all of its macro batches, runs microbatch after microbatch, and goes back through its macro batches.
/// Microbatch m needs macro batch m of all ranks, and a macro batch's backward needs the gradients of all.
Predicted predict(const BatchAssignment& assignment, const BatchCosts& costs) {
  const size_t ranks = assignment.llm.size(), microbatches = assignment.llm.front().size();
  const BatchAssignment::Shares& macros = assignment.encoders.at(kVision);
  Predicted predicted{.busy_ms = std::vector<double>(ranks)};
  std::vector<double> encoded(microbatches, 0), done(microbatches, 0), clock(ranks, 0);
  const auto encode = [&](size_t r, size_t k) { return sum_of(macros[r][k], costs.encoders.at(kVision)); };
  const auto spend = [&](size_t r, double ms) {
    clock[r] += ms;
    predicted.busy_ms[r] += ms;
  };
  for (size_t r = 0; r < ranks; ++r) {
    for (size_t k = 0; k < microbatches; ++k) {
      spend(r, kForwardShare * encode(r, k));
      encoded[k] = std::max(encoded[k], clock[r]);
    }
  }
  for (size_t r = 0; r < ranks; ++r) {
    for (size_t m = 0; m < microbatches; ++m) {
      clock[r] = std::max(clock[r], encoded[m]);
      spend(r, sum_of(assignment.llm[r][m], costs.llm));
      done[m] = std::max(done[m], clock[r]);
    }
  }
  for (size_t r = 0; r < ranks; ++r) {
    for (size_t k = 0; k < microbatches; ++k) {
      clock[r] = std::max(clock[r], done[k]);
      spend(r, (1 - kForwardShare) * encode(r, k));
    }
    predicted.step_ms = std::max(predicted.step_ms, clock[r]);
  }
  return predicted;
}

/// What a rank's actions sleep for the samples that it was given.
Pace pace_of(const BatchAssignment& assignment, const BatchCosts& costs, int64_t rank, double scale) {
  return [=](const Action& action) {
    const auto r = static_cast<size_t>(rank);
    const auto m = static_cast<size_t>(action.microbatch);
    switch (action.kind) {
      case ActionKind::kForward:
        return scale * kForwardShare * sum_of(assignment.llm[r][m], costs.llm);
      case ActionKind::kBackward:
        return scale * (1 - kForwardShare) * sum_of(assignment.llm[r][m], costs.llm);
      case ActionKind::kEncodeForward:
        return scale * kForwardShare * sum_of(assignment.encoders.at(kVision)[r][m], costs.encoders.at(kVision));
      case ActionKind::kEncodeBackward:
        return scale * (1 - kForwardShare) * sum_of(assignment.encoders.at(kVision)[r][m], costs.encoders.at(kVision));
      default:
        return 0.0;
    }
  };
}

double compute_spread(const MeasuredStep& step) {
  double sum = 0, most = 0;
  for (const MeasuredRank& rank : step.ranks) {
    sum += rank.own_ms;
    most = std::max(most, rank.own_ms);
  }
  return most * static_cast<double>(step.ranks.size()) / sum;
}

/// The mean of samples, for prices.
Workload workload_of(const std::vector<VlSample>& samples) {
  double tokens = 0, images = 0, patches = 0;
  for (const VlSample& sample : samples) {
    tokens += static_cast<double>(sample.tokens);
    images += static_cast<double>(sample.image_sides.size());
    patches += static_cast<double>(4 * sample.image_rows());
  }
  const auto count = static_cast<double>(samples.size());
  return {.tokens = Distribution::constant(std::round(tokens / count)),
          .tokens_include_media = true,
          .images = {.pieces_per_sample = Distribution::weighted({{0, count - images}, {1, images}}),
                     .size = Distribution::constant(std::round(patches / images / 4) * 4)}};
}

void print(const char* name, const std::vector<Predicted>& predicted, const std::vector<MeasuredStep>& measured,
           double scale) {
  fmt::print("{}\n", name);
  for (size_t i = 0; i < measured.size(); ++i) {
    fmt::print(
        "  {:8}: predicted {:7.1f} ms a step, busiest rank {:.3f} of the mean; measured {:7.1f}, {:.3f}; of all:",
        i == 0 ? "in order" : "balanced", predicted[i].step_ms, predicted[i].spread(), measured[i].step_ms / scale,
        compute_spread(measured[i]));
    for (const double ms : measured[i].all_ms) fmt::print(" {:.0f}", ms / scale);
    fmt::print("; ranks:");
    for (const MeasuredRank& rank : measured[i].ranks) fmt::print(" {:.0f}", rank.own_ms / scale);
    fmt::print("\n");
  }
  fmt::print("  in order takes {:.2f} times as long as balanced, predicted {:.2f}\n",
             measured[0].step_ms / measured[1].step_ms, predicted[0].step_ms / predicted[1].step_ms);
  std::fflush(stdout);
}

std::vector<BatchAssignment> assignments(int64_t ranks, int64_t microbatches, const BatchCosts& costs) {
  const BatchShape shape = shape_of(ranks, microbatches);
  return {assign_in_order(shape), assign_balanced(shape, {.llm = true, .encoders = true}, costs)};
}

void compare_sleeping() {
  constexpr int64_t kRanks = 8, kMicrobatches = 6;
  constexpr double kSleptMs = 1500;
  const std::vector<VlSample> samples = skewed_samples(kRanks * kMicrobatches, 512, 24, 112);
  const VlSetting setting{.dp = kRanks, .microbatches = kMicrobatches, .vision_dp = kRanks};
  const Cluster cluster = scenario_cluster("hgx_h200");
  const Plan large = vl_plan(qwen2_vl_7b(), cluster, workload_of(samples), Precision::kBf16, setting);
  const BatchCosts costs = costs_of(large, samples);
  const Plan tiny = vl_plan(small_vl({}), cluster, workload_of(samples), Precision::kFp32, setting);
  std::vector<VlCase> cases;
  std::vector<Predicted> predicted;
  double scale = 0;
  for (const BatchAssignment& assignment : assignments(kRanks, kMicrobatches, costs)) {
    predicted.push_back(predict(assignment, costs));
    if (scale == 0) scale = kSleptMs / predicted.front().step_ms;
    cases.push_back({.plan = tiny,
                     .samples = std::vector<VlSample>(samples.size(), {8, {4}}),
                     .assignment = assignment,
                     .pace = [=](int64_t rank) { return pace_of(assignment, costs, rank, scale); }});
  }
  print("Eight ranks that sleep as Qwen2-VL-7B on H200, llm and vision dp 8, 6 microbatches of 1", predicted,
        measure_steps(cases, 3), scale);
}

void compare_computing() {
  constexpr int64_t kRanks = 2, kMicrobatches = 12;
  const Model model = small_vl({.width = 128,
                                .inner = 384,
                                .layers = 4,
                                .heads = 4,
                                .vision_width = 128,
                                .vision_layers = 4,
                                .vision_heads = 4,
                                .vocabulary = 512,
                                .patch_size = 8});
  const std::vector<VlSample> samples = skewed_samples(kRanks * kMicrobatches, 64, 8, 28);
  const VlSetting setting{.dp = kRanks, .microbatches = kMicrobatches, .vision_dp = kRanks};
  const Plan plan = vl_plan(model, scenario_cluster("local_cpu"), workload_of(samples), Precision::kFp32, setting);
  const BatchCosts costs = costs_of(plan, samples);
  std::vector<VlCase> cases;
  std::vector<Predicted> predicted;
  for (const BatchAssignment& assignment : assignments(kRanks, kMicrobatches, costs)) {
    predicted.push_back(predict(assignment, costs));
    cases.push_back({.plan = plan, .samples = samples, .assignment = assignment});
  }
  print("Two ranks that compute a small model, llm and vision dp 2, 12 microbatches of 1", predicted,
        measure_steps(cases, 6), 1);
}

}  // namespace

int main() {
  compare_sleeping();
  compare_computing();
  return 0;
}
