#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/result.h"

namespace weft {

/// Rows that the stride-2 convolution makes of `mel_frames` frames, at least 1.
int64_t num_audio_rows(int64_t mel_frames);

/// Tokens that a clip of `mel_frames` frames, at least 1, gives the language model: pairs of rows, averaged. A last odd
/// row is dropped, so clips of 1 or 2 frames give none.
int64_t num_audio_tokens(int64_t mel_frames);

/// The way of some clips, laid end to end, through the audio encoder. Clips are cut into chunks, chunks are padded to
/// the longest of them and convolved; the rows that are no padding are kept and attend within their chunk.
struct AudioIndex {
  std::vector<int64_t> chunk_frames;    ///< mel frames of each chunk
  std::vector<int64_t> chunk_rows;      ///< rows of each chunk after the convolution: the attention's segments
  std::vector<int64_t> kept_rows;       ///< of chunks x padded_rows, which rows are no padding, as flat indices
  std::vector<int64_t> clip_tokens;     ///< tokens of each clip after pooling
  std::vector<int64_t> pool_first_row;  ///< per token, the first of its two rows among those kept
  int64_t padded_frames = 0;            ///< length of the longest chunk before and
  int64_t padded_rows = 0;              ///< after the convolution
};

/// For clips of so many mel frames each, cut every 2 * `half_window` frames.
Result<AudioIndex> audio_index(std::span<const int64_t> mel_frames, int64_t half_window);

}  // namespace weft
