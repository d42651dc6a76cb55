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

/// By what plans and files call it.
inline std::optional<ModuleKind> module_kind_named(std::string_view name) {
  const auto found =
      std::find_if(kModuleKinds.begin(), kModuleKinds.end(), [&](ModuleKind kind) { return name_of(kind) == name; });
  return found == kModuleKinds.end() ? std::nullopt : std::optional(*found);
}

}  // namespace weft
