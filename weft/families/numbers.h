#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/families/media/rope_index.h"
#include "weft/program/program_numbers.h"

namespace weft {

/// How rotary frequencies are stretched for longer contexts.
enum class RopeScaling : uint8_t { kNone, kLinear, kByWavelength, kYarn };

struct RopeNumbers {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  double low_frequency_factor = 1;   ///< kByWavelength
  double high_frequency_factor = 4;  ///< kByWavelength
  double original_positions = 0;     ///< kByWavelength and kYarn
  double beta_fast = 32;             ///< kYarn
  double beta_slow = 1;              ///< kYarn
  bool truncates = true;             ///< kYarn
  double amplitude = 1;              ///< of cosines and sines
  std::vector<int64_t> sections;     ///< frequencies of each position axis; none: one axis
  bool interleaves_axes = false;     ///< axes take turns, the first also where another has had all of its own
};

/// What a language model's configuration says beyond its operators.
struct LlmNumbers {
  RopeNumbers rope;
  int64_t max_positions = 0;
  bool normalizes_expert_weights = false;
  double balance_coefficient = 0;
  std::vector<int64_t> end_ids;  ///< tokens that end a generated text
  /// Why the model can be planned but not run, with the field that says so.
  std::optional<Error> not_run = std::nullopt;
};

/// Images and videos as patches.
struct VisionNumbers {
  double rope_theta = 10000;
  int64_t channels = 3;
  int64_t patch_size = 14;
  int64_t temporal_patch_size = 2;
  int64_t merge_size = 2;
  int64_t window_size = 0;         ///< pixels; 0: no windows
  int64_t positions_per_side = 0;  ///< of the square of learned positions between which patches lie; 0: there is none
  /// Patches along each side of an image, which is a sequence of its own with a row more in front; 0: images are of any
  /// size, and have no such row.
  int64_t tile_side = 0;
  /// Of each colour, where a processor's file names none. These are CLIP's.
  std::array<double, 3> pixel_mean = {0.48145466, 0.4578275, 0.40821073};
  std::array<double, 3> pixel_deviation = {0.26862954, 0.26130258, 0.27577711};
  /// How the names of processors begin that prepare pictures for it; none: conversations cannot have pictures.
  std::vector<std::string> processors = {};

  int64_t patches_per_tile() const { return tile_side * tile_side; }
  int64_t patch_elements() const { return channels * temporal_patch_size * patch_size * patch_size; }
};

/// Audio clips as log-mel frames.
struct AudioNumbers {
  int64_t mel_bins = 128;
  int64_t half_window = 100;
  int64_t max_positions = 1500;
};

/// What a processor writes into a conversation for a picture, or for each frame of a video that is taken apart, in
/// place of what the template wrote: the caption, and between two tokens the one that is repeated. Nothing is written
/// where a text is empty.
struct MediaText {
  std::string placeholder;  ///< what the template writes; empty: the token that is repeated
  std::string caption;      ///< of a frame; "{seconds}" is when it was taken, "{number}" counts frames from 1
  std::string before;       ///< a token
  std::string after;        ///< a token
  std::string between;      ///< two frames
};

/// Matrices of experts that lie in one weight of the files, one behind the other. Files have either dim of a matrix
/// first.
struct StackedWeights {
  std::string in_files;  ///< how the name ends there
  std::string in_model;  ///< how names of operators end; "{}" is the number of an expert
};

/// How weight files differ from the names that operators have.
struct WeightFiles {
  /// Beginnings of names that some files have, and what stands for them.
  std::vector<std::pair<std::string, std::string>> renamed;
  /// Weights that files carry and the model has no use for: tables that are computed, parts that are not trained.
  std::vector<std::string> unused_beginnings;
  std::vector<std::string> unused_endings;
  /// Where the head is tied to the embedding: the names of both. Files may hold a copy of the one.
  std::string tied_head = {};
  std::string tied_table = {};
  std::vector<StackedWeights> stacked = {};

  /// The name that an operator has for a weight of a file.
  std::string name_of(std::string_view name_in_file) const;
  bool is_unused(std::string_view name) const;
  /// The pattern of the names that operators have for what lies in a weight of a file; nothing where it is one weight.
  std::optional<std::string> stack_of(std::string_view name) const;
  /// The other way round: the weight of a file in which that of an operator lies, if it holds others, too.
  std::optional<std::string> stack_with(std::string_view name) const;
};

/// What a family says of a model besides its modules.
struct ModelNumbers {
  LlmNumbers llm;
  std::optional<VisionNumbers> vision;
  std::optional<AudioNumbers> audio;
  std::optional<ProgramNumbers> program;  ///< of a model that is a user's own program
  RopeRules media;                        ///< which tokens stand for media and how positions are counted
  MediaText image_text;
  MediaText video_text;
  WeightFiles files;
};

}  // namespace weft
