#include "weft/search/simplicity.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "weft/meaning/weight_copies.h"
#include "weft/schedule/schedule_kind.h"

namespace weft {
namespace {

/// A kind of parallelism, and whether a candidate uses it.
struct Kind {
  const char* name;
  bool (*is_used)(const Candidate& candidate, size_t num_encoders);
};

bool has_encoder_beside(const Candidate& c, size_t num_encoders) {
  return std::any_of(c.encoders.begin(), c.encoders.begin() + static_cast<ptrdiff_t>(num_encoders),
                     [](const EncoderChoice& e) { return !e.is_inline(); });
}

/// Data parallelism is the ordinary way to use devices and no kind that a plan could do without.
constexpr std::array<Kind, 7> kKinds = {{
    {"tensor parallelism", [](const Candidate& c, size_t) { return c.tp > 1; }},
    {"context parallelism", [](const Candidate& c, size_t) { return c.cp > 1; }},
    {"expert parallelism", [](const Candidate& c, size_t) { return c.ep > 1; }},
    {"pipeline", [](const Candidate& c, size_t) { return c.pp > 1; }},
    {"second chunk on a pipeline rank", [](const Candidate& c, size_t) { return c.vpp > 1; }},
    {"encoder beside the pipeline", has_encoder_beside},
    {"reassigning of samples", [](const Candidate& c, size_t) { return c.balance != Balance::kNone; }},
}};

int64_t extras_of(const EncoderChoice& e) {
  if (e.is_inline()) return 0;
  return (e.placement != ModulePlacement::kColocated ? 1 : 0) + (e.form != EncoderForm::kBefore ? 1 : 0) +
         (e.mbs_scale > 1 || e.mbs_parts > 1 ? 1 : 0) + (e.recompute_from_inputs || e.recompute_layers > 0 ? 1 : 0) +
         (e.cp > 1 ? 1 : 0) + (e.sequence_parallel ? 1 : 0) + (e.zero > 1 ? 1 : 0);
}

int64_t extras_of_llm(const Candidate& c) {
  const bool mixes_context = c.cp_ulysses > 1 && c.cp_ulysses < c.cp;
  return (kind_of(c.schedule).is_usual ? 0 : 1) + (mixes_context ? 1 : 0) + (c.zero_keep_gathered ? 1 : 0) +
         (c.stages_are_neighbours ? 1 : 0) + (c.experts_over_tp ? 1 : 0) + (c.recompute_logits ? 1 : 0);
}

}  // namespace

Simplicity simplicity_of(const Candidate& c, size_t num_encoders) {
  Simplicity simplicity{.cp = c.cp, .zero = c.zero, .extras = extras_of_llm(c)};
  for (const Kind& kind : kKinds) simplicity.kinds += kind.is_used(c, num_encoders) ? 1 : 0;
  for (size_t e = 0; e < num_encoders; ++e) simplicity.extras += extras_of(c.encoders[e]);
  return simplicity;
}

Simplicity least_simplicity(const Candidate& degrees, const PlanSpace& space) {
  Candidate c = degrees;
  c.vpp = 1;
  c.schedule = usual_schedule(c.vpp);
  c.zero = 0;
  c.zero_keep_gathered = false;
  while (c.zero < 3 && num_weight_copies(c) > 1 && !space.zero.contains(c.zero)) ++c.zero;
  // An encoder on ranks of its own is part of the degrees; what others could be at best is inline.
  return simplicity_of(c, kMostEncoders);
}

Simplicity least_simplicity(const Candidate& candidate, const FrameChoices& choices, size_t num_encoders) {
  Candidate c = candidate;
  c.vpp = 1;
  c.schedule = usual_schedule(c.vpp);
  c.zero_keep_gathered = false;
  c.zero = choices.zeros.front().zero;
  for (const ZeroChoice& zero : choices.zeros) c.zero = std::min(c.zero, zero.zero);
  return simplicity_of(c, num_encoders);
}

std::vector<std::string> what_is_simpler(const Candidate& simple, const Candidate& other, size_t num_encoders) {
  std::vector<std::string> reasons;
  for (const Kind& kind : kKinds) {
    if (!kind.is_used(simple, num_encoders) && kind.is_used(other, num_encoders))
      reasons.push_back(fmt::format("no {}", kind.name));
  }
  if (simple.cp > 1 && simple.cp < other.cp) reasons.push_back(fmt::format("cp {} instead of {}", simple.cp, other.cp));
  if (simple.zero < other.zero) reasons.push_back(fmt::format("ZeRO {} instead of {}", simple.zero, other.zero));
  if (!reasons.empty()) return reasons;
  if (extras_of_llm(simple) < extras_of_llm(other)) {
    if (simple.schedule != other.schedule)
      reasons.push_back(fmt::format("{} instead of {}", name_of(simple.schedule), name_of(other.schedule)));
    if (other.zero_keep_gathered) reasons.emplace_back("weights that are not kept gathered");
    if (other.stages_are_neighbours && !simple.stages_are_neighbours) reasons.emplace_back("ranks in the usual order");
    if (other.recompute_logits && !simple.recompute_logits) reasons.emplace_back("logits that are kept");
    if (other.cp_ulysses > 1 && other.cp_ulysses < other.cp) reasons.emplace_back("one form of context parallelism");
  }
  for (size_t e = 0; e < num_encoders; ++e) {
    if (extras_of(simple.encoders[e]) < extras_of(other.encoders[e])) {
      reasons.emplace_back("a plainer encoder");
      break;
    }
  }
  return reasons;
}

}  // namespace weft
