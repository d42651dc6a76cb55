#pragma once

#include <cstdint>

#include "weft/mesh/own_route.h"
#include "weft/mesh/row_deal.h"
#include "weft/models/inputs.h"

namespace weft {

/// What one rank of context parallelism has of a batch, and who else has what.
struct ContextBatch {
  /// Ids, positions and targets of this rank's tokens; target rows and media places count its own rows. Pixels and mel
  /// frames are those that its part of an encoder takes; vision and audio are there if the whole batch has them, even
  /// without a row here. Who sees whom (samples, frames, windows, chunks) stays that of all rows. The vision encoder's
  /// rows leave it in the order of its patches: `vision_made` says which they are.
  Inputs own;
  RowDeal tokens;      ///< causal: cut from both ends
  RowDeal patches;     ///< of the vision encoder, in its order
  RowDeal audio_rows;  ///< between the audio encoder's convolutions and its pooling
  /// By rank, rows that an encoder gives, numbered as the whole batch's media places: those that come of the rank's own
  /// patches or frames, in their order, and those that its tokens need, in the order of its media places.
  RowLists vision_made;
  RowLists vision_needed;
  RowLists audio_made;
  RowLists audio_needed;
};

/// The rows of a batch's pixels, and its mel frames, that a rank of so many takes in: all that it need have of them.
Range pixel_rows_of(const VisionInputs& whole, int64_t merge_size, int64_t num_ranks, int64_t rank);
Range mel_frames_of(const AudioInputs& whole, int64_t num_ranks, int64_t rank);

/// The share of a rank of so many; a batch may have only media, and no tokens. The whole batch is best still on the
/// CPU: indices are read there. Its pixels and frames are shared, not copied; it may hold those of this rank alone.
ContextBatch context_batch(const Inputs& whole, const ModelNumbers& numbers, int64_t num_ranks, int64_t rank);

}  // namespace weft
