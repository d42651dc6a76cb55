#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "weft/program/module.h"

namespace weft {

/// In the order in which data flows. A kind of module that is added stands here once.
inline constexpr std::array kModuleKinds = {ModuleKind::kVision, ModuleKind::kAudio, ModuleKind::kLlm};
/// All before the llm.
inline constexpr std::array kEncoderKinds = {ModuleKind::kVision, ModuleKind::kAudio};

/// What plans and files call them.
inline std::vector<std::string> module_names() {
  std::vector<std::string> names;
  for (const ModuleKind kind : kModuleKinds) names.emplace_back(name_of(kind));
  return names;
}

/// By what plans and files call it.
inline std::optional<ModuleKind> module_kind_named(std::string_view name) {
  const auto found =
      std::find_if(kModuleKinds.begin(), kModuleKinds.end(), [&](ModuleKind kind) { return name_of(kind) == name; });
  return found == kModuleKinds.end() ? std::nullopt : std::optional(*found);
}

}  // namespace weft
