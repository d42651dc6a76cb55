#include "weft/schedule/encoder_checks.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

namespace weft {
namespace {

Error wrong(const ScheduledEncoder& encoder, std::string field, std::string problem, std::string advice = "") {
  return {
      .source = encoder.name, .field = std::move(field), .problem = std::move(problem), .advice = std::move(advice)};
}

std::optional<Error> check_groups(const Schedule& pipeline, const EncoderPlacement& placement) {
  const ScheduledEncoder& encoder = placement.rows;
  const bool is_stream = placement.form == EncoderForm::kStream;
  if (encoder.num_stages < 1 || encoder.groups.empty() || encoder.num_groups() % encoder.num_stages != 0) {
    return wrong(encoder, "groups",
                 fmt::format("there are {} groups for {} stages", encoder.groups.size(), encoder.num_stages),
                 "Every replica has one group a stage.");
  }
  if (!is_stream && encoder.num_stages > 1) {
    return wrong(encoder, "pp",
                 fmt::format("is {}, but an encoder on the pipeline's ranks has pp 1", encoder.num_stages),
                 "Use the form stream on ranks of its own.");
  }
  std::set<int32_t> seen;
  for (const auto& group : encoder.groups) {
    if (group.empty()) return wrong(encoder, "groups", "a group has no ranks");
    for (const int32_t rank : group) {
      if (!seen.insert(rank).second) return wrong(encoder, "groups", fmt::format("rank {} comes twice", rank));
      const bool is_pipeline_rank = rank >= 0 && rank < pipeline.num_ranks();
      if (rank < 0 || is_pipeline_rank == is_stream) {
        return wrong(encoder, "groups",
                     fmt::format("rank {} {} one of the pipeline's {} ranks", rank, is_pipeline_rank ? "is" : "is not",
                                 pipeline.num_ranks()),
                     is_stream ? "The form stream is for ranks of its own."
                               : "The forms before, fill and on_demand share the pipeline's ranks.");
      }
    }
  }
  return std::nullopt;
}

/// Macro batches are made in their order, so microbatches must need them in that order, and leave none out.
std::optional<Error> check_ranges(const Schedule& pipeline, const ScheduledEncoder& encoder) {
  const auto num_microbatches = static_cast<size_t>(pipeline.num_microbatches);
  if (encoder.first_macro.size() != num_microbatches || encoder.end_macro.size() != num_microbatches) {
    return wrong(
        encoder, "first_macro",
        fmt::format("has {} entries, but there are {} microbatches", encoder.first_macro.size(), num_microbatches));
  }
  int32_t covered = 0;
  for (size_t m = 0; m < num_microbatches; ++m) {
    const int32_t first = encoder.first_macro[m], end = encoder.end_macro[m];
    const bool goes_back = m > 0 && (first < encoder.first_macro[m - 1] || end < encoder.end_macro[m - 1]);
    if (first < 0 || first > end || first > covered || goes_back) {
      return wrong(encoder, "first_macro",
                   fmt::format("microbatch {} needs macro batches {} to {}, out of order", m, first, end));
    }
    covered = std::max(covered, end);
  }
  if (covered == encoder.num_macro_batches) return std::nullopt;
  return wrong(encoder, "num_macro_batches",
               fmt::format("is {}, but microbatches need {}", encoder.num_macro_batches, covered));
}

/// Macro batches go through the encoder in their order, so the entry stage must read them and return gradients in it.
std::optional<Error> check_order(const Schedule& pipeline) {
  int32_t last_forward = -1, last_gradient = -1;
  for (const Action& action : pipeline.rows[static_cast<size_t>(pipeline.entry_rank())]) {
    const bool is_forward = action.kind == ActionKind::kForward;
    if (action.stage != pipeline.entry_stage || (!is_forward && !makes_gradient(action.kind))) continue;
    int32_t& last = is_forward ? last_forward : last_gradient;
    if (action.microbatch < last) {
      return Error{
          .source = "schedule",
          .problem = fmt::format("stage {} runs {} after microbatch {}", pipeline.entry_stage, to_text(action), last),
          .advice = "Encoders need microbatches in their order."};
    }
    last = action.microbatch;
  }
  return std::nullopt;
}

std::optional<Error> check_live(const Schedule& pipeline, const EncoderPlacement& placement) {
  const ScheduledEncoder& encoder = placement.rows;
  if (encoder.live_macro_batches == 0) return std::nullopt;
  const bool is_before = placement.form == EncoderForm::kBefore;
  // The rows of a stream alternate EF and EB, whether activations are kept or not.
  ScheduledEncoder ordered = encoder;
  if (placement.form == EncoderForm::kStream) ordered.recompute_from_inputs = false;
  const int32_t for_stages = ordered.keeps_activations() ? encoder.num_stages - 1 : 0;
  const int32_t least =
      is_before ? encoder.num_macro_batches : least_live_macro_batches(pipeline, ordered) + for_stages;
  if (encoder.live_macro_batches >= least) return std::nullopt;
  return wrong(encoder, "live_macro_batches",
               fmt::format("is {}, but {} are alive at once in this {}", encoder.live_macro_batches, least,
                           is_before ? "form" : "pipeline's order"),
               "Raise it, or set it to 0 for no bound.");
}

bool are_times(const std::vector<double>& times, size_t count) {
  return times.size() == count &&
         std::all_of(times.begin(), times.end(), [](double t) { return std::isfinite(t) && t >= 0; });
}

}  // namespace

std::optional<Error> check_placement(const Schedule& pipeline, const EncoderPlacement& encoder) {
  if (auto error = check_groups(pipeline, encoder)) return error;
  if (auto error = check_ranges(pipeline, encoder.rows)) return error;
  if (auto error = check_order(pipeline)) return error;
  return check_live(pipeline, encoder);
}

std::optional<Error> check_durations(const Schedule& pipeline, std::span<const EncoderPlacement> encoders,
                                     const StageDurations& durations) {
  const auto stages = static_cast<size_t>(pipeline.num_stages());
  if (!are_times(durations.forward_ms, stages) || !are_times(durations.backward_input_ms, stages) ||
      !are_times(durations.backward_weight_ms, stages)) {
    return Error{.source = "durations",
                 .problem = fmt::format("filling bubbles needs a time for each of {} stages", stages)};
  }
  for (const EncoderPlacement& encoder : encoders) {
    const size_t groups = encoder.rows.groups.size();
    if (!are_times(encoder.forward_ms, groups) ||
        (encoder.rows.is_trained && !are_times(encoder.backward_ms, groups))) {
      return wrong(encoder.rows, "forward_ms",
                   fmt::format("filling bubbles needs a time for each of {} groups", groups));
    }
  }
  return std::nullopt;
}

}  // namespace weft
