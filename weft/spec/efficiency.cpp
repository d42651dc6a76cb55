#include "weft/spec/efficiency.h"

#include <array>

namespace weft {

DefaultError default_error() {
  return {.runs = 142, .mean_percent = 15.7, .max_percent = 154.2};
}

std::span<const EfficiencyField> efficiency_fields() {
  constexpr NumberRange kShare{0.01, 1};
  constexpr NumberRange kMicroseconds{0, 100'000};
  static constexpr std::array<EfficiencyField, 14> fields = {{
      {"matrix", &Efficiency::matrix, kShare},
      {"matrix_half_size", &Efficiency::matrix_half_size, {0, 100'000}},
      {"attention_products", &Efficiency::attention_products, kShare},
      {"fused_attention", &Efficiency::fused_attention, kShare},
      {"memory", &Efficiency::memory, kShare},
      {"passes_per_operator", &Efficiency::passes_per_operator, {1, 100}},
      {"kernel_us", &Efficiency::kernel_us, kMicroseconds},
      {"host_us_per_kernel", &Efficiency::host_us_per_kernel, kMicroseconds},
      {"within_node", &Efficiency::within_node, kShare},
      {"between_nodes", &Efficiency::between_nodes, kShare},
      {"update", &Efficiency::update, kShare},
      {"action_us", &Efficiency::action_us, kMicroseconds},
      {"overlap", &Efficiency::overlap, {0, 1}},
      {"slowdown_per_doubling", &Efficiency::slowdown_per_doubling, {0, 1}},
  }};
  return fields;
}

Efficiency read_efficiency(Fields fields) {
  Efficiency efficiency;
  // Files from before there were passes mean operators of one kernel by kernel_us.
  if (fields.has("kernel_us")) efficiency.passes_per_operator = 1;
  for (const EfficiencyField& field : efficiency_fields()) {
    double& value = efficiency.*field.value;
    value = fields.number_or(field.name, value, field.range);
  }
  fields.reject_unknown();
  return efficiency;
}

Json to_json(const Efficiency& efficiency) {
  Json json = Json::object();
  for (const EfficiencyField& field : efficiency_fields()) json[std::string(field.name)] = efficiency.*field.value;
  return json;
}

}  // namespace weft
