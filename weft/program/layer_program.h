#pragma once

#include "weft/program/module.h"
#include "weft/program/program_blocks.h"

namespace weft {

/// A kind of a module's layers as a program that tensor-parallel ranks run: what the layer's operators declare, with
/// the choices of tensor and sequence parallelism as they usually are. Its rows are those of a microbatch, packed: a
/// run has any number of them, along the dim that ProgramRows calls that of samples. Weights lie in the order of its
/// dims (HeldWeights::shares). Of a layer with experts it has the operators before the half that they are in
/// (num_in_program). Fails, with what it is, for a layer that has more than a program can do: adapters, code of its
/// own.
Result<BlockProgram> layer_program(const Module& module, size_t kind, int64_t tp);

}  // namespace weft
