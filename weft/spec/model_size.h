#pragma once

#include <optional>
#include <span>
#include <string>

#include "weft/base/error.h"
#include "weft/program/module.h"

namespace weft {

/// Of a whole model, all layers and adapters together: far above any real one, and what is counted of it (bytes of all
/// its states) still fits 64 bits.
inline constexpr double kMostParameters = 1e17;

/// Modules that have more parameters than that; `field` is what gives them their sizes.
std::optional<Error> find_too_large(std::span<const Module> modules, std::string source, std::string field);

}  // namespace weft
