#include "weft/meaning/plan_schedule.h"

#include <algorithm>
#include <cctype>
#include <numeric>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/text.h"
#include "weft/meaning/tied_table.h"
#include "weft/meaning/trainable.h"
#include "weft/plan/mbs_scale.h"
#include "weft/plan/module_mesh.h"
#include "weft/schedule/generators.h"
#include "weft/schedule/lowering.h"
#include "weft/schedule/step_end.h"

namespace weft {
namespace {

Error bad_field(std::string field, std::string problem) {
  return {.field = std::move(field), .problem = std::move(problem)};
}

/// Problem and next step in one, as violations of plans have them: "is 0; set it to 1, or use 1f1b".
std::string with_advice(const Error& error) {
  if (error.advice.empty()) return error.problem;
  std::string advice = error.advice.substr(0, error.advice.size() - (error.advice.ends_with('.') ? 1 : 0));
  advice.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(advice.front())));
  return fmt::format("{}; {}", error.problem, advice);
}

std::string field_of(const ModulePlan& module, const char* name) {
  return fmt::format("modules.{}.{}", name_of(module.kind), name);
}

/// The rows whose llm ranks meet in the encoder's groups along some axes. Rows that share a group's rank meet as a
/// whole.
Result<std::vector<std::vector<int32_t>>> shared_groups(const ModulePlan& encoder, const ModulePlan& llm,
                                                        std::initializer_list<std::string_view> axes) {
  WEFT_TRY(const Mesh llm_mesh, mesh_of(llm));
  WEFT_TRY(const Mesh mesh, mesh_of(encoder));
  std::vector<int32_t> leader(static_cast<size_t>(llm.pp));
  std::iota(leader.begin(), leader.end(), 0);
  const auto find = [&](int32_t pipeline_rank) {
    while (leader[static_cast<size_t>(pipeline_rank)] != pipeline_rank)
      pipeline_rank = leader[static_cast<size_t>(pipeline_rank)];
    return pipeline_rank;
  };
  // Places of ranks are looked up once each: large clusters have thousands.
  const std::optional<size_t> pp = llm_mesh.grid().find("pp");
  std::vector<bool> is_used(leader.size(), false);
  for (const auto& group : mesh.groups(mesh.grid().axes_named(axes))) {
    std::optional<int32_t> first;
    for (const int64_t rank : group) {
      const std::optional<int64_t> place = llm_mesh.find(rank);
      if (!place) return bad_field(field_of(encoder, "ranks"), fmt::format("rank {} is not the llm's", rank));
      const auto pipeline_rank = static_cast<int32_t>(pp ? llm_mesh.grid().coordinate(*place, *pp) : 0);
      is_used[static_cast<size_t>(pipeline_rank)] = true;
      if (!first) first = find(pipeline_rank);
      leader[static_cast<size_t>(find(pipeline_rank))] = find(*first);
    }
  }
  std::map<int32_t, std::vector<int32_t>> joined;
  for (int32_t pipeline_rank = 0; pipeline_rank < llm.pp; ++pipeline_rank) {
    if (is_used[static_cast<size_t>(pipeline_rank)]) joined[find(pipeline_rank)].push_back(pipeline_rank);
  }
  std::vector<std::vector<int32_t>> groups;
  for (auto& [ignored, rows] : joined) groups.push_back(std::move(rows));
  return groups;
}

const ModulePlan* first_filler(const Plan& plan) {
  for (const ModulePlan& module : plan.modules) {
    const bool fills =
        module.is_encoder() && module.placement != ModulePlacement::kInline && module.form == EncoderForm::kFill;
    if (fills) return &module;
  }
  return nullptr;
}

/// Whether pipeline ranks have encoders' actions at different places among their own.
bool rows_differ(const Plan& plan) {
  return first_filler(plan) != nullptr ||
         std::any_of(plan.modules.begin(), plan.modules.end(), [](const ModulePlan& module) {
           return !module.is_in_pipeline() && module.form == EncoderForm::kOnDemand;
         });
}

/// The groups of rows that run the encoder.
Result<std::vector<std::vector<int32_t>>> groups_of_encoder(const Plan& plan, const ModulePlan& module,
                                                            int32_t& next_own_row) {
  if (module.placement != ModulePlacement::kDisjoint) {
    // ZeRO 2 and 3 have data-parallel ranks meet in every action, too. That must be said where rows differ in their
    // order.
    const bool joins_replicas = module.zero >= 2 && rows_differ(plan);
    return joins_replicas ? shared_groups(module, plan.llm(), {"tp", "cp", "dp"})
                          : shared_groups(module, plan.llm(), {"tp", "cp"});
  }
  std::vector<std::vector<int32_t>> groups;
  for (int64_t stage = 0; stage < module.pp; ++stage) groups.push_back({next_own_row++});
  return groups;
}

Result<EncoderPlacement> placement_of_encoder(const Plan& plan, const ModulePlan& module, int32_t& next_own_row) {
  EncoderPlacement placement{.form = module.form};
  ScheduledEncoder& rows = placement.rows;
  WEFT_TRY(rows, macro_batches_of(plan, module));
  WEFT_TRY(rows.groups, groups_of_encoder(plan, module, next_own_row));
  if (module.placement == ModulePlacement::kDisjoint) rows.num_stages = static_cast<int32_t>(module.pp);
  int64_t num_rows = 0;
  for (const auto& group : rows.groups) num_rows += std::ssize(group);
  if (rows.num_macro_batches * num_rows > kMostMacroBatches) {
    return bad_field(field_of(module, "mbs_scale"),
                     fmt::format("is {}, which makes {} macro batches on {}, at most {} together are allowed; use a "
                                 "larger one",
                                 mbs_scale_text(module), with_commas(rows.num_macro_batches),
                                 counted(num_rows, "pipeline rank"), with_commas(kMostMacroBatches)));
  }
  return placement;
}

/// What the number of a stored encoder action refers to must exist: everything else looks it up.
std::optional<std::string> find_wrong_index(const Action& action, const std::vector<ScheduledEncoder>& encoders) {
  if (action.stage >= std::ssize(encoders)) {
    return fmt::format("has {}, but there {} only {}, numbered from 0; correct it", to_text(action),
                       encoders.size() == 1 ? "is" : "are", counted(std::ssize(encoders), "encoder"));
  }
  const int32_t count = encoders[static_cast<size_t>(action.stage)].num_macro_batches;
  if (action.microbatch < count) return std::nullopt;
  return fmt::format("has {}, but encoder {} has only {}, numbered from 0; correct it", to_text(action), action.stage,
                     counted(count, "macro batch"));
}

/// The rows that the plan stores, which must hold the pipeline's own actions in their own order.
Result<Schedule> stored_schedule(const ModulePlan& filler, const Schedule& pipeline,
                                 std::vector<ScheduledEncoder> encoders) {
  Schedule schedule{.num_microbatches = pipeline.num_microbatches,
                    .rank_of_stage = pipeline.rank_of_stage,
                    .rows = {},
                    .encoders = std::move(encoders),
                    .entry_stage = pipeline.entry_stage};
  for (const auto& [row, words] : filler.actions) {
    const std::string field = fmt::format("{}.{}", field_of(filler, "actions"), row);
    if (row != schedule.num_ranks())
      return bad_field(field_of(filler, "actions"), fmt::format("has row {} but no row {}", row, schedule.num_ranks()));
    auto& actions = schedule.rows.emplace_back();
    std::vector<Action> own;
    for (const std::string& word : words) {
      const Result<Action> action = parse_action(word);
      if (!action) return bad_field(field, action.error().problem);
      if (is_encoder(action->kind) && !is_encoder_compute(action->kind))
        return bad_field(field, fmt::format("has {}, but only EF and EB of encoders are stored", to_text(*action)));
      if (is_encoder(action->kind)) {
        if (auto problem = find_wrong_index(*action, schedule.encoders)) return bad_field(field, *std::move(problem));
      }
      actions.push_back(*action);
      if (!is_encoder(action->kind)) own.push_back(*action);
    }
    const bool is_llm_row = row < pipeline.num_ranks();
    if (own != (is_llm_row ? pipeline.rows[static_cast<size_t>(row)] : std::vector<Action>{})) {
      return bad_field(field, "does not hold the llm's actions in the order of its schedule");
    }
  }
  if (schedule.num_ranks() < pipeline.num_ranks()) {
    return bad_field(field_of(filler, "actions"), fmt::format("has {} rows, but the pipeline has {} ranks",
                                                              schedule.num_ranks(), pipeline.num_ranks()));
  }
  return schedule;
}

}  // namespace

Result<ScheduledEncoder> macro_batches_of(const Plan& plan, const ModulePlan& module) {
  Result<MacroRanges> ranges = macro_ranges({.microbatches = plan.schedule.microbatches,
                                             .mbs_scale = module.mbs_scale,
                                             .mbs_parts = module.mbs_parts,
                                             .dp_encoder = module.dp,
                                             .dp_llm = plan.llm().dp});
  if (!ranges) return bad_field(field_of(module, "mbs_scale"), ranges.error().problem);
  ScheduledEncoder rows{.name = std::string(name_of(module.kind)),
                        .num_macro_batches = ranges->num_macro_batches,
                        .is_trained = trains(plan, module.kind),
                        .recompute_from_inputs = module.recompute_from_inputs,
                        .first_macro = std::move(ranges->first_macro),
                        .end_macro = std::move(ranges->end_macro)};
  const bool has_bound = module.form == EncoderForm::kFill || module.form == EncoderForm::kStream;
  if (has_bound) rows.live_macro_batches = static_cast<int32_t>(module.live_macro_batches);
  if (module.form == EncoderForm::kOnDemand) {
    // Macro batches that come when they are needed and go when they are not: as many as the pipeline's order holds.
    WEFT_TRY(const Schedule pipeline, pipeline_schedule(plan));
    rows.live_macro_batches = least_live_macro_batches(pipeline, rows);
  }
  return rows;
}

Result<std::vector<EncoderPlacement>> encoder_placements(const Plan& plan) {
  std::vector<EncoderPlacement> placements;
  auto next_own_row = static_cast<int32_t>(plan.llm().pp);
  for (const ModulePlan& module : plan.modules) {
    if (!module.is_encoder() || module.placement == ModulePlacement::kInline) continue;
    WEFT_TRY(EncoderPlacement placement, placement_of_encoder(plan, module, next_own_row));
    placements.push_back(std::move(placement));
  }
  return placements;
}

Result<Schedule> pipeline_schedule(const Plan& plan) {
  if (plan.schedule.rows) {
    Schedule pipeline = plan.schedule.rows->schedule;
    pipeline.entry_stage = llm_entry_stage(plan);
    return pipeline;
  }
  const Result<ScheduleName> name = parse_schedule_name(plan.schedule.name);
  if (!name) return bad_field("schedule.name", name.error().problem);
  const ModulePlan& llm = plan.llm();
  Result<Schedule> pipeline =
      generate_schedule(*name, {.pp = llm.pp, .vpp = llm.vpp, .microbatches = plan.schedule.microbatches});
  if (!pipeline) {
    const std::string& what = pipeline.error().source;
    return bad_field(what == "microbatches" ? "schedule.microbatches" : "modules.llm." + what,
                     with_advice(pipeline.error()));
  }
  pipeline->entry_stage = llm_entry_stage(plan);
  return pipeline;
}

Result<Schedule> playable_schedule(const Plan& plan) {
  WEFT_TRY(Schedule schedule, schedule_of(plan));
  return lower_schedule(with_step_end(std::move(schedule)));
}

Result<Schedule> schedule_of(const Plan& plan) {
  WEFT_TRY(Schedule pipeline, pipeline_schedule(plan));
  WEFT_TRY(const std::vector<EncoderPlacement> placements, encoder_placements(plan));
  if (placements.empty()) return pipeline;
  if (const ModulePlan* filler = first_filler(plan)) {
    std::vector<ScheduledEncoder> encoders;
    for (const EncoderPlacement& placement : placements) encoders.push_back(placement.rows);
    return stored_schedule(*filler, pipeline, std::move(encoders));
  }
  Result<Schedule> placed = place_encoders(pipeline, placements);
  if (!placed) return bad_field("modules", placed.error().message());
  return placed;
}

std::map<int64_t, std::vector<std::string>> stored_rows(const Schedule& schedule) {
  std::map<int64_t, std::vector<std::string>> rows;
  for (int32_t rank = 0; rank < schedule.num_ranks(); ++rank) {
    auto& words = rows[rank];
    for (const Action& action : schedule.rows[static_cast<size_t>(rank)]) words.push_back(to_text(action));
  }
  return rows;
}

}  // namespace weft
