#pragma once

#include <optional>

#include "weft/program/program.h"

namespace weft {

/// Why a program does not run with other numbers of samples than it declares: an operator whose rule calls the dim of
/// samples and another dim the same, or lengths that follow from that number and contradict each other. Every tensor
/// that is no weight must begin with the dim of samples.
std::optional<Error> find_tied_to_samples(const Program& program, size_t sample_dim);

}  // namespace weft
