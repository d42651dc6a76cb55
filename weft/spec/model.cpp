#include "weft/spec/model.h"

namespace weft {

const Module* Model::find(ModuleKind kind) const {
  for (const Module& module : modules) {
    if (module.kind == kind) return &module;
  }
  return nullptr;
}

int64_t num_parameters(const Model& model) {
  int64_t total = 0;
  for (const Module& module : model.modules) total += num_parameters(module);
  return total;
}

int64_t vocabulary_of(const Model& model) {
  const Module* llm = model.find(ModuleKind::kLlm);
  if (llm == nullptr) return 0;
  for (const Op& op : llm->entry.ops) {
    if (const auto* table = std::get_if<Lookup>(&op.shape)) return table->entries;
  }
  return 0;
}

}  // namespace weft
