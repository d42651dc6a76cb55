#include "weft/families/media/position_writer.h"

#include <algorithm>
#include <utility>

#include "weft/base/check.h"

namespace weft {

PositionWriter::PositionWriter(int64_t num_tokens) {
  index_.num_tokens = num_tokens;
  index_.positions.resize(static_cast<size_t>(3 * num_tokens));
}

void PositionWriter::write_line(int64_t first, int64_t count) {
  last_piece_max_ = -1;
  for (int64_t i = 0; i < count; ++i) write(first + i, first + i, first + i);
}

void PositionWriter::write_vision(const VisionRun& run, int64_t first, int64_t begin, int64_t end) {
  last_piece_max_ = -1;
  for (int64_t token = begin; token < end; ++token) {
    const int64_t in_frame = token % run.tokens_per_frame();
    write(first + run.frame_positions[static_cast<size_t>(token / run.tokens_per_frame())],
          first + in_frame / run.columns, first + in_frame % run.columns);
  }
}

RopeIndex PositionWriter::finish() && {
  WEFT_CHECK(written_ == index_.num_tokens, "{} of {} tokens have positions", written_, index_.num_tokens);
  index_.delta = max_ + 1 - index_.num_tokens;
  return std::move(index_);
}

void PositionWriter::write(int64_t temporal, int64_t height, int64_t width) {
  WEFT_CHECK(written_ < index_.num_tokens, "more than {} tokens got positions", index_.num_tokens);
  int64_t* const at = index_.positions.data() + written_++;
  at[0] = temporal;
  at[index_.num_tokens] = height;
  at[2 * index_.num_tokens] = width;
  last_piece_max_ = std::max({last_piece_max_, temporal, height, width});
  max_ = std::max(max_, last_piece_max_);
}

}  // namespace weft
