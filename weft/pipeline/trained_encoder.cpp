#include "weft/pipeline/trained_encoder.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/meaning/group_names.h"
#include "weft/meaning/trainable.h"
#include "weft/models/context_share.h"

namespace weft {
namespace {

/// Null on ranks that no rows come from or go to.
Result<std::unique_ptr<EncoderBridge>> make_bridge(const ModuleMaking& making, size_t module) {
  const Plan& plan = making.plan;
  const ModulePlan& encoder = plan.modules[module];
  PlannedBridge planned = planned_bridge(plan, module);
  const std::vector<int64_t>& ranks = planned.ranks;
  if (!std::binary_search(ranks.begin(), ranks.end(), making.world.rank())) return std::unique_ptr<EncoderBridge>();
  WEFT_TRY(Group rows, making.world.group(group_names::rows_of(encoder.kind), ranks));
  EncoderBridge::Settings settings{.rows = std::move(rows),
                                   .gradients = {},
                                   .ends = std::move(planned.ends),
                                   .shares_made = planned.shares_made,
                                   .shares_taken = planned.shares_taken,
                                   .width = plan.model.find(encoder.kind)->output_width,
                                   .options = making.options};
  if (trains(plan, encoder.kind)) {
    WEFT_TRY(settings.gradients, making.world.group(group_names::gradients_of(encoder.kind), ranks));
  }
  return std::make_unique<EncoderBridge>(std::move(settings));
}

/// The rows that a microbatch takes in on this rank.
std::vector<int64_t> rows_needed(const TrainedEncoder& encoder, const TrainedModule& text, const RowNumbers& numbers,
                                 const std::vector<int64_t>& samples, const Inputs& share, size_t microbatch) {
  std::vector<int64_t> needed;
  for (const TrainedStage& stage : text.stages) {
    if (!stage.model->has_llm_entry()) continue;
    const std::vector<int64_t> packed = numbers.rows_of(samples);
    for (const int64_t place : stage.model->rows_taken(encoder.kind, share)) {
      const int64_t row = packed.at(static_cast<size_t>(place));
      const int64_t macro = numbers.macro_of(row);
      WEFT_CHECK(macro >= encoder.rows.first_macro[microbatch] && macro < encoder.rows.end_macro[microbatch],
                 "microbatch {} is scheduled without macro batch {} of {}, of which it has samples", microbatch, macro,
                 encoder.rows.name);
      needed.push_back(row);
    }
  }
  return needed;
}

/// The rows that this rank's encoder makes, by macro batch, where context parallelism shares them out.
std::vector<std::vector<int64_t>> rows_made(const TrainedEncoder& encoder) {
  std::vector<std::vector<int64_t>> made;
  for (const Inputs& share : encoder.shares) {
    std::vector<int64_t>& own = made.emplace_back();
    if (share.context) own = share.context->media(encoder.kind).made;
  }
  return made;
}

}  // namespace

Result<TrainedEncoder> make_encoder(const ModuleMaking& making, size_t module, ScheduledEncoder rows, int32_t number) {
  const Plan& plan = making.plan;
  TrainedEncoder encoder{.module = module, .kind = plan.modules[module].kind, .rows = std::move(rows)};
  if (rank_groups(plan, module, making.world.rank())) {
    WEFT_TRY(encoder.here, make_module(making, module));
  }
  WEFT_TRY(encoder.bridge, make_bridge(making, module));
  if (!encoder.here) return encoder;
  const TrainedStage& stage = encoder.here->stages.front();
  const Group& pipeline = encoder.here->groups.pipeline;
  encoder.runner = std::make_unique<EncoderRunner>(
      EncoderRunner::Settings{.module = module,
                              .model = stage.model.get(),
                              .weights = stage.weights.get(),
                              .rows = encoder.rows,
                              .pipeline = pipeline.size() > 1 ? std::optional(pipeline) : std::nullopt,
                              .bridge = stage.model->is_last() ? encoder.bridge.get() : nullptr,
                              .encoder = number,
                              .pace = making.settings.pace});
  return encoder;
}

void begin_step(TrainedEncoder& encoder, const ModelNumbers& numbers, const StepBatch& batch,
                const std::vector<Inputs>& microbatches, const TrainedModule* text, bool has_gradients) {
  if (encoder.runner) {
    const auto found = batch.encoders.find(encoder.kind);
    WEFT_CHECK(found != batch.encoders.end(), "a batch without macro batches of {}", encoder.rows.name);
    encoder.shares.clear();
    for (const Inputs& macro : found->second)
      encoder.shares.push_back(
          encoder.here->context.share(macro, numbers).to(encoder.here->stages.front().model->options()));
    encoder.runner->begin(encoder.shares);
  }
  if (!encoder.bridge) return;
  const auto shares = batch.assignment.encoders.find(encoder.kind);
  WEFT_CHECK(shares != batch.assignment.encoders.end(), "no samples are assigned to {}", encoder.rows.name);
  RowNumbers row_numbers(encoder.kind, shares->second, batch.media);
  std::vector<std::vector<int64_t>> needed;
  for (size_t m = 0; m < microbatches.size(); ++m) {
    const auto& samples = batch.assignment.llm.at(static_cast<size_t>(text->groups.place.dp)).at(m);
    needed.push_back(rows_needed(encoder, *text, row_numbers, samples, microbatches[m], m));
  }
  encoder.bridge->begin(std::move(row_numbers), batch.assignment.llm, needed, rows_made(encoder), has_gradients);
}

}  // namespace weft
