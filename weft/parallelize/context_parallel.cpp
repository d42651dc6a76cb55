#include "weft/parallelize/context_parallel.h"

#include <map>

#include "weft/base/check.h"
#include "weft/meaning/rank_groups.h"
#include "weft/models/context_inputs.h"
#include "weft/models/context_share.h"
#include "weft/tensor/row_exchange.h"

namespace weft {

Result<ContextParallel> ContextParallel::create(World& world, const Plan& plan, const Mesh& mesh,
                                                std::optional<size_t> encoder) {
  ContextParallel context;
  context.modules_.resize(plan.modules.size());
  if ((encoder ? plan.modules[*encoder] : plan.llm()).cp == 1) return context;
  WEFT_TRY(context.all_, world.group(mesh, mesh.grid().axes_named({"cp"})));
  std::map<int64_t, ContextGroups> known;  // by the size of a Ulysses group
  for (size_t module = 0; module < plan.modules.size(); ++module) {
    if (encoder ? module != *encoder : !plan.modules[module].is_in_pipeline()) continue;
    const int64_t ulysses = plan.modules[module].cp_ulysses;
    if (!known.contains(ulysses)) {
      const ContextRanks ranks = context_ranks(mesh, world.rank(), ulysses);
      ContextGroups groups{.rank = ranks.all.rank, .num_ranks = ranks.all.size()};
      if (ranks.ulysses.size() > 1) {
        WEFT_TRY(groups.ulysses, world.group(ranks.ulysses.name, ranks.ulysses.ranks));
      }
      if (ranks.ring.size() > 1) {
        WEFT_TRY(groups.ring, world.group(ranks.ring.name, ranks.ring.ranks));
      }
      known.emplace(ulysses, std::move(groups));
    }
    context.modules_[module] = known.at(ulysses);
  }
  return context;
}

Inputs ContextParallel::share(const Inputs& whole, const ModelNumbers& numbers) const {
  if (!all_) return whole;
  ContextBatch batch = context_batch(whole, numbers, all_->size(), all_->rank());
  const auto rank = static_cast<size_t>(all_->rank());
  const auto media = [&](const RowLists& made, const RowLists& needed, const at::Tensor& places) {
    return MediaShare{.num_rows = places.defined() ? places.size(0) : 0,
                      .made = made[rank],
                      .needed = needed[rank],
                      .forward = plan_row_route(made, needed),
                      .backward = plan_row_route(needed, made)};
  };
  batch.own.context = std::make_shared<const ContextShare>(
      ContextShare{.tokens = std::move(batch.tokens),
                   .patches = std::move(batch.patches),
                   .audio_rows = std::move(batch.audio_rows),
                   .vision = media(batch.vision_made, batch.vision_needed, whole.vision_places),
                   .audio = media(batch.audio_made, batch.audio_needed, whole.audio_places)});
  return std::move(batch.own);
}

std::shared_ptr<const ContextRows> ContextParallel::rows(size_t module, ModuleKind kind, const Inputs& share) const {
  if (!all_) return nullptr;
  WEFT_CHECK(share.context, "a microbatch that was not shared out to {} ranks", all_->size());
  const ContextShare& context = *share.context;
  const RowDeal& deal = kind == ModuleKind::kVision  ? context.patches
                        : kind == ModuleKind::kAudio ? context.audio_rows
                                                     : context.tokens;
  return std::make_shared<const ContextRows>(ContextRows{.groups = &modules_[module], .deal = deal});
}

at::Tensor ContextParallel::media_rows(ModuleKind kind, const at::Tensor& made, const Inputs& share) const {
  if (!all_) return made;
  const MediaShare& media = kind == ModuleKind::kVision ? share.context->vision : share.context->audio;
  return exchange_rows(made, *all_, media.forward, media.backward);
}

}  // namespace weft
