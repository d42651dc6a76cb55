#include "weft/plan/plan.h"

#include <array>

#include <fmt/format.h>

#include "weft/base/check.h"

namespace weft {

std::span<const std::string> balance_names() {
  static const std::array<std::string, 4> names = {"none", "encoder", "llm", "both"};
  return names;
}

const std::string& name_of(Balance balance) {
  return balance_names()[static_cast<size_t>(balance)];
}

const ModulePlan* Plan::find(ModuleKind kind) const {
  for (const ModulePlan& module : modules) {
    if (module.kind == kind) return &module;
  }
  return nullptr;
}

const ModulePlan& Plan::llm() const {
  const ModulePlan* module = find(ModuleKind::kLlm);
  WEFT_CHECK(module != nullptr, "a plan that was read has an llm");
  return *module;
}

std::string hash_of(const Json& document) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : document.dump()) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return fmt::format("{:016x}", hash);
}

}  // namespace weft
