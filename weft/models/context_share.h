#pragma once

#include <vector>

#include "weft/mesh/own_route.h"
#include "weft/mesh/row_deal.h"
#include "weft/program/module.h"

namespace weft {

/// The rows that an encoder gives for a batch, where its own part of context parallelism makes them and where tokens
/// need them. Rows are numbered in the order of the whole batch's media places.
struct MediaShare {
  int64_t num_rows = 0;         ///< that all tokens need
  std::vector<int64_t> made;    ///< here, in this order
  std::vector<int64_t> needed;  ///< here, in the order of this share's media places
  OwnRoute forward;             ///< from who makes rows to who needs them, in one group of ranks
  OwnRoute backward;
};

/// How the rows of a batch lie on the ranks of context parallelism.
struct ContextShare {
  RowDeal tokens;
  RowDeal patches;     ///< of the vision encoder, in its order
  RowDeal audio_rows;  ///< between the audio encoder's convolutions and its pooling
  MediaShare vision;
  MediaShare audio;

  const RowDeal& rows(ModuleKind module) const {
    return module == ModuleKind::kVision ? patches : module == ModuleKind::kAudio ? audio_rows : tokens;
  }
  const MediaShare& media(ModuleKind encoder) const { return encoder == ModuleKind::kVision ? vision : audio; }
};

}  // namespace weft
