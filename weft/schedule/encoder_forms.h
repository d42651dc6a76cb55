#pragma once

#include <span>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/schedule/schedule.h"

namespace weft {

/// How an encoder's macro batches interleave with the pipeline.
enum class EncoderForm {
  kBefore,    ///< all EF before the pipeline, all EB after it
  kFill,      ///< inside the pipeline's bubbles
  kStream,    ///< on ranks of its own, a bounded number of macro batches ahead
  kOnDemand,  ///< EF right before the first microbatch that needs it, EB right after the last
};

/// "before", "fill", "stream", "on_demand", in the order of the enum.
std::span<const std::string> encoder_form_names();
const std::string& name_of(EncoderForm form);

/// Which macro batches the microbatches need.
/// Of an encoder in a step, on all its rows together: each is up to six actions and several entries of tables. Large
/// runs have some tens of thousands.
inline constexpr int64_t kMostMacroBatches = 4'000'000;

struct MacroRanges {
  int32_t num_macro_batches = 0;
  std::vector<int32_t> first_macro;
  std::vector<int32_t> end_macro;
};

struct MacroShape {
  int64_t microbatches = 1;
  int64_t mbs_scale = 1;
  int64_t mbs_parts = 1;  ///< the scale is mbs_scale / mbs_parts
  int64_t dp_encoder = 1;
  int64_t dp_llm = 1;
};

/// A macro batch covers mbs_scale / mbs_parts · dp_encoder / dp_llm microbatches, which need not be whole; the last may
/// be short.
/// The samples of a microbatch cancel out. The error names the number that is not positive, or mbs_scale where macro
/// batches are too many.
Result<MacroRanges> macro_ranges(const MacroShape& shape);

/// The pipeline's compute times as the filler sees them, one a stage, without transfers. B takes I and W together.
struct StageDurations {
  std::vector<double> forward_ms;
  std::vector<double> backward_input_ms;
  std::vector<double> backward_weight_ms;

  bool operator==(const StageDurations&) const = default;
};

/// An encoder to place, and its times where some encoder fills bubbles: one a group.
struct EncoderPlacement {
  EncoderForm form = EncoderForm::kBefore;
  ScheduledEncoder rows;
  std::vector<double> forward_ms = {};
  std::vector<double> backward_ms = {};  ///< without the forward that recompute_from_inputs adds

  bool operator==(const EncoderPlacement&) const = default;
};

/// The smallest live_macro_batches with which a pipeline's own order can run the encoder: what the entry stage needs at
/// once between reading embeddings and returning their gradients. The encoder's own stages add one each but the first.
int32_t least_live_macro_batches(const Schedule& pipeline, const ScheduledEncoder& encoder);

/// The compute-only schedule with EF and EB in its rows. Encoders of the forms before, fill and on_demand share
/// ranks with the pipeline; those of the form stream have ranks behind the pipeline's, whose rows are added.
/// `durations` are read only when some encoder fills. Deterministic, and never a deadlock. The error names the encoder
/// and the field.
Result<Schedule> place_encoders(const Schedule& pipeline, std::span<const EncoderPlacement> encoders,
                                const StageDurations& durations = {});

}  // namespace weft
