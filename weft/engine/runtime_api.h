#pragma once

#include <string>

#include "weft/base/result.h"
#include "weft/engine/convert_request.h"
#include "weft/engine/predict_request.h"
#include "weft/engine/profile_request.h"
#include "weft/engine/program_check_request.h"
#include "weft/engine/train_request.h"

namespace weft {

/// What the runtime half says of itself after trying itself out.
struct RuntimeReport {
  std::string libtorch_version;
  int num_threads = 0;
  double loss_before = 0;
  double loss_after = 0;
  double gradient_error = 0;  ///< largest difference from the closed form
};

/// What the program calls in the runtime library. It is built with the program, so plain C++ types may cross. Nothing
/// that LibTorch throws comes out of it.
struct RuntimeApi {
  const char* version;
  Result<RuntimeReport> (*check)();
  Result<PredictReport> (*predict)(const PredictRequest& request);
  // Reports are for the process of rank 0. An error without words is shown by another process.
  Result<std::optional<TrainReport>> (*train)(const TrainRequest& request);
  Result<std::optional<EvalReport>> (*evaluate)(const EvalRequest& request);
  Result<MachineReport> (*machine)(const MachineRequest& request);
  Result<std::optional<ProfileReport>> (*profile)(const ProfileRequest& request);
  Result<ConvertReport> (*convert)(const ConvertRequest& request);
  Result<ProgramCheckReport> (*check_program)(const ProgramCheckRequest& request);
  Result<FolderDescription> (*describe_folder)(const std::filesystem::path& folder, bool verify);
};

/// The library's one exported symbol: extern "C" const RuntimeApi* weft_runtime_api().
inline constexpr const char* kRuntimeEntryPoint = "weft_runtime_api";

}  // namespace weft
