#include "weft/simulate/walk_memory.h"

#include <algorithm>

#include "weft/base/check.h"

namespace weft {
namespace {

class Walk {
 public:
  Walk(const Schedule& schedule, const std::vector<StageMemory>& stages,
       const std::vector<std::vector<EncoderMemory>>& encoders)
      : schedule_(schedule), stages_(stages), encoders_(encoders), peaks_(schedule.rows.size()) {
    for (size_t stage = 0; stage < stages.size(); ++stage)
      peaks_[static_cast<size_t>(schedule.rank_of_stage[stage])].static_bytes += stages[stage].static_bytes;
    for (size_t e = 0; e < encoders.size(); ++e) add_encoder(schedule.encoders[e], encoders[e]);
  }

  std::vector<PeakMemory> run() {
    for (size_t rank = 0; rank < schedule_.rows.size(); ++rank) walk(rank);
    return std::move(peaks_);
  }

 private:
  /// Weights and embeddings, which are there all the time as far as the row can tell.
  void add_encoder(const ScheduledEncoder& rows, const std::vector<EncoderMemory>& groups) {
    group_of_row_.emplace_back(schedule_.rows.size(), -1);
    for (size_t group = 0; group < rows.groups.size(); ++group) {
      const EncoderMemory& memory = groups[group];
      const int32_t alive = rows.keeps_activations()      ? 0
                            : rows.live_macro_batches > 0 ? std::min(rows.live_macro_batches, rows.num_macro_batches)
                                                          : rows.num_macro_batches;
      for (const int32_t row : rows.groups[group]) {
        group_of_row_.back()[static_cast<size_t>(row)] = static_cast<int32_t>(group);
        peaks_[static_cast<size_t>(row)].static_bytes += memory.static_bytes;
        peaks_[static_cast<size_t>(row)].activation_bytes += alive * memory.output_bytes;
      }
    }
  }

  void walk(size_t rank) {
    PeakMemory& peak = peaks_[rank];
    double held = peak.activation_bytes;
    for (const Action& action : schedule_.rows[rank]) {
      if (action.kind == ActionKind::kEncodeForward || action.kind == ActionKind::kEncodeBackward) {
        walk_encoder(rank, action, held);
        continue;
      }
      if (!is_pipeline_compute(action.kind)) continue;
      const StageMemory& stage = stages_[static_cast<size_t>(action.stage)];
      if (action.kind == ActionKind::kForward) held += stage.activation_bytes;
      note(peak, held, stage.workspace_bytes, stage.passing_bytes);
      if (action.kind == ActionKind::kBackward) held -= stage.activation_bytes;
      if (action.kind == ActionKind::kBackwardInput) held -= stage.freed_by_input_gradient_bytes;
      if (action.kind == ActionKind::kBackwardWeight)
        held -= stage.activation_bytes - stage.freed_by_input_gradient_bytes;
    }
  }

  void walk_encoder(size_t rank, const Action& action, double& held) {
    const auto encoder = static_cast<size_t>(action.stage);
    if (encoder >= encoders_.size()) return;
    const EncoderMemory& memory = encoders_[encoder][static_cast<size_t>(group_of_row_[encoder][rank])];
    const bool keeps = schedule_.encoders[encoder].keeps_activations();
    const bool is_forward = action.kind == ActionKind::kEncodeForward;
    // Where activations are not kept, they are there while the action runs.
    if (keeps && is_forward) held += memory.activation_bytes;
    note(peaks_[rank], held, memory.workspace_bytes + (keeps ? 0 : memory.activation_bytes), memory.passing_bytes);
    if (keeps && !is_forward) held -= memory.activation_bytes;
  }

  static void note(PeakMemory& peak, double held, double workspace, double passing) {
    const PeakMemory now{peak.static_bytes, held, workspace, passing};
    if (now.total_bytes() > peak.total_bytes()) peak = now;
  }

  const Schedule& schedule_;
  const std::vector<StageMemory>& stages_;
  const std::vector<std::vector<EncoderMemory>>& encoders_;
  std::vector<std::vector<int32_t>> group_of_row_;  // by encoder
  std::vector<PeakMemory> peaks_;
};

}  // namespace

std::vector<PeakMemory> walk_memory(const Schedule& schedule, const std::vector<StageMemory>& stages,
                                    const std::vector<std::vector<EncoderMemory>>& encoders) {
  WEFT_CHECK(stages.size() == static_cast<size_t>(schedule.num_stages()), "{} stages, but memory for {}",
             schedule.num_stages(), stages.size());
  return Walk(schedule, stages, encoders).run();
}

std::vector<double> peak_memory_bytes(const Schedule& schedule, const std::vector<StageMemory>& stages) {
  std::vector<double> totals;
  for (const PeakMemory& peak : walk_memory(schedule, stages)) totals.push_back(peak.total_bytes());
  return totals;
}

}  // namespace weft
