#include "weft/engine/guarded.h"
#include "weft/engine/predict.h"
#include "weft/engine/runtime_api.h"
#include "weft/engine/runtime_check.h"

namespace {

weft::Result<weft::RuntimeReport> check() {
  return weft::guarded([] { return weft::check_runtime(); });
}

weft::Result<weft::PredictReport> predict(const weft::PredictRequest& request) {
  return weft::guarded([&] { return weft::predict(request); });
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const weft::RuntimeApi* weft_runtime_api() {
  static const weft::RuntimeApi api{.version = WEFT_VERSION, .check = check, .predict = predict};
  return &api;
}
