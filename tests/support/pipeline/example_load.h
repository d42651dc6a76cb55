#pragma once

#include "tests/support/pipeline/example_training.h"
#include "weft/meaning/step_load.h"

// A step's batch as predictions of it take it.
namespace weft {

inline std::vector<int64_t> listed(const at::Tensor& numbers) {
  if (!numbers.defined()) return {};
  const at::Tensor here = numbers.cpu().contiguous();
  return {here.data_ptr<int64_t>(), here.data_ptr<int64_t>() + here.numel()};
}

inline EncoderLoad load_of(const VisionInputs& inputs) {
  return {.segments = inputs.frames.lengths(),
          .windows = inputs.windows.lengths(),
          .order = listed(inputs.output_order),
          .pairs = {}};
}

inline EncoderLoad load_of(const AudioInputs& inputs) {
  return {.segments = inputs.chunks.lengths(),
          .windows = {},
          .order = {},
          .pairs = listed(inputs.pooled_rows),
          .frames = inputs.frames.size(0)};
}

inline std::optional<EncoderLoad> load_of(ModuleKind kind, const Inputs& inputs) {
  if (kind == ModuleKind::kVision && inputs.vision) return load_of(*inputs.vision);
  if (kind == ModuleKind::kAudio && inputs.audio) return load_of(*inputs.audio);
  return std::nullopt;
}

/// Of all ranks, but for what routers choose. `batch` is any rank's share of the samples.
inline StepLoad example_load(const TrainingRank& rank, const std::vector<RawInputs>& samples, const StepBatch& batch) {
  StepLoad load;
  const auto pack = [&](const std::vector<int64_t>& indices) {
    std::vector<RawInputs> packed;
    for (const int64_t index : indices) packed.push_back(samples[static_cast<size_t>(index)]);
    return packed.empty() ? Inputs()
                          : packed_example(rank.numbers(), rank.vocabulary(), packed,
                                           c10::typeMetaToScalarType(rank.options().dtype()));
  };
  load.samples = batch.assignment.llm;
  for (const auto& [kind, shares] : batch.assignment.encoders) {
    BesideLoad& beside = load.beside[kind];
    beside.numbers = RowNumbers(kind, shares, batch.media);
    for (const auto& macro_batches : shares) {
      auto& loads = beside.macro_batches.emplace_back();
      for (const std::vector<int64_t>& indices : macro_batches) loads.push_back(load_of(kind, pack(indices)));
    }
  }
  for (const auto& microbatches : batch.assignment.llm) {
    auto& loads = load.llm.emplace_back();
    for (const std::vector<int64_t>& indices : microbatches) {
      const Inputs inputs = pack(indices);
      MicrobatchLoad& microbatch = loads.emplace_back();
      microbatch.samples = inputs.samples.lengths();
      microbatch.targets = listed(inputs.target_rows);
      microbatch.places = {{ModuleKind::kVision, listed(inputs.vision_places)},
                           {ModuleKind::kAudio, listed(inputs.audio_places)}};
      for (const ModuleKind kind : {ModuleKind::kVision, ModuleKind::kAudio}) {
        if (load.beside.contains(kind)) continue;
        if (const auto media = load_of(kind, inputs)) microbatch.media[kind] = *media;
      }
    }
  }
  load.balances_experts = rank.numbers().text.balance_coefficient > 0;
  return load;
}

}  // namespace weft
