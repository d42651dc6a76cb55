#pragma once

#include <cstddef>
#include <span>

#include "weft/comm/data_type.h"

namespace weft {

enum class Reduction : uint8_t { kSum, kMax, kAvg };

std::string_view name_of(Reduction reduction);

/// Whether a reduction has a meaning for a type: the average of integers has none.
bool can_reduce(Reduction reduction, DataType type);

/// Reduces `count` elements of every input, in the order of the inputs, and writes the result to every output. The
/// order is the same for every element, so the result depends on nothing but the inputs. 16-bit floats are summed in
/// fp32 and rounded once; integers wrap; the sum and the maximum of bools is whether any is true; a NaN is kept.
/// An output may be one of the inputs. There must be inputs.
void reduce(Reduction reduction, DataType type, std::span<const std::byte* const> inputs,
            std::span<std::byte* const> outputs, int64_t count);

}  // namespace weft
