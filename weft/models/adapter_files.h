#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weft/layers/parameter.h"
#include "weft/spec/adapters.h"
#include "weft/weights/safetensors_file.h"

namespace weft {

/// Adapters as PEFT saves them: adapter_config.json and adapter_model.safetensors.
class AdapterFolder {
 public:
  /// For a model, whose layers may have their names in files or those that transformers gives them in memory. What of
  /// PEFT is not known here (DoRA, biases, other kinds of adapters) is refused by name.
  static Result<AdapterFolder> open(const std::filesystem::path& folder, const Model& model);

  /// What a model needs for them: layers by name, with the ranks that the files have.
  const std::vector<AdapterRule>& rules() const { return rules_; }
  /// An error where they are not those of the model: another model's, or of another rank.
  std::optional<Error> check(const Model& model) const;
  /// A weight by its name here, on the CPU.
  Result<at::Tensor> value(const std::string& name) const;
  /// Fills whole parameters of adapters.
  std::optional<Error> fill(const std::vector<ParameterPtr>& parameters) const;

 private:
  AdapterFolder(std::filesystem::path folder, SafetensorsFile file)
      : folder_(std::move(folder)), file_(std::move(file)) {}

  std::filesystem::path folder_;
  SafetensorsFile file_;
  std::vector<AdapterRule> rules_;
  std::map<std::string, std::string> names_in_file_;  ///< by the weight's name here
};

/// The name that transformers has in memory for what weight files name so, which PEFT goes by.
std::string name_in_memory(const WeightFiles& files, const std::string& name);

/// Writes a new folder as PEFT loads it. `value` gives a weight of adapters by its name.
std::optional<Error> write_adapter_folder(const std::filesystem::path& folder, const Model& model,
                                          const std::string& base_model,
                                          const std::function<Result<at::Tensor>(const std::string&)>& value);

/// By the name of a weight with an adapter: what the product of both counts.
std::map<std::string, double> adapter_scales(const Model& model);
/// The names of its adapter's weights.
std::string adapter_down_of(const std::string& weight);
std::string adapter_up_of(const std::string& weight);

}  // namespace weft
