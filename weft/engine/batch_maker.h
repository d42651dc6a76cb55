#pragma once

#include "weft/data/sample_costs.h"
#include "weft/engine/shared_batches.h"
#include "weft/models/inputs.h"
#include "weft/pipeline/training_rank.h"

namespace weft {

/// Makes a rank's share of batches: deals samples out, reads those that its modules take in and packs them.
struct BatchMaker {
  const Plan& plan;
  const TrainingRank& rank;
  const SampleCosts& costs;
  WorkerThreads& workers;
  bool is_for_gpu = false;
  /// Whether other ranks take the batch, too: it then has all that any of them takes in, else only this rank's part.
  bool is_shared = true;
  /// Where the batches are trained with; nothing is dropped else. Which samples a microbatch has is filled in.
  std::optional<StepDraws> draws = std::nullopt;

  /// Of the samples from `first` on.
  LocalBatch make(const SampleSource& samples, int64_t first) const;

 private:
  class Reader;

  bool needs_all_lengths() const;
  BatchAssignment assign(const std::vector<SampleLengths>& lengths) const;
  using List = std::vector<int64_t>;  ///< samples of a microbatch or macro batch, by their numbers in the batch
  /// Of every segment a number of its own in the step: of a sample's first the sample's.
  std::vector<int64_t> numbers_of_segments(const List& list, const std::vector<Sample>& samples) const;
  struct MadeList {
    std::vector<Sample> samples;
    Inputs inputs;
  };
  /// One for each list; none where a sample is found to be broken.
  Result<std::vector<MadeList>> make_lists(Reader& reader, const std::vector<List>& lists, WantedMedia wanted,
                                           bool is_llm) const;
  /// Reads this rank's part of the samples' media into what was made without any.
  std::optional<Error> add_slices(Reader& reader, const std::vector<List>& lists, std::vector<MadeList>& made) const;
  std::optional<Error> make_microbatches(Reader& reader, LocalBatch& local) const;
  std::optional<Error> make_macro_batches(Reader& reader, StepBatch& made) const;
};

}  // namespace weft
