#include "weft/validate/calibrate.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "weft/validate/least_squares.h"

namespace weft {
namespace {

const EfficiencyField& field_of(const FittedParameter& parameter) {
  for (const EfficiencyField& field : efficiency_fields()) {
    if (field.value == parameter.value) return field;
  }
  WEFT_CHECK(false, "a fitted parameter that is no field");
}

Efficiency efficiency_at(const std::vector<double>& logs) {
  Efficiency efficiency = calibration_start();
  for (size_t i = 0; i < logs.size(); ++i) efficiency.*fitted_parameters()[i].value = std::exp(logs[i]);
  return efficiency;
}

}  // namespace

Efficiency calibration_start() {
  Efficiency start;
  start.passes_per_operator = 1;
  start.kernel_us = 8;
  start.host_us_per_kernel = 30;
  return start;
}

std::span<const FittedParameter> fitted_parameters() {
  static constexpr std::array<FittedParameter, 12> parameters = {{
      {&Efficiency::matrix, 1.15},
      {&Efficiency::matrix_half_size, 1.8},
      {&Efficiency::attention_products, 1.35},
      {&Efficiency::memory, 1.2},
      {&Efficiency::kernel_us, 1.8},
      {&Efficiency::host_us_per_kernel, 1.8},
      {&Efficiency::within_node, 1.3},
      {&Efficiency::between_nodes, 1.5},
      {&Efficiency::update, 1.5},
      {&Efficiency::action_us, 2.7},
      {&Efficiency::overlap, 1.3},
      {&Efficiency::slowdown_per_doubling, 2.2},
  }};
  return parameters;
}

Efficiency calibrate(const std::vector<WeightedRun>& runs) {
  const std::span<const FittedParameter> parameters = fitted_parameters();
  LeastSquares problem;
  const Efficiency defaults = calibration_start();
  for (const FittedParameter& parameter : parameters) {
    const EfficiencyField& field = field_of(parameter);
    problem.start.push_back(std::log(defaults.*parameter.value));
    problem.low.push_back(std::log(std::max(field.range.min, 1e-6)));
    problem.high.push_back(std::log(field.range.max));
    problem.deviation.push_back(std::log(parameter.factor));
  }
  problem.num_residuals = runs.size();
  problem.residuals = [&](const std::vector<double>& logs, std::vector<double>& out) {
    const Efficiency efficiency = efficiency_at(logs);
    for (size_t i = 0; i < runs.size(); ++i) {
      const double ratio = predict_ms(*runs[i].run, efficiency) / runs[i].run->run.measured_ms;
      out[i] = runs[i].weight * std::log(ratio) / kRunScatter;
    }
  };
  return efficiency_at(solve(problem));
}

std::vector<WeightedRun> weighted(const std::vector<const std::vector<PreparedRun>*>& tables) {
  size_t longest = 0;
  for (const auto* table : tables) longest = std::max(longest, table->size());
  std::vector<WeightedRun> runs;
  for (const auto* table : tables) {
    const double weight =
        std::sqrt(static_cast<double>(longest) / static_cast<double>(std::max<size_t>(1, table->size())));
    for (const PreparedRun& run : *table) runs.push_back({&run, weight});
  }
  return runs;
}

}  // namespace weft
