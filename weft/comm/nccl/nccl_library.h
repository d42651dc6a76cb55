#pragma once

#include <cstddef>
#include <string>

#include "weft/base/result.h"
#include "weft/comm/data_type.h"
#include "weft/comm/reduce.h"

namespace weft {

// The functions of NCCL that are used, declared here, so that every machine can build this.

using NcclStatus = int;  ///< 0: all is well
constexpr NcclStatus kNcclInProgress = 7;
using NcclComm = void*;

struct NcclUniqueId {
  char internal[128];
};

/// libnccl.so.2, as far as it is used. Names are the library's.
struct NcclLibrary {
  NcclStatus (*ncclGetVersion)(int* version);
  const char* (*ncclGetErrorString)(NcclStatus status);
  const char* (*ncclGetLastError)(NcclComm comm);
  NcclStatus (*ncclGetUniqueId)(NcclUniqueId* id);
  NcclStatus (*ncclCommInitRank)(NcclComm* comm, int num_ranks, NcclUniqueId id, int rank);
  NcclStatus (*ncclCommDestroy)(NcclComm comm);
  NcclStatus (*ncclCommAbort)(NcclComm comm);
  NcclStatus (*ncclCommGetAsyncError)(NcclComm comm, NcclStatus* status);
  NcclStatus (*ncclGroupStart)();
  NcclStatus (*ncclGroupEnd)();
  NcclStatus (*ncclAllReduce)(const void* in, void* out, size_t count, int type, int operation, NcclComm comm,
                              void* stream);
  NcclStatus (*ncclReduce)(const void* in, void* out, size_t count, int type, int operation, int root, NcclComm comm,
                           void* stream);
  NcclStatus (*ncclAllGather)(const void* in, void* out, size_t count_of_one, int type, NcclComm comm, void* stream);
  NcclStatus (*ncclReduceScatter)(const void* in, void* out, size_t count_of_one, int type, int operation,
                                  NcclComm comm, void* stream);
  NcclStatus (*ncclBroadcast)(const void* in, void* out, size_t count, int type, int root, NcclComm comm, void* stream);
  NcclStatus (*ncclSend)(const void* in, size_t count, int type, int peer, NcclComm comm, void* stream);
  NcclStatus (*ncclRecv)(void* out, size_t count, int type, int peer, NcclComm comm, void* stream);

  /// Throws a std::runtime_error with NCCL's words, unless all is well.
  void check(NcclStatus status, const char* what) const;
  std::string text_of(NcclStatus status) const;
};

/// The library, loaded when this is first called: the one that the process has already, $WEFT_NCCL, the one of
/// LibTorch's packages, or the system's.
Result<const NcclLibrary*> nccl_library();

/// What NCCL calls a type and a reduction of it. Bools are bytes, and their sum is whether any is true.
int nccl_type(DataType type);
int nccl_reduction(Reduction reduction, DataType type);

}  // namespace weft
