#include "weft/engine/step_recorder.h"

#include <algorithm>

#include "weft/checkpoint/agreement.h"
#include "weft/engine/step_timeline.h"
#include "weft/meaning/expert_ranks.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/meaning/rank_groups.h"
#include "weft/pipeline/batch_load.h"

namespace weft {
namespace {

/// Choices of routers beyond so many numbers are not written down, and neither is then the rest of the load.
constexpr int64_t kMostChoices = 1'000'000;

}  // namespace

StepRecorder::StepRecorder(World& world, const Plan& plan) : world_(&world), plan_(&plan), routers_(routers_of(plan)) {
  if (const auto schedule = playable_schedule(plan)) {
    size_t longest = 0;
    for (const auto& row : schedule->rows) longest = std::max(longest, row.size());
    events_per_step_ = static_cast<int64_t>(longest) * world.size();
  }
  const ModulePlan& llm = plan.llm();
  records_load_ =
      llm.ep == 1 ||
      routers_.count() * num_expert_ranks(llm) * plan.schedule.microbatches * routers_.num_experts <= kMostChoices;
}

bool StepRecorder::wants(int64_t steps_done, int64_t num_steps) const {
  return is_recorded(steps_done, num_steps, events_per_step_);
}

LoadPart StepRecorder::part_of(const Own& own) const {
  LoadPart part;
  const auto& beside = own.batch.assignment.encoders;
  for (size_t module = 0; module < plan_->modules.size(); ++module) {
    const ModuleKind kind = plan_->modules[module].kind;
    const auto groups = rank_groups(*plan_, module, world_->rank());
    if (!groups) continue;
    const RankPlace& place = groups->place;
    const bool tells = place.tp == 0 && place.cp == 0 && place.pp == 0;  // others have the same samples
    if (kind == ModuleKind::kLlm && tells) {
      part.llm_rank = place.dp;
      for (const Inputs& inputs : own.batch.microbatches) {
        part.microbatches.push_back(
            microbatch_load(inputs, beside.contains(ModuleKind::kVision), beside.contains(ModuleKind::kAudio)));
      }
    }
    if (beside.contains(kind) && tells) {
      auto& [rank, loads] = part.encoders[kind];
      rank = place.dp;
      const auto found = own.batch.encoders.find(kind);
      if (found == own.batch.encoders.end()) continue;
      for (const Inputs& inputs : found->second) loads.push_back(encoder_load(kind, inputs));
    }
    if (kind != ModuleKind::kLlm || plan_->llm().ep == 1) continue;
    const auto at = std::find(groups->routed.begin(), groups->routed.end(), world_->rank()) - groups->routed.begin();
    for (const auto& [key, routers] : own.report.routed_rows) {
      const int64_t first = routers_.first_of_stage[static_cast<size_t>(key.first)];
      for (size_t router = 0; router < routers.size(); ++router)
        part.routed[{first + static_cast<int64_t>(router), at, key.second}] = routers[router];
    }
  }
  return part;
}

std::optional<StepRecord> StepRecorder::gather(const Own& own) {
  Group& all = world_->all();
  Timeline timeline = gather_timeline(all, own.report.events, own.start_ms);
  const std::vector<std::string> parts = gather_texts(all, records_load_ ? to_json(part_of(own)).dump() : "");
  if (all.rank() != 0) return std::nullopt;
  StepRecord record{
      .step = own.metrics.step, .steps_before = own.steps_before, .step_ms = own.metrics.step_ms, .ranks = {}};
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    record.ranks.push_back(
        {.peak_bytes = own.metrics.ranks[rank].peak_memory_bytes, .events = std::move(timeline.ranks[rank])});
  }
  if (!records_load_) return record;
  RecordedLoad load{
      .assignment = own.batch.assignment, .media = own.batch.media, .balances_experts = own.balances_experts};
  for (const std::string& text : parts) {
    const Result<LoadPart> part = read_load_part(Json::parse(text));
    WEFT_CHECK(part.ok(), "a rank's own load cannot be read: {}", part.error().message());
    add_part(*part, load);
  }
  record.load = std::move(load);
  return record;
}

}  // namespace weft
