#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>

#include "weft/base/error.h"
#include "weft/pipeline/step_batch.h"

namespace weft {

/// What a rank makes of a batch by itself, on the CPU.
struct LocalBatch {
  StepBatch batch;
  double num_tokens = 0, num_targets = 0, flops = 0;  ///< of the llm's samples
  std::optional<Error> error;
};

/// The batches of a process's ranks, each made on a thread of its own beside the step before. Ranks that need the same
/// samples, as tensor-parallel ones do, share what the first of them has made: nobody writes to it.
class SharedBatches {
 public:
  /// A rank's data-parallel rank in each module that is here: ranks with the same one need the same samples.
  using Share = std::map<ModuleKind, int64_t>;

  /// A batch of a run, which `make` is asked for unless another rank has been. The rank whose `make` it was must not
  /// end before the batch is made. Ranks ask for batches in order, none for a second one before all have the first.
  std::shared_future<LocalBatch> get(const Share& share, int64_t number, const std::function<LocalBatch()>& make);

 private:
  struct Numbered {
    int64_t number = -1;
    std::shared_future<LocalBatch> batch;
  };

  std::mutex mutex_;
  std::map<Share, Numbered> newest_;
};

}  // namespace weft
