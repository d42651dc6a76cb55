#pragma once

#include "tests/support/pipeline/example_training.h"
#include "weft/pipeline/batch_load.h"

// A step's batch as predictions of it take it.
namespace weft {

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
      for (const std::vector<int64_t>& indices : macro_batches) loads.push_back(encoder_load(kind, pack(indices)));
    }
  }
  for (const auto& microbatches : batch.assignment.llm) {
    auto& loads = load.llm.emplace_back();
    for (const std::vector<int64_t>& indices : microbatches) {
      loads.push_back(microbatch_load(pack(indices), load.beside.contains(ModuleKind::kVision),
                                      load.beside.contains(ModuleKind::kAudio)));
    }
  }
  load.balances_experts = rank.numbers().llm.balance_coefficient > 0;
  return load;
}

}  // namespace weft
