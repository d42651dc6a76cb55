#pragma once

#include <map>
#include <optional>
#include <vector>

#include "weft/meaning/row_numbers.h"
#include "weft/spec/model.h"

namespace weft {

/// What an encoder works on at once: packed rows, patches or positions.
struct EncoderLoad {
  std::vector<int64_t> segments;  ///< rows that attend to each other: of a frame, or of a chunk of sound
  std::vector<int64_t> windows;   ///< the same of layers that see windows of frames, if there are any
  std::vector<int64_t> order;     ///< output i is the encoder's i-th merged row, or else the order[i]-th
  std::vector<int64_t> pairs;     ///< the first row of each two that are pooled, of sound, or of the patches that are
                                  ///< merged, where not all rows are patches
  int64_t frames = 0;             ///< of sound: of its spectrogram
};

/// A microbatch of one data-parallel rank of the llm.
struct MicrobatchLoad {
  std::vector<int64_t> samples;                       ///< tokens of each
  std::vector<int64_t> targets;                       ///< the tokens that have one
  std::map<ModuleKind, std::vector<int64_t>> places;  ///< tokens that an encoder's rows replace
  std::map<ModuleKind, EncoderLoad> media;            ///< of inline encoders, those with data
};

/// What an encoder beside the pipeline does in a step.
struct BesideLoad {
  std::vector<std::vector<std::optional<EncoderLoad>>> macro_batches;  ///< [data-parallel rank][macro batch]
  RowNumbers numbers;                                                  ///< of the rows that come of it
};

/// One step's lengths and its routers' choices.
struct StepLoad {
  std::vector<std::vector<MicrobatchLoad>> llm;  ///< [data-parallel rank][microbatch]
  BatchAssignment::Shares samples;               ///< the same: which of the batch
  std::map<ModuleKind, BesideLoad> beside;
  /// [router of the model][place in RankGroups::routed][microbatch][expert]: rows that chose it. Only read where ranks
  /// share experts.
  std::vector<std::vector<std::vector<std::vector<int64_t>>>> routed;
  bool balances_experts = false;  ///< routers have a loss for even loads
};

}  // namespace weft
