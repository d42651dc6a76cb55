#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/result.h"
#include "weft/families/numbers.h"
#include "weft/layers/dropout.h"
#include "weft/mesh/box.h"
#include "weft/mesh/segments.h"

namespace weft {

/// Audio clips as the encoder takes them: log-mel frames of all, packed, and which of them each convolution sees.
struct AudioInputs {
  at::Tensor frames;         ///< [frames, mel bins]
  at::Tensor first_taps;     ///< [3 · frames]: the frames around each; `frames` itself where there is none
  at::Tensor second_taps;    ///< [3 · rows]: the same for every second one
  at::Tensor row_positions;  ///< [rows]: of each row in its chunk
  PackedSegments chunks;     ///< who sees whom
  at::Tensor pooled_rows;    ///< [tokens]: the first of the two rows that become one
  int64_t num_rows = 0;      ///< that the encoder gives
  /// Of all frames those that `frames` has, where it has only those that a rank takes in, or none.
  std::optional<Range> held = std::nullopt;
  std::shared_ptr<const DropoutDraws> draws = nullptr;  ///< of the rows here; nothing: nothing is dropped

  /// Those that are held and those that are not.
  int64_t num_frames() const { return first_taps.size(0) / 3; }

  AudioInputs to(const at::TensorOptions& options) const;
};

/// Clips of these lengths before any frames are there: it holds none.
Result<AudioInputs> audio_layout(const AudioNumbers& numbers, const std::vector<int64_t>& clip_frames);

/// Checks log-mel features [mel bins, frames] against the clips' lengths. `field` is what errors call the features.
Result<AudioInputs> prepare_audio(const AudioNumbers& numbers, const at::Tensor& features,
                                  const std::vector<int64_t>& clip_frames, std::string_view field);

}  // namespace weft
