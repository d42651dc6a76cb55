#pragma once

#include <array>
#include <string>

#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/meaning/step_load.h"
#include "weft/plan/plan.h"
#include "weft/record/number_runs.h"
#include "weft/spec/sample_load.h"

namespace weft {

/// Numbers that the loads of one record may have together, half a GB: as many as 16 steps of four million tokens have.
inline constexpr int64_t kMostRecordedNumbers = 1 << 26;

/// A step's lengths and its routers' choices as a run writes them down: a StepLoad follows from it.
struct RecordedLoad {
  using MacroBatches = std::vector<std::optional<EncoderLoad>>;

  BatchAssignment assignment;
  std::vector<MediaRowCounts> media;             ///< by sample; empty where no encoder is beside the pipeline
  std::vector<std::vector<MicrobatchLoad>> llm;  ///< [data-parallel rank][microbatch]
  std::map<ModuleKind, std::vector<MacroBatches>> encoders;  ///< those beside the pipeline, [data-parallel rank]
  /// [router][place][microbatch][expert], see StepLoad; empty where ranks do not share experts.
  std::vector<std::vector<std::vector<std::vector<int64_t>>>> routed;
  bool balances_experts = false;

  StepLoad step_load() const;
};

Json to_json(const RecordedLoad& load);
/// The inverse. The error's field is a path inside the load.
Result<RecordedLoad> read_load(const Json& json, NumberBudget& budget);

/// Why a load is not one of a plan's batches, in words; nothing where it is one.
std::optional<std::string> find_misfit(const Plan& plan, const RecordedLoad& load);

/// The same of the samples that a step says it had. The load fits the plan, and there are as many samples as it has.
std::optional<std::string> find_other_lengths(const RecordedLoad& load, const std::vector<SampleLoad>& samples);

/// What one rank adds to a load: batches whose samples it has, and what its routers chose. Ranks may tell the same.
struct LoadPart {
  std::optional<int64_t> llm_rank;  ///< data-parallel, whose microbatches these are
  std::vector<MicrobatchLoad> microbatches;
  std::map<ModuleKind, std::pair<int64_t, RecordedLoad::MacroBatches>> encoders;  ///< with the data-parallel rank
  /// By router of the model, place in RankGroups::routed and microbatch: rows that chose each expert.
  std::map<std::array<int64_t, 3>, std::vector<int64_t>> routed;
};
Json to_json(const LoadPart& part);
Result<LoadPart> read_load_part(const Json& json);

/// Puts a part in its place. The load has its assignment.
void add_part(const LoadPart& part, RecordedLoad& load);

}  // namespace weft
