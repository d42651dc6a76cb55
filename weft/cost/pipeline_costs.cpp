#include "weft/cost/pipeline_costs.h"

#include <cmath>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/fields.h"
#include "weft/base/file_kind.h"

namespace weft {
namespace {

constexpr double kMostMs = 1e9;

class CostReader {
 public:
  CostReader(Fields& fields, int32_t num_stages, int32_t num_microbatches)
      : fields_(fields), num_stages_(num_stages), num_microbatches_(num_microbatches) {}

  CostTable read(std::string_view key, bool is_required, bool may_be_matrix = true) {
    const Json* raw = fields_.raw(key);
    if (raw == nullptr) {
      if (is_required)
        fields_.complain(key, "is missing", "Give a number, an array per stage, or a matrix [stage][microbatch].");
      return CostTable(0.0);
    }
    if (!raw->is_array()) return CostTable(number(*raw, fields_.path_of(key)));
    if (raw->size() != static_cast<size_t>(num_stages_)) {
      fields_.complain(
          key, fmt::format("has {} entries, but the schedule has {}", raw->size(), counted(num_stages_, "stage")),
          "Give one a stage, or a single number for all of them.");
      return CostTable(0.0);
    }
    const bool is_matrix = (*raw)[0].is_array();
    if (is_matrix && !may_be_matrix) {
      fields_.complain(key, "is a matrix, but it belongs to whole stages", "Give a number or an array per stage.");
      return CostTable(0.0);
    }
    std::vector<double> values;
    for (size_t stage = 0; stage < raw->size(); ++stage) {
      const Json& entry = (*raw)[stage];
      const std::string path = fmt::format("{}[{}]", fields_.path_of(key), stage);
      if (entry.is_array() != is_matrix) {
        fields_.findings().add(path, "numbers and arrays are mixed, all entries must be of one kind");
        return CostTable(0.0);
      }
      if (!is_matrix) {
        values.push_back(number(entry, path));
        continue;
      }
      if (entry.size() != static_cast<size_t>(num_microbatches_)) {
        fields_.findings().add(path,
                               fmt::format("has {} entries, but the schedule has {}", entry.size(),
                                           counted(num_microbatches_, "microbatch")),
                               "Give one a microbatch, or a single number a stage.");
        return CostTable(0.0);
      }
      for (size_t m = 0; m < entry.size(); ++m) values.push_back(number(entry[m], fmt::format("{}[{}]", path, m)));
    }
    return CostTable(num_stages_, num_microbatches_, std::move(values));
  }

 private:
  double number(const Json& value, const std::string& path) {
    const bool fits = value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= 0 &&
                      value.get<double>() <= kMostMs;
    if (!fits) {
      fields_.findings().add(
          path, fmt::format("is {}, a time in milliseconds from 0 to {} is needed", describe_value(value), kMostMs));
      return 0;
    }
    return value.get<double>();
  }

  Fields& fields_;
  int32_t num_stages_;
  int32_t num_microbatches_;
};

}  // namespace

Result<PipelineCosts> read_pipeline_costs(const Document& document, int32_t num_stages, int32_t num_microbatches) {
  if (auto error = find_wrong_kind(document, FileKind::kPipelineCosts)) return *std::move(error);
  Findings findings(document.source);
  Fields fields(document, findings);
  CostReader reader(fields, num_stages, num_microbatches);
  PipelineCosts costs{.forward_ms = reader.read("forward_ms", true),
                      .backward_input_ms = reader.read("backward_input_ms", true),
                      .backward_weight_ms = reader.read("backward_weight_ms", true),
                      .p2p_ms = reader.read("p2p_ms", false),
                      .p2p_busy_ms = reader.read("p2p_busy_ms", false),
                      .reduce_grad_ms = reader.read("reduce_grad_ms", false, /*may_be_matrix=*/false),
                      .update_ms = reader.read("update_ms", false, /*may_be_matrix=*/false),
                      .overlaps_reduce = fields.flag_or("overlaps_reduce", true)};
  fields.reject_unknown();
  if (findings.first()) return *findings.first();
  return costs;
}

}  // namespace weft
