#pragma once

#include <memory>
#include <vector>

#include "weft/pipeline/encoder_bridge.h"
#include "weft/pipeline/encoder_runner.h"
#include "weft/pipeline/step_batch.h"
#include "weft/pipeline/trained_module.h"

namespace weft {

/// An encoder beside the pipeline, as far as a rank has to do with it: where it runs, or where its rows go.
struct TrainedEncoder {
  size_t module = 0;  ///< of the plan
  ModuleKind kind = ModuleKind::kVision;
  ScheduledEncoder rows;                  ///< as scheduled
  std::unique_ptr<TrainedModule> here;    ///< null where it does not run
  std::unique_ptr<EncoderBridge> bridge;  ///< null where its rows neither come from nor go to
  std::unique_ptr<EncoderRunner> runner;  ///< null where it does not run
  std::vector<Inputs> shares;             ///< of a step's macro batches, while it runs
};

/// All ranks of the plan do this alike. `number` is the encoder's in the schedule.
Result<TrainedEncoder> make_encoder(const ModuleMaking& making, size_t module, ScheduledEncoder rows, int32_t number);

/// Begins a step: runs nothing, but agrees with other ranks on where rows go. `microbatches` are this rank's shares of
/// the llm's, which `text` trains; null where it is not.
void begin_step(TrainedEncoder& encoder, const ModelNumbers& numbers, const StepBatch& batch,
                const std::vector<Inputs>& microbatches, const TrainedModule* text, bool has_gradients);

}  // namespace weft
