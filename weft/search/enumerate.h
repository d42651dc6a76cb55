#pragma once

#include <vector>

#include "weft/search/candidate.h"
#include "weft/search/plan_space.h"

namespace weft {

/// The degrees, micro-batches and orders of the llm in a space: candidates whose schedule, ZeRO stage and encoders are
/// still open, but for the ranks that encoders have of their own.
std::vector<Candidate> enumerate_frames(const Plan& problem, const PlanSpace& space);

/// The neighbouring ranks among which an encoder on the llm's ranks may spread rows: those of one pipeline rank.
int64_t context_room(const Candidate& frame);

/// A schedule with its chunks.
struct ScheduleChoice {
  ScheduleName name = ScheduleName::k1f1b;
  int64_t vpp = 1;

  void apply(Candidate& c) const {
    c.schedule = name;
    c.vpp = vpp;
  }
};

struct ZeroChoice {
  int64_t zero = 0;
  bool keeps_gathered = false;

  void apply(Candidate& c) const {
    c.zero = zero;
    c.zero_keep_gathered = keeps_gathered;
  }
};

/// One choice for each encoder, by its place in FrameChoices::encoders.
using EncoderIndices = std::array<size_t, kMostEncoders>;

/// What is left to choose for a frame: every combination of these is a candidate.
struct FrameChoices {
  std::vector<ScheduleChoice> schedules;
  std::vector<ZeroChoice> zeros;
  std::array<std::vector<EncoderChoice>, kMostEncoders> encoders;  ///< one choice for encoders that are not there

  int64_t size() const {
    size_t product = schedules.size() * zeros.size();
    for (const auto& choices : encoders) product *= choices.size();
    return static_cast<int64_t>(product);
  }
  /// Those of the schedules, each once.
  std::vector<Placement> placements() const;
  EncoderChoices encoders_at(const EncoderIndices& indices) const {
    EncoderChoices chosen;
    for (size_t e = 0; e < kMostEncoders; ++e) chosen[e] = encoders[e][indices[e]];
    return chosen;
  }
};
FrameChoices choices_of(const Candidate& frame, const Plan& problem, const PlanSpace& space);
/// Of the llm alone, without encoders' choices.
FrameChoices llm_choices_of(const Candidate& frame, const Plan& problem, const PlanSpace& space);

/// Every combination of the encoders' choices, the last encoder's changing fastest.
std::vector<EncoderIndices> encoder_combinations(const FrameChoices& choices);

/// The candidates of a frame. Frames can have very many.
std::vector<Candidate> enumerate_candidates(const Candidate& frame, const FrameChoices& choices);

}  // namespace weft
