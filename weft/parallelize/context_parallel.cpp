#include "weft/parallelize/context_parallel.h"

#include <map>

#include "weft/base/check.h"
#include "weft/meaning/group_names.h"
#include "weft/meaning/rank_groups.h"
#include "weft/meaning/stage_parts.h"
#include "weft/models/context_inputs.h"
#include "weft/models/context_share.h"
#include "weft/tensor/row_exchange.h"

namespace weft {

Result<ContextParallel> ContextParallel::create(World& world, const Plan& plan, size_t module) {
  ContextParallel context;
  context.modules_.resize(plan.modules.size());
  if (plan.modules[module].cp == 1) return context;
  WEFT_TRY(context.all_, world.group(group_names::kContext, rank_groups(plan, module, world.rank())->context));
  std::map<int64_t, ContextGroups> known;  // by the size of a Ulysses group
  for (const size_t own : modules_of_pipeline(plan, module)) {
    const int64_t size = plan.modules[own].cp_ulysses;
    if (!known.contains(size)) {
      const RankGroups ranks = *rank_groups(plan, own, world.rank());
      ContextGroups groups{.rank = context.all_->rank(), .num_ranks = context.all_->size()};
      if (ranks.ulysses.size() > 1) {
        WEFT_TRY(groups.ulysses, world.group(group_names::kUlysses, ranks.ulysses));
      }
      if (ranks.ring.size() > 1) {
        WEFT_TRY(groups.ring, world.group(group_names::kRing, ranks.ring));
      }
      known.emplace(size, std::move(groups));
    }
    context.modules_[own] = known.at(size);
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
                      .forward = plan_own_route(made, needed, all_->rank()),
                      .backward = plan_own_route(needed, made, all_->rank())};
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
  return std::make_shared<const ContextRows>(
      ContextRows{.groups = &modules_[module], .deal = share.context->rows(kind)});
}

at::Tensor ContextParallel::media_rows(ModuleKind kind, const at::Tensor& made, const Inputs& share) const {
  if (!all_) return made;
  const MediaShare& media = share.context->media(kind);
  return exchange_rows(made, *all_, media.forward, media.backward);
}

}  // namespace weft
