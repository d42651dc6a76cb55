#pragma once

#include <vector>

#include "weft/data/sample_source.h"
#include "weft/models/inputs.h"
#include "weft/pipeline/training_rank.h"

namespace weft {

/// What a rank takes in of the media of a batch: with context parallelism some rows of the pixels and mel frames that
/// samples share out, and nothing of an encoder whose first block is elsewhere. What the others take in is neither
/// prepared nor kept here.
class MediaSlices {
 public:
  /// `inputs` are those of `samples`; both are without content.
  MediaSlices(const TrainingRank& rank, const std::vector<Sample>& samples, const Inputs& inputs);

  /// By sample, what of its content is to be read.
  const std::vector<SampleContent>& contents() const { return contents_; }
  /// Puts that into the inputs.
  void fill(const std::vector<Sample>& samples, Inputs& inputs) const;

 private:
  /// One image, video or clip, with the range of its rows that is read here.
  struct Medium {
    size_t sample = 0;
    size_t number = 0;  ///< among the sample's of its kind
    bool is_video = false;
    int64_t first = 0;   ///< of its rows among those of all media
    Range read;          ///< of its own rows
    int64_t offset = 0;  ///< of the first that is read, among all that are read of its sample
  };
  void choose_patches(const ModelNumbers& numbers, const std::vector<Sample>& samples, const Inputs& inputs,
                      TrainingRank::EntryShare share);
  void choose_frames(const std::vector<Sample>& samples, const Inputs& inputs, TrainingRank::EntryShare share);

  std::vector<SampleContent> contents_;
  std::vector<Medium> pictures_;  ///< images of all samples, then videos
  std::vector<Medium> clips_;
  std::vector<int64_t> patches_;  ///< of each own row, which patch of all it has; -1: none
  Range rows_, frames_;           ///< of the batch's pixels and mel frames, those that are taken in here
};

}  // namespace weft
