#pragma once

#include "weft/measure/measure_block.h"

namespace weft {

/// The optimizer's step over layers of the llm: the norm of their gradients, the update, weights written out. Nothing
/// where it was stopped.
Result<std::optional<UpdateMeasurement>> measure_update(const Model& model, int64_t num_layers, int64_t busy_ranks,
                                                        const MeasureSettings& settings);

/// Bytes that a layer's weights, gradients and states take, for who chooses how many.
double state_bytes_of_layer(const Model& model, Precision precision);

}  // namespace weft
