#include "weft/schedule/encoder_forms.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/schedule/encoder_before.h"
#include "weft/schedule/encoder_checks.h"
#include "weft/schedule/encoder_on_demand.h"
#include "weft/schedule/fill_bubbles.h"

namespace weft {
namespace {

/// One encoder's order through its own stages: `warm_up` forwards, then a backward for every forward, then the rest.
std::vector<Action> one_forward_one_backward(int32_t encoder, int32_t num_macro_batches, int32_t warm_up) {
  std::vector<Action> actions;
  for (int32_t k = 0; k < num_macro_batches + warm_up; ++k) {
    if (k >= warm_up) actions.push_back({ActionKind::kEncodeBackward, encoder, k - warm_up});
    if (k < num_macro_batches) actions.push_back({ActionKind::kEncodeForward, encoder, k});
  }
  return actions;
}

void add_stream(Schedule& schedule, int32_t index) {
  const ScheduledEncoder& encoder = schedule.encoders[static_cast<size_t>(index)];
  const int32_t num_macro = encoder.num_macro_batches;
  const int32_t ahead = encoder.live_macro_batches > 0 ? encoder.live_macro_batches : num_macro + encoder.num_stages;
  for (int32_t g = 0; g < encoder.num_groups(); ++g) {
    const int32_t warm_up = std::min(ahead - g % encoder.num_stages, num_macro);
    const auto actions = encoder.is_trained ? one_forward_one_backward(index, num_macro, warm_up)
                                            : all_macro_batches(ActionKind::kEncodeForward, index, num_macro);
    for (const int32_t rank : encoder.groups[static_cast<size_t>(g)]) {
      const auto r = static_cast<size_t>(rank);
      if (schedule.rows.size() <= r) schedule.rows.resize(r + 1);
      schedule.rows[r] = actions;
    }
  }
}

/// Streams have each a rank for itself, and together the ranks behind the pipeline's without a gap.
std::optional<Error> check_stream_ranks(const Schedule& pipeline, std::span<const EncoderPlacement> encoders) {
  std::set<int32_t> taken;
  for (const EncoderPlacement& encoder : encoders) {
    if (encoder.form != EncoderForm::kStream) continue;
    for (const auto& group : encoder.rows.groups) {
      for (const int32_t rank : group) {
        if (taken.insert(rank).second) continue;
        return Error{.source = encoder.rows.name,
                     .field = "groups",
                     .problem = fmt::format("rank {} streams another encoder already", rank)};
      }
    }
  }
  const auto num_ranks = static_cast<size_t>(pipeline.num_ranks()) + taken.size();
  if (taken.empty() || static_cast<size_t>(*taken.rbegin()) < num_ranks) return std::nullopt;
  return Error{.source = "groups",
               .problem = fmt::format("rank {} streams, but with the pipeline there are only {} ranks", *taken.rbegin(),
                                      num_ranks),
               .advice = "Number the ranks of streams from the pipeline's on, without gaps."};
}

}  // namespace

std::span<const std::string> encoder_form_names() {
  static const std::array<std::string, 4> names = {"before", "fill", "stream", "on_demand"};
  return names;
}

const std::string& name_of(EncoderForm form) {
  return encoder_form_names()[static_cast<size_t>(form)];
}

Result<MacroRanges> macro_ranges(const MacroShape& shape) {
  constexpr int64_t kMost = 1'000'000;
  for (const auto& [name, value] : {std::pair{"microbatches", shape.microbatches},
                                    {"mbs_scale", shape.mbs_scale},
                                    {"mbs_parts", shape.mbs_parts},
                                    {"dp_encoder", shape.dp_encoder},
                                    {"dp_llm", shape.dp_llm}}) {
    if (value < 1 || value > kMost) {
      return Error{.source = name,
                   .problem = fmt::format("is {}, a whole number from 1 to {} is needed", value, kMost)};
    }
  }
  // Counted in mbs / mbs_parts samples.
  const int64_t macro = shape.mbs_scale * shape.dp_encoder, micro = shape.mbs_parts * shape.dp_llm;
  if (const int64_t count = (shape.microbatches * micro + macro - 1) / macro; count > kMostMacroBatches) {
    return Error{.source = "mbs_scale",
                 .problem = fmt::format("makes {} macro batches a step, at most {} are allowed; use a larger one",
                                        with_commas(count), with_commas(kMostMacroBatches))};
  }
  const auto macros_until = [&](int64_t samples) { return static_cast<int32_t>((samples + macro - 1) / macro); };
  MacroRanges ranges{.num_macro_batches = macros_until(shape.microbatches * micro), .first_macro = {}, .end_macro = {}};
  for (int64_t m = 0; m < shape.microbatches; ++m) {
    ranges.first_macro.push_back(static_cast<int32_t>(m * micro / macro));
    ranges.end_macro.push_back(macros_until((m + 1) * micro));
  }
  return ranges;
}

int32_t least_live_macro_batches(const Schedule& pipeline, const ScheduledEncoder& encoder) {
  const auto num_macro = static_cast<size_t>(encoder.num_macro_batches);
  std::vector<int32_t> uses_left(num_macro, 0);
  std::vector<bool> is_live(num_macro, false);
  const auto for_needed = [&](int32_t microbatch, auto visit) {
    const auto m = static_cast<size_t>(microbatch);
    for (int32_t k = encoder.first_macro[m]; k < encoder.end_macro[m]; ++k) visit(static_cast<size_t>(k));
  };
  for (int32_t m = 0; m < pipeline.num_microbatches; ++m) for_needed(m, [&](size_t k) { ++uses_left[k]; });
  int32_t live = 0, most = 0;
  for (const Action& action : pipeline.rows[static_cast<size_t>(pipeline.entry_rank())]) {
    if (action.stage != pipeline.entry_stage || is_encoder(action.kind)) continue;
    const bool is_forward = action.kind == ActionKind::kForward;
    if (is_forward) {
      for_needed(action.microbatch, [&](size_t k) {
        if (!is_live[k]) most = std::max(most, ++live);
        is_live[k] = true;
      });
    }
    const bool releases = encoder.keeps_activations() ? makes_gradient(action.kind) : is_forward;
    if (releases) for_needed(action.microbatch, [&](size_t k) { live -= --uses_left[k] == 0 ? 1 : 0; });
  }
  return most;
}

Result<Schedule> place_encoders(const Schedule& pipeline, std::span<const EncoderPlacement> encoders,
                                const StageDurations& durations) {
  for (const EncoderPlacement& encoder : encoders) {
    if (auto error = check_placement(pipeline, encoder)) return *error;
  }
  if (auto error = check_stream_ranks(pipeline, encoders)) return *error;
  Schedule schedule = pipeline;
  std::vector<int32_t> before, filling, on_demand;
  for (const EncoderPlacement& encoder : encoders) {
    const auto index = static_cast<int32_t>(schedule.encoders.size());
    schedule.encoders.push_back(encoder.rows);
    if (encoder.form == EncoderForm::kBefore) before.push_back(index);
    if (encoder.form == EncoderForm::kFill) filling.push_back(index);
    if (encoder.form == EncoderForm::kOnDemand) on_demand.push_back(index);
  }
  add_on_demand(schedule, on_demand);
  for (size_t e = 0; e < encoders.size(); ++e) {
    if (encoders[e].form == EncoderForm::kStream) add_stream(schedule, static_cast<int32_t>(e));
  }
  add_before(schedule, before);
  if (filling.empty()) return schedule;
  if (auto error = check_durations(pipeline, encoders, durations)) return *error;
  return fill_bubbles(schedule, filling, encoders, durations);
}

}  // namespace weft
