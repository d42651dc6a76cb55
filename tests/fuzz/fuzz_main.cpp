// libFuzzer's entry to one target: WEFT_FUZZ_TARGET is its function.
#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return weft::WEFT_FUZZ_TARGET(data, size);
}
