#pragma once

#include <string>

#include "weft/spec/model.h"

namespace weft {

/// The named workload that suits the model's modules, when the user names none.
inline std::string default_workload(const Model& model) {
  if (model.find(ModuleKind::kAudio) != nullptr) return "omni_short";
  return model.find(ModuleKind::kVision) != nullptr ? "vl_sft" : "text_4k";
}

}  // namespace weft
