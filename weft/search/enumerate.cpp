#include "weft/search/enumerate.h"

#include <algorithm>

namespace weft {
namespace {

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> result;
  for (int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    result.push_back(d);
    if (d != number / d) result.push_back(number / d);
  }
  std::sort(result.begin(), result.end());
  return result;
}

int64_t num_experts(const Module& module) {
  int64_t experts = 1;
  for (const Block& kind : module.layer_kinds) {
    for (const Op& op : kind.ops) {
      if (const auto* matmul = std::get_if<Matmul>(&op.shape)) experts = std::max(experts, matmul->copies);
    }
  }
  return experts;
}

int64_t num_heads(const Module& module) {
  int64_t heads = INT64_MAX;
  for (const Block& kind : module.layer_kinds) {
    for (const Op& op : kind.ops) {
      if (const auto* attention = std::get_if<Attention>(&op.shape)) heads = std::min(heads, attention->heads);
    }
  }
  return heads;
}

bool has_encoders(const Plan& problem) {
  return problem.model.modules.size() > 1;
}

class DegreeLister {
 public:
  DegreeLister(const Plan& problem, const PlanSpace& space)
      : problem_(problem),
        space_(space),
        llm_(*problem.model.find(ModuleKind::kLlm)),
        world_(problem.world_size),
        experts_(num_experts(llm_)),
        heads_(num_heads(llm_)) {}

  std::vector<Candidate> list() {
    Candidate c;
    for (const int64_t tp : divisors(problem_.cluster.devices_per_node)) {
      if (!space_.tp.contains(tp) || tp > heads_ || world_ % tp != 0) continue;
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
        if (c.tp * ulysses > heads_) continue;
        c.cp_ulysses = ulysses;
        add_experts(c);
      }
    }
  }

  void add_experts(Candidate c) {
    for (const int64_t ep : divisors(experts_)) {
      if (!space_.ep.contains(ep) || (c.dp * c.cp) % ep != 0) continue;
      c.ep = ep;
      for (const bool rows_divided : {true, false}) {
        if (rows_divided && c.tp == 1) continue;
        if (c.tp > 1 && space_.sequence_parallel.value_or(rows_divided) != rows_divided) continue;
        c.sequence_parallel = rows_divided;
        add_batches(c);
      }
    }
  }

  void add_batches(Candidate c) {
    const int64_t batch = problem_.workload.global_batch_samples;
    if (batch % c.dp != 0) return;
    for (const int64_t mbs : divisors(batch / c.dp)) {
      if (!space_.mbs.contains(mbs)) continue;
      c.mbs = mbs;
      c.stages_are_neighbours = false;
      found_.push_back(c);
      // Which of the two lies inside only matters where both are there and nodes are crossed.
      if (c.pp > 1 && c.dp > 1 && problem_.cluster.nodes > 1) {
        c.stages_are_neighbours = true;
        found_.push_back(c);
      }
    }
  }

  const Plan& problem_;
  const PlanSpace& space_;
  const Module& llm_;
  int64_t world_;
  int64_t experts_;
  int64_t heads_;
  std::vector<Candidate> found_;
};

std::vector<EncoderChoice> encoder_choices(const Candidate& c, const Plan& problem, const PlanSpace& space) {
  if (!has_encoders(problem)) return {EncoderChoice{}};
  std::vector<EncoderChoice> choices;
  const EncoderSpace& encoders = space.encoders;
  if (encoders.allows_inline) choices.push_back({});
  if (!encoders.allows_colocated) return choices;
  for (const int64_t tp : divisors(c.tp)) {
    bool fits_heads = encoders.tp.contains(tp);
    for (const Module& module : problem.model.modules) fits_heads &= tp <= num_heads(module);
    if (!fits_heads) continue;
    for (const int64_t scale : {1, 2, 4, 8, 16}) {
      if (!encoders.mbs_scale.contains(scale)) continue;
      EncoderChoice choice{.is_inline = false, .tp = tp, .mbs_scale = scale};
      if (encoders.allows_before) {
        choices.push_back(choice);
        choice.recompute_from_inputs = true;
        choices.push_back(choice);
        choice.recompute_from_inputs = false;
      }
      choice.form = EncoderForm::kFill;
      if (encoders.allows_fill && c.pp > 1) choices.push_back(choice);
    }
  }
  return choices;
}

}  // namespace

std::vector<Candidate> enumerate_degrees(const Plan& problem, const PlanSpace& space) {
  return DegreeLister(problem, space).list();
}

std::vector<Candidate> enumerate_choices(const Candidate& degrees, const Plan& problem, const PlanSpace& space) {
  std::vector<Candidate> found;
  const auto layers = static_cast<int64_t>(problem.model.find(ModuleKind::kLlm)->layers.size());
  for (const EncoderChoice& encoders : encoder_choices(degrees, problem, space)) {
    for (const ScheduleName schedule : space.schedules) {
      // One stage has nothing to schedule: 1F1B stands for all.
      if (degrees.pp == 1 && schedule != space.schedules.front()) continue;
      const bool interleaves = schedule == ScheduleName::kInterleaved1f1b;
      for (int64_t vpp = 1; vpp <= 16; ++vpp) {
        const bool is_allowed = degrees.pp == 1 ? vpp == 1
                                : interleaves   ? vpp > 1 && space.vpp.contains(vpp) && degrees.pp * vpp <= layers
                                : schedule == ScheduleName::kZbV ? vpp == 2 && 2 * degrees.pp <= layers
                                                                 : vpp == 1;
        if (!is_allowed) continue;
        for (const int64_t zero : {0, 1, 2, 3}) {
          if (!space.zero.contains(zero) || (zero > 0 && degrees.dp * degrees.cp == 1)) continue;
          Candidate candidate = degrees;
          candidate.encoders = encoders;
          candidate.schedule = degrees.pp == 1 ? ScheduleName::k1f1b : schedule;
          candidate.vpp = vpp;
          candidate.zero = zero;
          found.push_back(candidate);
        }
      }
    }
  }
  return found;
}

}  // namespace weft
