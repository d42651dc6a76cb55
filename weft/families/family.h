#pragma once

#include <string>
#include <vector>

#include "weft/base/fields.h"
#include "weft/families/numbers.h"
#include "weft/program/module.h"

namespace weft {

/// How an image and a second of audio become tokens, for workloads that count in patches and seconds.
struct MediaGeometry {
  int64_t patches_per_embedding = 0;          ///< spatial merge squared
  int64_t patches_per_tile = 0;               ///< images are tiles of so many, each a sequence; 0: of any size
  int64_t mel_frames_per_second = 0;          ///< log-mel frames
  int64_t mel_frames_per_audio_position = 0;  ///< stride of the convolutions
  int64_t audio_positions_per_embedding = 0;  ///< pooling

  /// Rows of the vision encoder for a tile: its patches, and one in front of them.
  int64_t rows_per_tile() const { return patches_per_tile + 1; }
};

/// A model as its family declares it: what both halves, the one that plans and the one that runs, build on.
struct DeclaredModel {
  std::vector<Module> modules;  ///< in flow order, encoders first, the llm last
  MediaGeometry media;
  bool has_tied_embeddings = false;
  ModelNumbers numbers;
};

/// One kind of model that Weft knows.
struct Family {
  std::string model_type;  ///< as configurations call it
  void (*read)(Fields& config, DeclaredModel& model);
};

/// What stands for the model_type of a user's own program, whose text is the other field of the configuration.
inline constexpr const char* kProgramFamily = "weft_program";
inline constexpr const char* kProgramKey = "program";

/// All that are known without any library.
const std::vector<Family>& families();

}  // namespace weft
