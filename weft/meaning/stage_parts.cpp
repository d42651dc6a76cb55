#include "weft/meaning/stage_parts.h"

#include <algorithm>

#include "weft/schedule/schedule_kind.h"

namespace weft {
namespace {

/// The first and the last stage with layers of a module, for its entry and exit.
struct Ends {
  int32_t first = 0;
  int32_t last = 0;
};

const ScheduleKind* find_kind(const Plan& plan) {
  for (const ScheduleKind& kind : schedule_kinds())
    if (kind.name == plan.schedule.name) return &kind;
  return nullptr;
}

/// Where stages lie, found out once for all of them: a schedule is found by its name.
class StagePlaces {
 public:
  explicit StagePlaces(const Plan& plan)
      : rows_(plan.schedule.rows ? &*plan.schedule.rows : nullptr),
        placement_(rows_ == nullptr ? placement_of(plan) : Placement::kLoop),
        pp_(static_cast<int32_t>(plan.llm().pp)) {}

  StagePlace operator()(int32_t stage) const {
    return rows_ == nullptr ? place_of_stage(placement_, pp_, stage) : rows_->places[static_cast<size_t>(stage)];
  }

 private:
  const ExplicitRows* rows_;
  Placement placement_;
  int32_t pp_;
};

Ends ends_of(const Plan& plan, const StagePlaces& places, const ModulePlan& module) {
  Ends ends{.first = -1, .last = 0};
  for (int32_t stage = 0; stage < num_stages(plan); ++stage) {
    const StagePlace place = places(stage);
    if (module.layers[static_cast<size_t>(place.rank)][static_cast<size_t>(place.chunk)] == 0) continue;
    if (ends.first < 0) ends.first = stage;
    ends.last = stage;
  }
  ends.first = std::max(ends.first, 0);
  return ends;
}

}  // namespace

int32_t num_stages(const Plan& plan) {
  if (plan.schedule.rows) return plan.schedule.rows->schedule.num_stages();
  return static_cast<int32_t>(plan.llm().pp * plan.llm().vpp);
}

int64_t num_chunks(const Plan& plan, int64_t rank) {
  return plan.schedule.rows ? plan.schedule.rows->chunks[static_cast<size_t>(rank)] : plan.llm().vpp;
}

Placement placement_of(const Plan& plan) {
  const ScheduleKind* kind = find_kind(plan);
  return kind == nullptr ? Placement::kLoop : kind->placement;
}

bool has_split_backward(const Plan& plan, const ModulePlan& module) {
  if (!module.is_in_pipeline()) return false;
  if (plan.schedule.rows) return plan.schedule.rows->splits_backward;
  const ScheduleKind* kind = find_kind(plan);
  return kind != nullptr && kind->splits_backward;
}

StagePlace place_of_stage(const Plan& plan, int32_t stage) {
  return StagePlaces(plan)(stage);
}

void list_stage_parts(const Plan& plan, std::vector<StagePart>& parts) {
  parts.clear();
  const int32_t stages = num_stages(plan);
  const StagePlaces places(plan);
  const bool has_inline = std::any_of(plan.modules.begin(), plan.modules.end(),
                                      [](const ModulePlan& m) { return m.placement == ModulePlacement::kInline; });
  for (size_t index = 0; index < plan.modules.size(); ++index) {
    const ModulePlan& module = plan.modules[index];
    if (!module.is_in_pipeline()) continue;
    Ends ends = ends_of(plan, places, module);
    if (!module.is_encoder()) {
      if (!has_inline) ends.first = 0;
      ends.last = stages - 1;
    }
    int64_t next_layer = 0;
    for (int32_t stage = 0; stage < stages; ++stage) {
      const StagePlace place = places(stage);
      const auto rank = static_cast<size_t>(place.rank);
      const auto chunk = static_cast<size_t>(place.chunk);
      StagePart part{.stage = stage,
                     .module = static_cast<int32_t>(index),
                     .first_layer = next_layer,
                     .num_layers = module.layers[rank][chunk],
                     .has_entry = stage == ends.first,
                     .has_exit = stage == ends.last};
      part.recompute = module.recompute_of(rank, chunk);
      next_layer += part.num_layers;
      if (part.num_layers > 0 || part.has_entry || part.has_exit) parts.push_back(part);
    }
  }
  std::sort(parts.begin(), parts.end(), [](const StagePart& a, const StagePart& b) {
    return a.stage != b.stage ? a.stage < b.stage : a.module < b.module;
  });
}

std::vector<size_t> modules_of_pipeline(const Plan& plan, size_t module) {
  if (!plan.modules[module].is_in_pipeline()) return {module};
  std::vector<size_t> modules;
  for (size_t index = 0; index < plan.modules.size(); ++index)
    if (plan.modules[index].is_in_pipeline()) modules.push_back(index);
  return modules;
}

std::vector<StagePart> parts_of_pipeline(const Plan& plan, size_t module) {
  if (!plan.modules[module].is_in_pipeline()) return list_encoder_parts(plan, module);
  std::vector<StagePart> parts;
  list_stage_parts(plan, parts);
  return parts;
}

std::vector<BlockRecompute> StagePart::recomputes() const {
  std::vector<BlockRecompute> all;
  for (const RecomputeRun& run : recompute) all.insert(all.end(), static_cast<size_t>(run.blocks), run.what);
  all.resize(static_cast<size_t>(num_layers), BlockRecompute::kKeep);
  return all;
}

std::vector<int32_t> stages_on(const Plan& plan, const ModulePlan& module, int64_t pipeline_rank) {
  if (!module.is_in_pipeline()) return {static_cast<int32_t>(pipeline_rank)};
  std::vector<int32_t> stages;
  for (int32_t stage = 0; stage < num_stages(plan); ++stage)
    if (place_of_stage(plan, stage).rank == pipeline_rank) stages.push_back(stage);
  return stages;
}

std::vector<StagePart> list_encoder_parts(const Plan& plan, size_t module) {
  const ModulePlan& encoder = plan.modules[module];
  std::vector<StagePart> parts;
  int64_t next_layer = 0;
  for (size_t stage = 0; stage < encoder.layers.size(); ++stage) {
    StagePart& part = parts.emplace_back();
    part = {.stage = static_cast<int32_t>(stage),
            .module = static_cast<int32_t>(module),
            .first_layer = next_layer,
            .num_layers = encoder.layers[stage].front(),
            .has_entry = stage == 0,
            .has_exit = stage + 1 == encoder.layers.size()};
    part.recompute = encoder.recompute_of(stage, 0);
    next_layer += part.num_layers;
  }
  return parts;
}

}  // namespace weft
