#include "weft/meaning/row_shares.h"

namespace weft {

EncoderShare share_encoder(const Plan& plan, ModuleKind kind, const EncoderLoad& load, int64_t num_ranks,
                           int64_t rank) {
  const PackedSegments segments(load.windows.empty() ? load.segments : load.windows);
  EncoderShare share;
  const MediaGeometry& media = plan.model.media;
  const int64_t unit = kind == ModuleKind::kVision ? media.patches_per_embedding : media.audio_positions_per_embedding;
  if (load.pairs.empty() && kind == ModuleKind::kVision) {
    share.deal = deal_patches(segments.num_rows(), unit, segments, num_ranks);
    share.made = merged_rows(share.deal, unit, outputs_of(load.order));
  } else {
    share.deal = deal_units(segments.num_rows(), unit, load.pairs, segments, num_ranks);
    share.made = entries_by_rank(RowOwners(share.deal), load.pairs);
  }
  share.inside = share.deal.num_rows(rank);
  share.outside = std::ssize(share.made[static_cast<size_t>(rank)]);
  return share;
}

LlmShare share_llm(const MicrobatchLoad& load, int64_t num_ranks, int64_t rank) {
  LlmShare share;
  share.deal = RowDeal::zigzag(load.samples, num_ranks);
  const RowOwners owners(share.deal);
  share.tokens = share.deal.num_rows(rank);
  share.targets = std::ssize(places_on_rank(owners, load.targets, rank));
  for (const auto& [kind, places] : load.places) {
    share.needed[kind] = entries_by_rank(owners, places);
    share.places[kind] = places_on_rank(owners, places, rank);
  }
  return share;
}

}  // namespace weft
