#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "weft/base/document.h"
#include "weft/spec/model.h"

namespace weft {

/// What a rule may say, wherever it comes from.
inline constexpr int64_t kMostAdapterRank = 65'536;
inline constexpr double kMostAdapterAlpha = 1e9;

/// Low-rank adapters (LoRA) of the linear layers whose names fit: what is trained in place of their weights.
struct AdapterRule {
  /// Patterns of a layer's whole name ('*' is any letters, '?' one); a name without either is also the end of one.
  std::vector<std::string> targets;
  int64_t rank = 8;
  double alpha = 8;  ///< the sum of both products counts alpha / rank
  double dropout = 0;

  bool operator==(const AdapterRule&) const = default;
};

/// One rule, or `adapters` with a list of them.
Result<std::vector<AdapterRule>> read_adapters(const Document& document);
Result<std::vector<AdapterRule>> read_adapters_file(const std::filesystem::path& path);
Json to_json(const std::vector<AdapterRule>& rules);

/// The model with the operators of adapters behind the products that they are of; of several rules that fit a layer,
/// the last counts. Its configuration has them, so that whoever reads that gets the same. The error names a target that
/// fits no linear layer.
Result<Model> with_adapters(const Model& model, const std::vector<AdapterRule>& rules, const std::string& source);

/// The key of a model's configuration that has them.
inline constexpr const char* kAdaptersKey = "adapters";
bool has_adapters(const Model& model);
/// Those of a model; none where it has none.
std::vector<AdapterRule> adapters_of(const Model& model);
/// Elements of adapters' weights.
int64_t num_adapter_parameters(const Model& model);
/// The model that they were added to.
Result<Model> without_adapters(const Model& model);

}  // namespace weft
