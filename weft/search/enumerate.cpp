#include "weft/search/enumerate.h"

#include <algorithm>
#include <numeric>

#include "weft/base/divisors.h"
#include "weft/meaning/expert_ranks.h"
#include "weft/meaning/weight_copies.h"
#include "weft/plan/head_limit.h"
#include "weft/spec/num_experts.h"

namespace weft {
namespace {

std::vector<const Module*> encoders_of(const Plan& problem) {
  std::vector<const Module*> encoders;
  for (const Module& module : problem.model.modules) {
    if (module.kind != ModuleKind::kLlm && encoders.size() < kMostEncoders) encoders.push_back(&module);
  }
  return encoders;
}

/// How many ranks an encoder can have of its own: divisors of a node, or as many whole nodes as divide theirs; 0 where
/// it shares the llm's.
std::vector<int64_t> own_ranks(const Plan& problem, const EncoderSpace& space) {
  std::vector<int64_t> counts;
  if (space.allows_inline || space.allows_colocated || space.allows_partial) counts.push_back(0);
  if (!space.allows_disjoint) return counts;
  const int64_t node = problem.cluster.devices_per_node;
  std::vector<int64_t> possible = divisors(node);
  for (const int64_t nodes : divisors(problem.cluster.nodes)) possible.push_back(nodes * node);
  std::sort(possible.begin(), possible.end());
  possible.erase(std::unique(possible.begin(), possible.end()), possible.end());
  for (const int64_t ranks : possible) {
    if (ranks < problem.world_size && space.ranks.contains(ranks)) counts.push_back(ranks);
  }
  return counts;
}

class FrameLister {
 public:
  FrameLister(const Plan& problem, const PlanSpace& space, const EncoderChoices& encoders, int64_t world)
      : problem_(problem),
        space_(space),
        encoders_(encoders),
        llm_(*problem.model.find(ModuleKind::kLlm)),
        world_(world),
        experts_(num_experts(llm_)),
        heads_(head_limit(llm_)) {}

  std::vector<Candidate> list() {
    Candidate c;
    c.encoders = encoders_;
    for (const int64_t tp : divisors(problem_.cluster.devices_per_node)) {
      if (!space_.tp.contains(tp) || tp > heads_.most_tp() || world_ % tp != 0) continue;
      c.tp = tp;
      for (const int64_t cp : divisors(world_ / tp)) {
        if (!space_.cp.contains(cp)) continue;
        c.cp = cp;
        add_pipelines(c);
      }
    }
    return std::move(found_);
  }

 private:
  void add_pipelines(Candidate c) {
    const auto layers = static_cast<int64_t>(llm_.layers.size());
    for (const int64_t pp : divisors(world_ / (c.tp * c.cp))) {
      const int64_t dp = world_ / (c.tp * c.cp * pp);
      if (pp > layers || !space_.pp.contains(pp) || !space_.dp.contains(dp)) continue;
      c.pp = pp;
      c.dp = dp;
      for (const int64_t ulysses : divisors(c.cp)) {
        if (!heads_.allows(c.tp, ulysses) || !space_.cp_ulysses.contains(ulysses)) continue;
        c.cp_ulysses = ulysses;
        add_experts(c);
      }
    }
  }

  void add_experts(Candidate c) {
    for (const int64_t ep : divisors(experts_)) {
      if (!space_.ep.contains(ep)) continue;
      c.ep = ep;
      for (const bool rows_divided : {true, false}) {
        if (rows_divided && c.tp == 1) continue;
        if (c.tp > 1 && space_.sequence_parallel.value_or(rows_divided) != rows_divided) continue;
        c.sequence_parallel = rows_divided;
        for (const bool over_tp : {false, true}) {
          const bool may_differ = rows_divided && ep > 1;
          if (may_differ ? space_.experts_over_tp.value_or(over_tp) != over_tp : over_tp) continue;
          c.experts_over_tp = over_tp;
          if (num_expert_ranks(c) % ep == 0) add_batches(c);
        }
      }
    }
  }

  void add_batches(Candidate c) {
    const int64_t batch = problem_.workload.global_batch_samples;
    if (batch % c.dp != 0) return;
    for (const int64_t mbs : divisors(batch / c.dp)) {
      if (!space_.mbs.contains(mbs)) continue;
      const auto& program = problem_.model.numbers.program;
      if (program && mbs > program->most_samples) continue;
      c.mbs = mbs;
      if (c.pp * c.microbatches(batch) > space_.most_stage_microbatches) continue;
      // Which of the two lies inside only matters where both are there and nodes are crossed.
      const bool matters = c.pp > 1 && c.dp > 1 && problem_.cluster.nodes > 1;
      for (const bool neighbours : {false, true}) {
        if (matters ? space_.stages_are_neighbours.value_or(neighbours) != neighbours : neighbours) continue;
        c.stages_are_neighbours = neighbours;
        found_.push_back(c);
      }
    }
  }

  const Plan& problem_;
  const PlanSpace& space_;
  const EncoderChoices& encoders_;
  const Module& llm_;
  int64_t world_;
  int64_t experts_;
  HeadLimit heads_;
  std::vector<Candidate> found_;
};

std::vector<int64_t> values_up_to(int64_t most, const Allowed& allowed) {
  std::vector<int64_t> found;
  for (int64_t value = 1; value <= most; ++value) {
    if (allowed.contains(value)) found.push_back(value);
  }
  return found;
}

/// Those that are allowed.
std::vector<int64_t> divisors_of(int64_t number, const Allowed& allowed) {
  std::vector<int64_t> found = allowed.values.empty() ? divisors(number) : allowed.values;
  std::erase_if(found, [&](int64_t value) { return number % value != 0 || !allowed.contains(value); });
  return found;
}

/// The neighbouring ranks among which an encoder may spread rows.
int64_t context_room(const Candidate& frame, const EncoderChoice& choice) {
  if (choice.placement == ModulePlacement::kDisjoint) return choice.ranks;
  return context_room(frame);
}

/// Lists the ways to run an encoder in a frame, which says how many ranks it has of its own.
class EncoderLister {
 public:
  /// `allows_full`: layers may be recomputed whole.
  EncoderLister(const Candidate& frame, const Module& module, bool is_frozen, const EncoderSpace& space,
                bool allows_full)
      : frame_(frame),
        module_(module),
        is_frozen_(is_frozen),
        space_(space),
        allows_full_(allows_full),
        most_tp_(head_limit(module).most_tp()),
        scales_(values_up_to(kMostScale, space.mbs_scale)) {}

  std::vector<EncoderChoice> list(const EncoderChoice& given) {
    if (given.placement == ModulePlacement::kDisjoint) {
      EncoderChoice choice = given;
      choice.form = EncoderForm::kStream;
      add_degrees(choice, given.ranks);
      return std::move(choices_);
    }
    if (space_.allows_inline) choices_.push_back({});
    if (space_.allows_colocated) {
      add_before({.placement = ModulePlacement::kColocated});
      if (space_.allows_fill && frame_.pp > 1)
        add_degrees({.placement = ModulePlacement::kColocated, .form = EncoderForm::kFill}, frame_.tp);
      if (space_.allows_on_demand)
        add_degrees({.placement = ModulePlacement::kColocated, .form = EncoderForm::kOnDemand}, frame_.tp);
    }
    if (space_.allows_partial) {
      for (const int64_t stages : divisors(frame_.pp)) {
        if (stages < frame_.pp && space_.stages.contains(stages))
          add_before({.placement = ModulePlacement::kPartial, .stages = stages});
      }
    }
    return std::move(choices_);
  }

 private:
  void add_before(EncoderChoice choice) {
    if (!space_.allows_before) return;
    for (const bool from_inputs : {false, true}) {
      const bool is_allowed = space_.recompute_from_inputs.value_or(from_inputs) == from_inputs;
      if (!is_allowed || (is_frozen_ && from_inputs)) continue;
      choice.recompute_from_inputs = from_inputs;
      add_degrees(choice, frame_.tp);
    }
    // From inputs takes as long and holds less, so layer by layer is for those that do without.
    if (space_.recompute_from_inputs.value_or(true) || is_frozen_ || !allows_full_) return;
    choice.recompute_from_inputs = false;
    choice.recompute_layers = static_cast<int64_t>(module_.layers.size());
    add_degrees(choice, frame_.tp);
  }

  void add_degrees(EncoderChoice choice, int64_t ranks) {
    for (const int64_t tp : divisors(ranks)) {
      if (!space_.tp.contains(tp) || tp > most_tp_) continue;
      choice.tp = tp;
      for (const int64_t cp : divisors_of(context_room(frame_, choice) / tp, space_.cp)) {
        choice.cp = cp;
        add_rows_and_zeros(choice);
      }
    }
  }

  void add_rows_and_zeros(EncoderChoice choice) {
    for (const bool rows_divided : {false, true}) {
      const bool is_allowed =
          choice.tp > 1 ? space_.sequence_parallel.value_or(rows_divided) == rows_divided : !rows_divided;
      if (!is_allowed) continue;
      choice.sequence_parallel = rows_divided;
      if (!space_.zero) add_macro_batches(choice);
      for (const ZeroSetting& zero : kZeroSettings) {
        if (!space_.zero || !space_.zero->contains(zero.stage)) continue;
        choice.zero = zero.stage;
        choice.zero_keep_gathered = zero.keep_gathered;
        add_macro_batches(choice);
      }
    }
  }

  void add_macro_batches(EncoderChoice choice) {
    for (const int64_t scale : scales_) {
      choice.mbs_scale = scale;
      for (const int64_t parts : divisors_of(frame_.mbs * scale, space_.mbs_parts)) {
        if (std::gcd(parts, scale) > 1) continue;
        choice.mbs_parts = parts;
        choices_.push_back(choice);
      }
    }
  }

  const Candidate& frame_;
  const Module& module_;
  bool is_frozen_;
  const EncoderSpace& space_;
  bool allows_full_;
  int64_t most_tp_;
  std::vector<int64_t> scales_;
  std::vector<EncoderChoice> choices_;
};

}  // namespace

int64_t context_room(const Candidate& frame) {
  return frame.tp * frame.cp * (frame.stages_are_neighbours ? 1 : frame.dp);
}

std::vector<Candidate> enumerate_frames(const Plan& problem, const PlanSpace& space) {
  const std::vector<const Module*> encoders = encoders_of(problem);
  std::vector<EncoderChoices> splits = {EncoderChoices{}};
  for (size_t e = 0; e < encoders.size(); ++e) {
    std::vector<EncoderChoices> longer;
    for (const EncoderChoices& split : splits) {
      for (const int64_t ranks : own_ranks(problem, space.encoders.at(encoders[e]->kind))) {
        longer.push_back(split);
        if (ranks > 0) longer.back()[e] = {.placement = ModulePlacement::kDisjoint, .ranks = ranks};
      }
    }
    splits = std::move(longer);
  }
  std::vector<Candidate> frames;
  for (const EncoderChoices& split : splits) {
    int64_t world = problem.world_size;
    for (const EncoderChoice& encoder : split) world -= encoder.ranks;
    if (world < 1) continue;
    const std::vector<Candidate> found = FrameLister(problem, space, split, world).list();
    frames.insert(frames.end(), found.begin(), found.end());
  }
  return frames;
}

FrameChoices llm_choices_of(const Candidate& frame, const Plan& problem, const PlanSpace& space) {
  FrameChoices choices;
  const auto layers = static_cast<int64_t>(problem.model.find(ModuleKind::kLlm)->layers.size());
  const int64_t most_chunks =
      space.most_stage_microbatches / (frame.pp * frame.microbatches(problem.workload.global_batch_samples));
  for (const ScheduleName schedule : space.schedules) {
    if (frame.pp == 1) {
      // One stage has nothing to schedule: 1F1B stands for all.
      if (space.vpp.contains(1)) choices.schedules = {{}};
      break;
    }
    const ScheduleKind& kind = kind_of(schedule);
    for (int64_t vpp = kind.fewest_chunks; vpp <= std::min(kMostChunks, kind.most_chunks); ++vpp) {
      const bool has_stages = vpp == 1 || (vpp <= most_chunks && frame.pp * vpp <= layers);
      if (has_stages && space.vpp.contains(vpp)) choices.schedules.push_back({schedule, vpp});
    }
  }
  for (const ZeroSetting& zero : kZeroSettings) {
    if (!space.zero.contains(zero.stage) || (zero.stage > 0 && num_weight_copies(frame) == 1)) continue;
    const bool is_asked_for = space.zero_keep_gathered.value_or(zero.keep_gathered) == zero.keep_gathered;
    if (is_asked_for || !may_keep_gathered(zero.stage)) choices.zeros.push_back({zero.stage, zero.keep_gathered});
  }
  // Where nothing is shared, all stages are one.
  if (choices.zeros.empty() && num_weight_copies(frame) == 1) choices.zeros.push_back({});
  return choices;
}

FrameChoices choices_of(const Candidate& frame, const Plan& problem, const PlanSpace& space) {
  FrameChoices choices = llm_choices_of(frame, problem, space);
  const std::vector<const Module*> encoders = encoders_of(problem);
  for (size_t e = 0; e < kMostEncoders; ++e) {
    if (e >= encoders.size()) {
      choices.encoders[e].push_back({});
      continue;
    }
    choices.encoders[e] = EncoderLister(frame, *encoders[e], problem.workload.is_frozen(encoders[e]->kind),
                                        space.encoders.at(encoders[e]->kind), space.recompute.allows_full)
                              .list(frame.encoders[e]);
  }
  return choices;
}

std::vector<Placement> FrameChoices::placements() const {
  std::vector<Placement> found;
  for (const ScheduleChoice& schedule : schedules) {
    const Placement placement = kind_of(schedule.name).placement;
    if (std::find(found.begin(), found.end(), placement) == found.end()) found.push_back(placement);
  }
  return found;
}

std::vector<EncoderIndices> encoder_combinations(const FrameChoices& choices) {
  size_t count = 1;
  for (const auto& of_encoder : choices.encoders) count *= of_encoder.size();
  std::vector<EncoderIndices> combinations(count);
  for (size_t i = 0; i < count; ++i) {
    size_t rest = i;
    for (size_t e = kMostEncoders; e-- > 0;) {
      combinations[i][e] = rest % choices.encoders[e].size();
      rest /= choices.encoders[e].size();
    }
  }
  return combinations;
}

std::vector<Candidate> enumerate_candidates(const Candidate& frame, const FrameChoices& choices) {
  std::vector<Candidate> candidates;
  Candidate c = frame;
  for (const EncoderIndices& indices : encoder_combinations(choices)) {
    c.encoders = choices.encoders_at(indices);
    for (const ScheduleChoice& schedule : choices.schedules) {
      schedule.apply(c);
      for (const ZeroChoice& zero : choices.zeros) {
        zero.apply(c);
        candidates.push_back(c);
      }
    }
  }
  return candidates;
}

}  // namespace weft
