#pragma once

#include "weft/meaning/step_load.h"
#include "weft/mesh/context_deal.h"
#include "weft/plan/plan.h"

namespace weft {

// What the ranks of context parallelism have of a step's rows.

/// One rank's rows of an encoder.
struct EncoderShare {
  RowDeal deal;         ///< of the rows between blocks
  RowLists made;        ///< by rank: the rows that leave the encoder
  int64_t inside = 0;   ///< rows between blocks, here
  int64_t outside = 0;  ///< that leave the encoder, here
};
EncoderShare share_encoder(const Plan& plan, ModuleKind kind, const EncoderLoad& load, int64_t num_ranks, int64_t rank);

/// One rank's tokens of a microbatch.
struct LlmShare {
  RowDeal deal;
  int64_t tokens = 0;                                 ///< here
  int64_t targets = 0;                                ///< of them
  std::map<ModuleKind, RowLists> needed;              ///< by rank: places of media, by number
  std::map<ModuleKind, std::vector<int64_t>> places;  ///< here: among its own tokens
};
LlmShare share_llm(const MicrobatchLoad& load, int64_t num_ranks, int64_t rank);

}  // namespace weft
