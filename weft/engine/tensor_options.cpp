#include "weft/engine/tensor_options.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/models/config_type.h"
#include "weft/tensor/cuda_library.h"

namespace weft {
namespace {

struct TypeName {
  const char* name;
  const char* in_configurations;
  at::ScalarType type;
};

constexpr std::array<TypeName, 3> kTypes = {
    {{"fp32", "float32", at::kFloat}, {"fp64", "float64", at::kDouble}, {"bf16", "bfloat16", at::kBFloat16}}};

}  // namespace

Result<at::ScalarType> compute_type(const std::string& name, const Model& model) {
  if (name.empty()) {
    const std::string saved = type_in_config(model.config);
    const auto* const found = std::find_if(kTypes.begin(), kTypes.end(),
                                           [&](const TypeName& type) { return saved == type.in_configurations; });
    return found == kTypes.end() ? at::kFloat : found->type;
  }
  std::vector<std::string> known;
  for (const TypeName& type : kTypes) {
    if (name == type.name) return type.type;
    known.emplace_back(type.name);
  }
  return Error{.source = "--dtype",
               .problem = fmt::format("is {}, {} is needed", in_quotes(name), joined_or(known)),
               .advice = "Leave it out for the type that the model's configuration names." + did_you_mean(name, known)};
}

std::string name_of_type(at::ScalarType type) {
  const auto* const found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& known) { return known.type == type; });
  return found == kTypes.end() ? c10::toString(type) : found->name;
}

Result<at::Device> open_device(const std::string& name) {
  if (name == "cpu") return at::Device(at::kCPU);
  static const std::vector<std::string> known = {"cpu", "cuda"};
  if (name == "cuda") {
    WEFT_TRY(const bool has_gpu, load_cuda_library());
    if (has_gpu) return at::Device(at::kCUDA, 0);
    return Error{.kind = ErrorKind::kJob,
                 .source = "--device",
                 .problem = "is cuda, but this machine has no GPU, or its LibTorch no CUDA half",
                 .advice = "Use --device cpu."};
  }
  return Error{.source = "--device",
               .problem = fmt::format("is {}, {} is needed", in_quotes(name), joined_or(known)),
               .advice = "Leave it out for the CPU." + did_you_mean(name, known)};
}

}  // namespace weft
