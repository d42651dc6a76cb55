#pragma once

#include "weft/mesh/row_deal.h"
#include "weft/mesh/row_route.h"

namespace weft {

/// How an encoder's rows come to the ranks whose tokens they replace, and their gradients back.
struct MediaRoutes {
  RowRoute forward;
  RowRoute backward;
};

/// How the rows of a batch lie on the ranks of context parallelism.
struct ContextShare {
  RowDeal tokens;
  RowDeal patches;     ///< of the vision encoder, in its order
  RowDeal audio_rows;  ///< between the audio encoder's convolutions and its pooling
  MediaRoutes vision;
  MediaRoutes audio;
};

}  // namespace weft
