#include "weft/comm/nccl/libtorch_hint.h"

// In a file of its own, which alone is compiled anew where the folder is another.
namespace weft {

const char* const kLibtorchHint = WEFT_LIBTORCH_HINT;

}  // namespace weft
