#pragma once

#include <cstdint>
#include <vector>

#include "weft/families/media/rope_index.h"

namespace weft {

/// The tokens of an image or video: frames at given distances from the first, each `rows` by `columns`.
struct VisionRun {
  std::vector<int64_t> frame_positions;
  int64_t rows = 0;
  int64_t columns = 0;

  int64_t tokens_per_frame() const { return rows * columns; }
  int64_t num_tokens() const { return static_cast<int64_t>(frame_positions.size()) * tokens_per_frame(); }
};

/// Writes a RopeIndex piece by piece, in the order of the tokens.
class PositionWriter {
 public:
  explicit PositionWriter(int64_t num_tokens);

  int64_t num_written() const { return written_; }

  /// One more than the largest position of the piece written last, 0 before the first. Earlier pieces may reach
  /// further.
  int64_t after_last_piece() const { return last_piece_max_ + 1; }

  /// `count` tokens, at least 1, at `first`, `first` + 1, … on all axes.
  void write_line(int64_t first, int64_t count);

  /// Tokens [begin, end), at least one, of a run whose first token is at `first` on all axes.
  void write_vision(const VisionRun& run, int64_t first, int64_t begin, int64_t end);

  /// What was written, once every token is.
  RopeIndex finish() &&;

 private:
  void write(int64_t temporal, int64_t height, int64_t width);

  RopeIndex index_;
  int64_t written_ = 0;
  int64_t last_piece_max_ = -1;
  int64_t max_ = -1;
};

}  // namespace weft
