#include "weft/engine/runtime_api.h"
#include "weft/engine/runtime_check.h"

extern "C" __attribute__((visibility("default"))) const weft::RuntimeApi* weft_runtime_api() {
  static const weft::RuntimeApi api{.version = WEFT_VERSION, .check = weft::check_runtime};
  return &api;
}
