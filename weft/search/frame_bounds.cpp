#include "weft/search/frame_bounds.h"

#include <algorithm>
#include <array>
#include <optional>

#include "weft/base/units.h"
#include "weft/meaning/weight_copies.h"
#include "weft/search/plan_bounds.h"
#include "weft/search/precision.h"

namespace weft {
namespace {

/// A schedule and a ZeRO stage of a frame, by their places in its choices.
struct Setting {
  double bound_ms = 0;
  size_t schedule = 0;
  size_t zero = 0;
};

size_t place_of(const std::vector<Placement>& placements, const ScheduleChoice& schedule) {
  const auto found = std::find(placements.begin(), placements.end(), kind_of(schedule.name).placement);
  return static_cast<size_t>(found - placements.begin());
}

}  // namespace

double FrameBounds::work_ms(const Candidate& degrees) {
  const DrawnLoads::Even even(bench_.loads());
  // With divided rows the llm takes the least where no encoder is inline, whose rows it would place among whole ones;
  // otherwise it takes as long wherever encoders lie, and one plan says what all of them take inline.
  std::optional<double> llm_alone_ms;
  if (degrees.sequence_parallel && bench_.num_encoders() > 0) {
    bench_.fill(with_inline(degrees, 0));
    llm_alone_ms = module_ms(bench_.plan(), bench_.plan().llm(), *bench_.pipeline_blocks().back());
  }
  bench_.fill(with_inline(degrees, all_encoders()));
  const Plan& plan = bench_.plan();
  const ModuleCostsOf& costs = bench_.pipeline_blocks();
  const auto microbatches = static_cast<double>(plan.schedule.microbatches);
  const double samples_a_row = static_cast<double>(plan.workload.global_batch_samples * degrees.pp) /
                               static_cast<double>(plan.llm().ranks.size());
  double work_ms = 0;
  std::array<double, kMostEncoders> inline_ms{};
  size_t encoder = 0;
  for (size_t m = 0; m < plan.modules.size(); ++m) {
    const ModulePlan& module = plan.modules[m];
    const double ms = module.is_in_pipeline() ? microbatches * module_ms(plan, module, *costs[m]) : 0;
    if (module.is_encoder()) {
      inline_ms[encoder++] = ms;
    } else {
      work_ms += llm_alone_ms ? microbatches * *llm_alone_ms : ms;
    }
  }
  for (size_t e = 0; e < bench_.num_encoders(); ++e) {
    if (degrees.encoders[e].placement == ModulePlacement::kDisjoint) continue;
    work_ms += std::min(inline_ms[e], least_encoder_of(degrees, e) * samples_a_row);
  }
  return work_ms / static_cast<double>(degrees.pp);
}

double FrameBounds::least_encoder_of(const Candidate& degrees, size_t encoder) {
  // Where encoders may spread rows, among how many ranks matters.
  const bool has_room = std::any_of(bench_.space().encoders.begin(), bench_.space().encoders.end(),
                                    [](const auto& entry) { return entry.second.cp != EncoderSpace{}.cp; });
  const auto key =
      std::tuple(encoder, degrees.mbs, degrees.tp, degrees.pp > 1, has_room ? context_room(degrees) : degrees.tp);
  if (const auto found = least_.find(key); found != least_.end()) return found->second;
  Candidate c = degrees;
  c.encoders = {};
  const double ms = least_encoder_ms(c, encoder, bench_.space(), bench_.plan(), bench_.simulator());
  return least_.emplace(key, ms).first->second;
}

double FrameBounds::llm_ms(const Candidate& degrees, double limit_ms) {
  const DrawnLoads::Even even(bench_.loads());
  Candidate c = with_inline(degrees, 0);
  const FrameChoices choices = llm_choices_of(degrees, bench_.plan(), bench_.space());
  const std::vector<Placement> placements = choices.placements();
  const auto microbatches = static_cast<double>(bench_.microbatches(degrees));
  std::vector<std::vector<FluidChain>> fluids;  // by ZeRO stage and placement
  std::vector<Setting> settings;
  double least_busy_ms = kInfinity;
  for (size_t z = 0; z < choices.zeros.size(); ++z) {
    choices.zeros[z].apply(c);
    bench_.fill(c);
    std::vector<FluidChain>& chains = fluids.emplace_back();
    std::vector<double> busy_ms;
    for (const Placement placement : placements) {
      chains.push_back(fluid_chain(bench_.plan(), bench_.pipeline_costs(), placement));
      busy_ms.push_back(microbatches * weft::least_busy_ms(bench_.plan(), chains.back()));
      least_busy_ms = std::min(least_busy_ms, busy_ms.back());
    }
    for (size_t s = 0; s < choices.schedules.size(); ++s) {
      const double busy = busy_ms[place_of(placements, choices.schedules[s])];
      if (busy < kInfinity) settings.push_back({busy, s, z});
    }
  }
  // What cannot win needs no better bound.
  if (least_busy_ms >= limit_ms) return least_busy_ms;
  // What passes between stages of encoders may be less than between the llm's.
  bench_.fill(with_inline(degrees, all_encoders()));
  const double transfer_ms = every_stage(bench_.plan(), bench_.pipeline_costs())[kTransferWork];
  const auto rest_of_stages = [&] {
    StageTimes rest = every_stage(bench_.plan(), bench_.pipeline_costs());
    rest[kTransferWork] = transfer_ms;
    return rest;
  };
  // The least of any ZeRO stage: without their communication.
  ZeroChoice{}.apply(c);
  struct LlmWork {
    FreeWork llm;
    StageTimes rest;
  };
  std::array<std::optional<LlmWork>, 2> works;  // with whole backwards, and with split ones
  std::vector<double> mixed_ms;
  for (const ScheduleChoice& schedule : choices.schedules) {
    schedule.apply(c);
    std::optional<LlmWork>& work = works[kind_of(schedule.name).splits_backward ? 1 : 0];
    if (!work) {
      bench_.fill(c);
      const Plan& plan = bench_.plan();
      work = LlmWork{free_work(plan, plan.llm(), *bench_.pipeline_costs().back()), rest_of_stages()};
    }
    const PlanShape& shape = bench_.shape_of(c);
    mixed_ms.push_back(least_makespan_ms(shape.schedule(), shape.mix(), std::span(&work->llm, 1), work->rest));
  }
  for (Setting& setting : settings) setting.bound_ms = std::max(setting.bound_ms, mixed_ms[setting.schedule]);
  std::stable_sort(settings.begin(), settings.end(),
                   [](const Setting& a, const Setting& b) { return a.bound_ms < b.bound_ms; });
  double least_ms = kInfinity;
  for (const Setting& setting : settings) {
    if (setting.bound_ms >= least_ms) break;
    if (setting.bound_ms >= limit_ms) return setting.bound_ms;
    const ScheduleChoice& schedule = choices.schedules[setting.schedule];
    schedule.apply(c);
    choices.zeros[setting.zero].apply(c);
    bench_.fill(c);
    const SolverShape& shape = bench_.shape_of(c).solver();
    // Where something hides the reduction of gradients, it takes no less than that behind the llm.
    const RoomMix room(shape.schedule, shape.mix, layered_work(bench_.plan(), bench_.pipeline_costs()),
                       rest_of_stages(), fluids[setting.zero][place_of(placements, schedule)], shape.held_anyway);
    least_ms = std::min(least_ms, std::max(setting.bound_ms, room.least_makespan_ms({})));
  }
  return least_ms;
}

double FrameBounds::least_held_gib(const Candidate& degrees) {
  Candidate c = with_inline(degrees, 0);
  for (const int64_t zero : {0, 1, 2, 3}) {
    if (bench_.space().zero.contains(zero)) c.zero = effective_zero(zero, num_weight_copies(degrees));
  }
  bench_.fill(c);
  return fluid_chain(bench_.plan(), bench_.pipeline_costs(), Placement::kLoop).least_held_bytes() / kGiB;
}

double FrameBounds::with_idle_ms(const Candidate& degrees, double work_ms) const {
  return work_ms * (1 + static_cast<double>(degrees.pp - 1) / static_cast<double>(bench_.microbatches(degrees)));
}

}  // namespace weft
