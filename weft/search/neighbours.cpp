#include "weft/search/neighbours.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "weft/base/divisors.h"
#include "weft/base/hash.h"
#include "weft/meaning/expert_ranks.h"
#include "weft/meaning/weight_copies.h"
#include "weft/plan/head_limit.h"
#include "weft/program/adapter_ops.h"
#include "weft/schedule/schedule_kind.h"
#include "weft/search/enumerate.h"
#include "weft/spec/num_experts.h"

namespace weft {
namespace {

constexpr std::array<int64_t, 5> kFactors = {2, 3, 4, 8, 16};

class NeighbourLister {
 public:
  NeighbourLister(const Candidate& c, const Plan& problem, const PlanSpace& space)
      : c_(c),
        problem_(problem),
        space_(space),
        llm_(*problem.model.find(ModuleKind::kLlm)),
        heads_(head_limit(llm_)),
        experts_(num_experts(llm_)) {
    c_.balance = Balance::kNone;
  }

  std::vector<Candidate> list() {
    add_microbatches();
    add_zeros();
    for (size_t e = 0; e < problem_.modules.size() - 1; ++e) add_encoder(e);
    if (problem_.modules.size() > 2) add_all_encoders();
    add_experts();
    add_rows_and_orders();
    add_schedules();
    add_logits();
    add_degrees();
    return std::move(found_);
  }

  std::vector<Candidate> list_far() {
    const int64_t world = c_.num_ranks();
    for (const int64_t tp : divisors(problem_.cluster.devices_per_node)) {
      if (world % tp != 0) continue;
      for (const int64_t cp : divisors(world / tp)) {
        for (const int64_t pp : divisors(world / tp / cp)) {
          Candidate c = c_;
          c.tp = tp;
          c.cp = c.cp_ulysses = cp;
          c.pp = pp;
          c.dp = world / tp / cp / pp;
          c.sequence_parallel = space_.sequence_parallel.value_or(true);
          if (c_.pp == 1) c.schedule = space_.schedules.front();
          c.vpp = kind_of(c.schedule).fewest_chunks;
          for (c.mbs = 1; c.mbs * c.dp <= problem_.workload.global_batch_samples; c.mbs *= 2) add_with_zeros(c);
        }
      }
    }
    return std::move(found_);
  }

  bool is_allowed() const { return is_allowed(c_); }

 private:
  void add_with_zeros(Candidate c) {
    std::vector<EncoderChoices> starts = {c.encoders};
    for (const EncoderChoice& choice : plain_choices(c)) {
      EncoderChoices& start = starts.emplace_back(c.encoders);
      for (size_t e = 0; e < problem_.modules.size() - 1; ++e) {
        if (start[e].placement != ModulePlacement::kDisjoint) start[e] = choice;
      }
    }
    for (const EncoderChoices& start : starts) {
      c.encoders = start;
      for (const int64_t zero : {c_.zero, int64_t{1}, int64_t{3}}) {
        c.zero = zero;
        c.zero_keep_gathered = c_.zero_keep_gathered && may_keep_gathered(zero);
        add(c);
      }
    }
  }

  void add(Candidate c) {
    if (c.pp == 1) {
      c.vpp = 1;
      c.schedule = usual_schedule(c.vpp);
    }
    if (num_weight_copies(c) == 1) {
      c.zero = 0;
      c.zero_keep_gathered = false;
    }
    c.stages_are_neighbours &= has_two_orders(c);
    c.sequence_parallel &= c.tp > 1;
    c.cp_ulysses = heads_.largest_divisor(c.tp, std::gcd(c.cp, c.cp_ulysses));
    c.experts_over_tp &= c.sequence_parallel;
    c.ep = std::gcd(c.ep, num_expert_ranks(c));
    c.experts_over_tp &= c.ep > 1;
    for (EncoderChoice& e : c.encoders) fit(c, e);
    if (c == c_) return;
    if (is_allowed(c)) {
      keep(std::move(c));
    } else {
      keep_with_pins(std::move(c));
    }
  }

  void keep(Candidate c) {
    // Far from a candidate there are thousands.
    const size_t hash = hash_of(c);
    const auto [begin, end] = places_.equal_range(hash);
    if (std::any_of(begin, end, [&](const auto& entry) { return found_[entry.second] == c; })) return;
    places_.emplace(hash, found_.size());
    found_.push_back(c);
  }

  /// Settings that mean nothing to the candidate may be other than what is pinned. Where a change brings in what they
  /// are about, they take what the space has for them.
  void keep_with_pins(Candidate c) {
    const auto lacks = [](const auto& values, const auto& value) {
      return std::find(values.begin(), values.end(), value) == values.end();
    };
    if (has_two_orders(c) && !has_two_orders(c_))
      c.stages_are_neighbours = space_.stages_are_neighbours.value_or(c.stages_are_neighbours);
    if (c.tp > 1 && c_.tp == 1) c.sequence_parallel = space_.sequence_parallel.value_or(c.sequence_parallel);
    if (c.sequence_parallel && c.ep > 1 && (!c_.sequence_parallel || c_.ep == 1))
      c.experts_over_tp = space_.experts_over_tp.value_or(c.experts_over_tp);
    std::vector<ScheduleChoice> schedules = {{c.schedule, c.vpp}};
    if (c.pp > 1 && c_.pp == 1 && (lacks(space_.schedules, c.schedule) || !space_.vpp.contains(c.vpp)))
      schedules = schedules_of_space();
    std::vector<ZeroChoice> zeros = {{c.zero, c.zero_keep_gathered}};
    if (num_weight_copies(c) > 1 && num_weight_copies(c_) == 1 && !space_.zero.contains(c.zero))
      zeros = zeros_of_space();
    for (const ScheduleChoice& schedule : schedules) {
      for (const ZeroChoice& zero : zeros) {
        schedule.apply(c);
        zero.apply(c);
        if (is_allowed(c)) keep(c);
      }
    }
  }

  std::vector<ScheduleChoice> schedules_of_space() const {
    std::vector<ScheduleChoice> found;
    for (const ScheduleName schedule : space_.schedules) {
      const ScheduleKind& kind = kind_of(schedule);
      for (int64_t vpp = kind.fewest_chunks; vpp <= std::min(kMostChunks, kind.most_chunks); ++vpp) {
        if (space_.vpp.contains(vpp)) found.push_back({schedule, vpp});
      }
    }
    return found;
  }

  std::vector<ZeroChoice> zeros_of_space() const {
    std::vector<ZeroChoice> found;
    for (const ZeroSetting& zero : kZeroSettings) {
      if (space_.zero.contains(zero.stage)) found.push_back({zero.stage, zero.keep_gathered});
    }
    return found;
  }

  /// Of what tells most apart.
  static size_t hash_of(const Candidate& c) {
    Hasher hasher;
    for (const int64_t value : {c.tp, c.cp, c.cp_ulysses, c.ep, c.pp, c.vpp, c.dp, c.zero, c.mbs}) hasher.add(value);
    hasher.add(c.schedule);
    for (const EncoderChoice& e : c.encoders) {
      hasher.add(e.placement);
      hasher.add(e.form);
      for (const int64_t value : {e.tp, e.cp, e.mbs_scale, e.mbs_parts, e.ranks, e.stages}) hasher.add(value);
    }
    return hasher.value();
  }

  bool has_two_orders(const Candidate& c) const { return c.pp > 1 && c.dp > 1 && problem_.cluster.nodes > 1; }

  /// What an encoder can keep of its degrees.
  static void fit(const Candidate& c, EncoderChoice& e) {
    if (e.is_inline()) return;
    if (e.placement == ModulePlacement::kPartial) e.stages = std::gcd(e.stages, c.pp);
    if (e.placement == ModulePlacement::kPartial && e.stages == c.pp) e.placement = ModulePlacement::kColocated;
    if (e.form == EncoderForm::kFill && c.pp == 1) e.form = EncoderForm::kOnDemand;
    if (e.placement != ModulePlacement::kPartial) e.stages = 0;
    const int64_t room = e.placement == ModulePlacement::kDisjoint ? e.ranks : context_room(c);
    e.tp = std::gcd(e.tp, room);
    e.cp = std::gcd(e.cp, room / e.tp);
    e.sequence_parallel &= e.tp > 1;
    if (c.mbs * e.mbs_scale % e.mbs_parts != 0) e.mbs_parts = 1;
  }

  bool is_allowed(const Candidate& c) const {
    const int64_t batch = problem_.workload.global_batch_samples;
    const auto layers = static_cast<int64_t>(llm_.layers.size());
    if (problem_.cluster.devices_per_node % c.tp != 0 || c.tp > heads_.most_tp() || c.pp * c.vpp > layers) return false;
    if (batch % (c.dp * c.mbs) != 0) return false;
    if (c.pp * c.vpp * c.microbatches(batch) > space_.most_stage_microbatches) return false;
    const auto agrees = [](const std::optional<bool>& pinned, bool value) { return pinned.value_or(value) == value; };
    const bool has_llm = space_.tp.contains(c.tp) && space_.cp.contains(c.cp) && space_.pp.contains(c.pp) &&
                         space_.dp.contains(c.dp) && space_.cp_ulysses.contains(c.cp_ulysses) &&
                         space_.ep.contains(c.ep) && space_.mbs.contains(c.mbs);
    const bool has_schedule =
        c.pp == 1 || (space_.vpp.contains(c.vpp) && std::find(space_.schedules.begin(), space_.schedules.end(),
                                                              c.schedule) != space_.schedules.end());
    const bool has_zero = num_weight_copies(c) == 1 ||
                          (space_.zero.contains(c.zero) &&
                           (!may_keep_gathered(c.zero) || agrees(space_.zero_keep_gathered, c.zero_keep_gathered)));
    const bool has_rows = (c.tp == 1 || agrees(space_.sequence_parallel, c.sequence_parallel)) &&
                          (!has_two_orders(c) || agrees(space_.stages_are_neighbours, c.stages_are_neighbours)) &&
                          (!c.sequence_parallel || c.ep == 1 || agrees(space_.experts_over_tp, c.experts_over_tp));
    if (!has_llm || !has_schedule || !has_zero || !has_rows) return false;
    if (c.recompute_logits && (!space_.recompute.allows_logits || has_adapters(llm_.exit))) return false;
    for (size_t e = 0; e < problem_.modules.size() - 1; ++e) {
      if (!allows(problem_.model.modules[e], c.encoders[e])) return false;
    }
    return true;
  }

  bool allows(const Module& module, const EncoderChoice& e) const {
    const EncoderSpace& space = space_.encoders.at(module.kind);
    if (e.is_inline()) return space.allows_inline;
    const bool has_placement = e.placement == ModulePlacement::kColocated  ? space.allows_colocated
                               : e.placement == ModulePlacement::kDisjoint ? space.allows_disjoint
                                                                           : space.allows_partial;
    const bool has_form = e.form == EncoderForm::kBefore     ? space.allows_before
                          : e.form == EncoderForm::kFill     ? space.allows_fill
                          : e.form == EncoderForm::kOnDemand ? space.allows_on_demand
                                                             : true;
    const bool has_stages = e.placement != ModulePlacement::kPartial || space.stages.contains(e.stages);
    return has_placement && has_form && has_stages && space.tp.contains(e.tp) && e.tp <= head_limit(module).most_tp() &&
           space.cp.contains(e.cp) && space.mbs_scale.contains(e.mbs_scale) && space.mbs_parts.contains(e.mbs_parts) &&
           (e.form != EncoderForm::kBefore ||
            space.recompute_from_inputs.value_or(e.recompute_from_inputs) == e.recompute_from_inputs) &&
           (e.tp == 1 || space.sequence_parallel.value_or(e.sequence_parallel) == e.sequence_parallel) &&
           (e.zero == kUsualZero || (space.zero && space.zero->contains(e.zero)));
  }

  void add_microbatches() {
    for (const int64_t factor : {2, 4}) {
      Candidate c = c_;
      c.mbs *= factor;
      add(c);
      if (c_.mbs % factor != 0) continue;
      c.mbs = c_.mbs / factor;
      add(c);
    }
  }

  void add_zeros() {
    for (const ZeroSetting& zero : kZeroSettings) {
      Candidate c = c_;
      c.zero = zero.stage;
      c.zero_keep_gathered = zero.keep_gathered;
      add(c);
    }
  }

  void add_logits() {
    Candidate c = c_;
    c.recompute_logits = !c.recompute_logits;
    add(c);
    // What that leaves of memory may be enough for a larger microbatch.
    c.mbs *= 2;
    add(c);
  }

  void add_experts() {
    for (const int64_t ep : divisors(experts_)) {
      for (const bool over_tp : {false, true}) {
        Candidate c = c_;
        c.ep = ep;
        c.experts_over_tp = over_tp && c.sequence_parallel;
        add(c);
      }
    }
  }

  void add_rows_and_orders() {
    Candidate c = c_;
    c.sequence_parallel = !c.sequence_parallel;
    add(c);
    c = c_;
    c.stages_are_neighbours = !c.stages_are_neighbours;
    add(c);
    for (const int64_t ulysses : divisors(c_.cp)) {
      c = c_;
      c.cp_ulysses = ulysses;
      add(c);
    }
  }

  void add_schedules() {
    for (const ScheduleName schedule : space_.schedules) {
      const ScheduleKind& kind = kind_of(schedule);
      for (int64_t vpp = kind.fewest_chunks; vpp <= std::min(kMostChunks, kind.most_chunks); ++vpp) {
        Candidate c = c_;
        c.schedule = schedule;
        c.vpp = vpp;
        add(c);
        // What a schedule holds may need another stage.
        for (const int64_t zero : {1, 2, 3}) {
          c.zero = zero;
          c.zero_keep_gathered = false;
          add(c);
        }
      }
    }
  }

  /// A factor moves from one degree to another; where dp takes part, also with the samples of a microbatch on all ranks
  /// as they were. What dp holds more than the degree that gives may fit only without kept logits.
  void add_degrees() {
    constexpr std::array kDegrees = {&Candidate::tp, &Candidate::cp, &Candidate::pp, &Candidate::dp};
    for (int64_t Candidate::*const from : kDegrees) {
      for (int64_t Candidate::*const to : kDegrees) {
        for (const int64_t factor : kFactors) {
          if (from == to || c_.*from % factor != 0) continue;
          Candidate c = c_;
          c.*from /= factor;
          c.*to *= factor;
          if (to == &Candidate::tp && c_.tp == 1) c.sequence_parallel = space_.sequence_parallel.value_or(true);
          // Whatever cp was made of, it may become Ulysses alone.
          if (to == &Candidate::cp) c.cp_ulysses = c.cp;
          add(c);
          if (from == &Candidate::dp) c.mbs *= factor;
          if (to == &Candidate::dp && c.mbs % factor == 0) c.mbs /= factor;
          add(c);
          if (to != &Candidate::dp) continue;
          c.recompute_logits = true;
          add(c);
          // Without all-to-alls, what is left of cp may be a ring.
          c.cp_ulysses = 1;
          add(c);
        }
      }
    }
  }

  void add_encoder(size_t index) {
    const auto change = [&](auto&& how) {
      Candidate c = c_;
      how(c.encoders[index]);
      add(c);
    };
    const EncoderChoice& now = c_.encoders[index];
    if (now.placement != ModulePlacement::kDisjoint) add_placements(change, now);
    if (now.is_inline()) return;
    for (const int64_t factor : {2, 4}) {
      change([&](EncoderChoice& e) { e.tp *= factor; });
      change([&](EncoderChoice& e) { e.cp *= factor; });
      if (now.tp % factor == 0) change([&](EncoderChoice& e) { e.tp /= factor; });
      if (now.cp % factor == 0) change([&](EncoderChoice& e) { e.cp /= factor; });
    }
    change([](EncoderChoice& e) { e.sequence_parallel = !e.sequence_parallel; });
    for (const int64_t scale : {1, 2, 3, 4, 6, 8, 12, 16}) {
      for (const int64_t parts : {1, 2, 4, 8, 16}) {
        if (std::gcd(scale, parts) > 1 || c_.mbs * scale % parts != 0) continue;
        change([&](EncoderChoice& e) {
          e.mbs_scale = scale;
          e.mbs_parts = parts;
        });
      }
    }
    for (const ZeroSetting& zero : kZeroSettings) {
      change([&](EncoderChoice& e) {
        e.zero = zero.stage;
        e.zero_keep_gathered = zero.keep_gathered;
      });
    }
    if (problem_.workload.is_frozen(problem_.model.modules[index].kind)) return;
    change([](EncoderChoice& e) {
      e.recompute_from_inputs = !e.recompute_from_inputs;
      e.recompute_layers = 0;
    });
    if (!space_.recompute.allows_full) return;
    const auto layers = static_cast<int64_t>(problem_.model.modules[index].layers.size());
    const int64_t some = std::max<int64_t>(1, layers / 8);
    for (const int64_t count : {int64_t{0}, layers, now.recompute_layers - some, now.recompute_layers + some,
                                now.recompute_layers - 1, now.recompute_layers + 1}) {
      if (count < 0 || count > layers) continue;
      change([&](EncoderChoice& e) {
        e.recompute_layers = count;
        e.recompute_from_inputs &= count == 0;
      });
    }
  }

  /// Where one encoder alone gains nothing by another place, all of them together may.
  void add_all_encoders() {
    const auto add_all = [&](const EncoderChoice& choice) {
      Candidate c = c_;
      for (EncoderChoice& e : c.encoders) {
        if (e.placement != ModulePlacement::kDisjoint) e = choice;
      }
      add(c);
    };
    for (const EncoderChoice& choice : plain_choices(c_)) add_all(choice);
  }

  /// Ways to run encoders on the llm's ranks, to begin with. Samples with long tails may fit only where the ranks that
  /// share the llm's microbatches share those of encoders, too.
  static std::vector<EncoderChoice> plain_choices(const Candidate& c) {
    const EncoderChoice before{.placement = ModulePlacement::kColocated, .recompute_from_inputs = true};
    const EncoderChoice on_demand{.placement = ModulePlacement::kColocated, .form = EncoderForm::kOnDemand};
    EncoderChoice spread = before;
    spread.cp = c.tp * c.cp;
    return {EncoderChoice{}, before, on_demand, spread};
  }

  /// On the llm's ranks.
  template <typename Change>
  void add_placements(const Change& change, const EncoderChoice& now) {
    change([](EncoderChoice& e) { e = {}; });
    EncoderChoice beside = now;
    if (now.is_inline()) beside = {.placement = ModulePlacement::kColocated};
    for (const EncoderForm form : {EncoderForm::kBefore, EncoderForm::kOnDemand, EncoderForm::kFill}) {
      if (form == EncoderForm::kFill && c_.pp == 1) continue;
      beside.placement = ModulePlacement::kColocated;
      beside.form = form;
      beside.stages = 0;
      change([&](EncoderChoice& e) { e = beside; });
    }
    for (const int64_t stages : divisors(c_.pp)) {
      if (stages == c_.pp) continue;
      beside.placement = ModulePlacement::kPartial;
      beside.form = EncoderForm::kBefore;
      beside.stages = stages;
      change([&](EncoderChoice& e) { e = beside; });
    }
  }

  Candidate c_;
  const Plan& problem_;
  const PlanSpace& space_;
  const Module& llm_;
  HeadLimit heads_;
  int64_t experts_;
  std::vector<Candidate> found_;
  std::unordered_multimap<size_t, size_t> places_;  // in found_, by hash_of
};

}  // namespace

bool is_allowed(const Candidate& c, const Plan& problem, const PlanSpace& space) {
  return NeighbourLister(c, problem, space).is_allowed();
}

bool is_in(const Candidate& c, const Plan& problem, const PlanSpace& space) {
  if (!is_allowed(c, problem, space) || c.recompute_logits) return false;
  const FrameChoices choices = choices_of(c, problem, space);
  for (size_t e = 0; e < problem.modules.size() - 1; ++e) {
    const std::vector<EncoderChoice>& of_encoder = choices.encoders[e];
    if (std::find(of_encoder.begin(), of_encoder.end(), c.encoders[e]) == of_encoder.end()) return false;
  }
  return true;
}

std::vector<Candidate> far_from(const Candidate& c, const Plan& problem, const PlanSpace& space) {
  return NeighbourLister(c, problem, space).list_far();
}

std::vector<Candidate> neighbours_of(const Candidate& c, const Plan& problem, const PlanSpace& space) {
  return NeighbourLister(c, problem, space).list();
}

}  // namespace weft
