#include "weft/spec/model.h"

namespace weft {

std::string_view name_of(ModuleKind kind) {
  switch (kind) {
    case ModuleKind::kVision:
      return "vision";
    case ModuleKind::kAudio:
      return "audio";
    case ModuleKind::kLlm:
      return "llm";
  }
  return "";
}

const Module* Model::find(ModuleKind kind) const {
  for (const Module& module : modules) {
    if (module.kind == kind) return &module;
  }
  return nullptr;
}

int64_t num_parameters(const Block& block) {
  int64_t total = 0;
  for (const Op& op : block.ops) total += num_parameters(op);
  return total;
}

int64_t num_parameters(const Module& module) {
  int64_t total = num_parameters(module.entry) + num_parameters(module.exit);
  for (const size_t kind : module.layers) total += num_parameters(module.layer_kinds[kind]);
  return total;
}

int64_t num_parameters(const Model& model) {
  int64_t total = 0;
  for (const Module& module : model.modules) total += num_parameters(module);
  return total;
}

}  // namespace weft
