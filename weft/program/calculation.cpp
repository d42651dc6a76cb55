#include "weft/program/calculation.h"

#include <array>
#include <utility>

namespace weft {
namespace {

constexpr std::array<std::pair<Activation, std::string_view>, 7> kNames = {{{Activation::kSilu, "silu"},
                                                                            {Activation::kGelu, "gelu"},
                                                                            {Activation::kGeluTanh, "gelu_tanh"},
                                                                            {Activation::kQuickGelu, "quick_gelu"},
                                                                            {Activation::kRelu, "relu"},
                                                                            {Activation::kTanh, "tanh"},
                                                                            {Activation::kSigmoid, "sigmoid"}}};

}  // namespace

std::string_view name_of(Activation function) {
  for (const auto& [activation, name] : kNames) {
    if (activation == function) return name;
  }
  return "";
}

std::optional<Activation> find_activation(std::string_view name) {
  for (const auto& [activation, known] : kNames) {
    if (known == name) return activation;
  }
  return std::nullopt;
}

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const auto& [activation, name] : kNames) names.emplace_back(name);
  return names;
}

}  // namespace weft
