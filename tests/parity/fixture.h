#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/json.h"
#include "weft/models/network.h"

namespace weft::parity {

/// One input of a fixture and what Hugging Face's implementation computes for it.
struct Case {
  std::string fixture;
  std::string name;
  std::filesystem::path folder;

  std::string text() const { return fixture + "_" + name; }
};

/// For GoogleTest's messages.
inline void PrintTo(const Case& which, std::ostream* out) {
  *out << which.text();
}

/// All cases of the committed fixtures, or of the folder that WEFT_FIXTURES names.
std::vector<Case> all_cases();
std::filesystem::path fixtures_folder();

/// A fixture's model with its weights in a type.
struct LoadedModel {
  Model model;
  std::vector<ParameterPtr> parameters;
  Network network;
};
LoadedModel load_model(const std::filesystem::path& folder, at::TensorOptions options);
/// The same with some fields of its configuration changed.
LoadedModel load_model(const std::filesystem::path& folder, at::TensorOptions options, const Json& changes);

/// A case's tensors: inputs, prepared for the model, and the expected ones by name.
struct LoadedCase {
  RawInputs raw;
  Inputs inputs;
  std::map<std::string, at::Tensor> expected;
  Json facts;
};
LoadedCase load_case(const Case& which, const LoadedModel& loaded, at::TensorOptions options,
                     const std::optional<StepDraws>& draws = std::nullopt);

/// The largest difference over the largest expected magnitude, of which `floor` is the least.
double relative_difference(const at::Tensor& found, const at::Tensor& expected, double floor = 0);

inline at::TensorOptions options_of(at::ScalarType type) {
  return at::TensorOptions().dtype(type);
}

}  // namespace weft::parity
