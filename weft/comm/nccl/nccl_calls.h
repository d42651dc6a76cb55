#pragma once

#include "weft/comm/nccl/nccl_library.h"
#include "weft/comm/operation.h"

namespace weft {

/// Puts a collective on GPU memory on a stream, as calls of NCCL: one where it has the operation, else messages or
/// reductions that go together. A barrier has the output of an element that is summed. Throws what NCCL complains of.
void call_collective(const NcclLibrary& nccl, const Operation& operation, int64_t rank, int64_t size, NcclComm comm,
                     void* stream);

/// The same for a message, on a communicator of its sender (0) and its receiver (1).
void call_message(const NcclLibrary& nccl, const Operation& operation, NcclComm comm, void* stream);

}  // namespace weft
