#pragma once

#include <span>
#include <string_view>

namespace weft {

extern const char kCommonSource[];  ///< what comes before every other one
extern const char kActivationSource[];
extern const char kColumnSource[];
extern const char kLossSource[];
extern const char kNormSource[];
extern const char kRotarySource[];
extern const char kUpdateSource[];

/// CUDA C++ that is compiled on the machine that runs it.
struct KernelSource {
  const char* name;  ///< "norm"
  const char* text;  ///< after kCommonSource
};

/// All there are.
std::span<const KernelSource> kernel_sources();

}  // namespace weft
