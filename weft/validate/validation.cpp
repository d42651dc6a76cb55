#include "weft/validate/validation.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace weft {
namespace {

/// What tells a GPT from others. The length of its sequences does not.
std::array<int64_t, 4> sizes_of(const TrainingRun& run) {
  return {run.hidden_size, run.num_heads, run.num_layers, run.vocabulary};
}

}  // namespace

std::vector<PredictedRun> predict(const std::vector<PreparedRun>& runs, const Efficiency& efficiency) {
  std::vector<PredictedRun> predicted;
  for (const PreparedRun& run : runs)
    predicted.push_back({run.run.name, run.run.measured_ms, predict_ms(run, efficiency)});
  return predicted;
}

Accuracy accuracy_of(const std::vector<PredictedRun>& runs) {
  Accuracy accuracy;
  for (const PredictedRun& run : runs) {
    const double error = std::abs(run.error_percent());
    accuracy.mean_error_percent += error / static_cast<double>(runs.size());
    accuracy.max_error_percent = std::max(accuracy.max_error_percent, error);
  }
  return accuracy;
}

std::vector<PredictedRun> cross_validate(const std::vector<PreparedRun>& runs,
                                         const std::function<size_t(size_t)>& group_of, size_t num_groups,
                                         const std::function<void(size_t)>& progress) {
  std::vector<PredictedRun> predicted(runs.size());
  for (size_t group = 0; group < num_groups; ++group) {
    std::vector<WeightedRun> others;
    for (size_t i = 0; i < runs.size(); ++i) {
      if (group_of(i) != group) others.push_back({&runs[i], 1});
    }
    const Efficiency efficiency = calibrate(others);
    for (size_t i = 0; i < runs.size(); ++i) {
      if (group_of(i) == group)
        predicted[i] = {runs[i].run.name, runs[i].run.measured_ms, predict_ms(runs[i], efficiency)};
    }
    if (progress) progress(group + 1);
  }
  return predicted;
}

Folds folds_of(const std::vector<PreparedRun>& runs, size_t num_parts) {
  std::vector<std::array<int64_t, 4>> models;
  std::vector<size_t> model_of_run;
  for (const PreparedRun& run : runs) {
    const auto found = std::find(models.begin(), models.end(), sizes_of(run.run));
    model_of_run.push_back(static_cast<size_t>(found - models.begin()));
    if (found == models.end()) models.push_back(sizes_of(run.run));
  }
  Folds folds{.num_models = models.size(), .has_whole_models = models.size() >= num_parts};
  for (size_t run = 0; run < runs.size(); ++run)
    folds.part_of_run.push_back((folds.has_whole_models ? model_of_run[run] : run) % num_parts);
  return folds;
}

std::vector<std::string> suspicions(const std::vector<PredictedRun>& runs) {
  std::vector<double> ratios;
  for (const PredictedRun& run : runs) ratios.push_back(run.predicted_ms / run.measured_ms);
  std::sort(ratios.begin(), ratios.end());
  const double median = ratios[ratios.size() / 2];
  if (median > 100)
    return {
        fmt::format("iteration_ms is about {:.0f} times shorter than predicted, usual are 0.3 to 3 times: are these "
                    "seconds?",
                    median)};
  if (median < 0.01)
    return {
        fmt::format("iteration_ms is about {:.0f} times longer than predicted, usual are 0.3 to 3 times: are these "
                    "microseconds?",
                    1 / median)};
  if (median > 3 || median < 1.0 / 3) {
    return {
        fmt::format("predictions are {:.2f} times the measured times: do cluster, recompute and attention fit the "
                    "table?",
                    median)};
  }
  return {};
}

}  // namespace weft
