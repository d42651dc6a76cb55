#pragma once

#include <functional>

#include "weft/spec/model.h"
#include "weft/spec/sample_load.h"

namespace weft {

/// What samples are predicted to take, in milliseconds of one rank. Handed to whoever deals them out, because running a
/// plan knows no costs.
struct SampleCosts {
  std::function<double(const SampleLoad&)> llm;                  ///< in its pipeline, with inline encoders
  std::function<double(ModuleKind, const SampleLoad&)> encoder;  ///< in one beside it

  bool is_given() const { return llm && encoder; }
};

}  // namespace weft
