#pragma once

namespace weft {

/// The folder of the LibTorch that Weft was built with, whose neighbours may hold NCCL. Empty: built without one.
extern const char* const kLibtorchHint;

}  // namespace weft
