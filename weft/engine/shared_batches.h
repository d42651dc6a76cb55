#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "weft/base/result.h"
#include "weft/engine/run_samples.h"
#include "weft/pipeline/step_batch.h"

namespace weft {

/// What a rank makes of a batch by itself, on the CPU.
struct LocalBatch {
  StepBatch batch;
  double num_tokens = 0, num_targets = 0, flops = 0;  ///< of the llm's samples
  double num_records = 0;                             ///< that these samples are made of
  std::vector<SkippedSample> skipped;                 ///< by sample; where one is new there is no batch yet
  std::optional<Error> error;
};

/// The batches of a process's ranks, each made on a thread of its own beside the step before, by worker threads that
/// all share. Ranks that need the same samples, as tensor-parallel ones do, share what the first of them has made:
/// nobody writes to it. Memory is bounded: one batch is prepared ahead of the one that is computed with.
class SharedBatches {
 public:
  /// A rank's data-parallel rank in each module that is here: ranks with the same one need the same samples.
  using Share = std::map<ModuleKind, int64_t>;
  /// Of a run's batches; a batch in which all ranks have left out samples is made again.
  struct Number {
    int64_t step = -1;
    int64_t remade = 0;

    bool operator==(const Number&) const = default;
  };

  explicit SharedBatches(int64_t num_threads = 1) : workers_(num_threads) {}

  /// A batch of a run, which `make` is asked for unless another rank has been. The rank whose `make` it was must not
  /// end before the batch is made. Ranks ask for batches in order, none for a second one before all have the first.
  std::shared_future<LocalBatch> get(const Share& share, Number number, const std::function<LocalBatch()>& make);

  /// Samples of files, which are opened once for all ranks.
  Result<RunSamples> samples(const std::function<Result<RunSamples>()>& open);

  WorkerThreads& workers() { return workers_; }

 private:
  struct Numbered {
    Number number;
    std::shared_future<LocalBatch> batch;
  };

  WorkerThreads workers_;
  std::mutex mutex_;
  std::map<Share, Numbered> newest_;
  std::mutex opening_;
  std::optional<Result<RunSamples>> samples_;
};

}  // namespace weft
