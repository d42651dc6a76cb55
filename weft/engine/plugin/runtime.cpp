#include "weft/base/processor.h"
#include "weft/engine/convert.h"
#include "weft/engine/guarded.h"
#include "weft/engine/predict.h"
#include "weft/engine/profiler.h"
#include "weft/engine/program_check.h"
#include "weft/engine/runtime_api.h"
#include "weft/engine/runtime_check.h"
#include "weft/engine/trainer.h"

namespace {

weft::Result<weft::RuntimeReport> check() {
  return weft::guarded([] { return weft::check_runtime(); });
}

weft::Result<weft::PredictReport> predict(const weft::PredictRequest& request) {
  return weft::guarded([&] { return weft::predict(request); });
}

weft::Result<std::optional<weft::TrainReport>> train(const weft::TrainRequest& request) {
  return weft::guarded([&] { return weft::train(request); });
}

weft::Result<std::optional<weft::EvalReport>> evaluate(const weft::EvalRequest& request) {
  return weft::guarded([&] { return weft::evaluate(request); });
}

weft::Result<weft::MachineReport> machine(const weft::MachineRequest& request) {
  return weft::guarded([&] { return weft::look_at_machine(request); });
}

weft::Result<std::optional<weft::ProfileReport>> profile(const weft::ProfileRequest& request) {
  return weft::guarded([&] { return weft::measure_profile(request); });
}

weft::Result<weft::ConvertReport> convert(const weft::ConvertRequest& request) {
  return weft::guarded([&] { return weft::convert(request); });
}

weft::Result<weft::ProgramCheckReport> check_program(const weft::ProgramCheckRequest& request) {
  return weft::guarded([&] { return weft::check_program(request); });
}

weft::Result<weft::FolderDescription> describe_folder(const std::filesystem::path& folder, bool verify) {
  return weft::guarded([&] { return weft::describe_folder(folder, verify); });
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const weft::RuntimeApi* weft_runtime_api() {
  weft::avoid_undescribed_tiles();
  static const weft::RuntimeApi api{.version = WEFT_VERSION,
                                    .check = check,
                                    .predict = predict,
                                    .train = train,
                                    .evaluate = evaluate,
                                    .machine = machine,
                                    .profile = profile,
                                    .convert = convert,
                                    .check_program = check_program,
                                    .describe_folder = describe_folder};
  return &api;
}
