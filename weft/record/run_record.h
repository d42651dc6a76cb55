#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/document.h"
#include "weft/plan/plan.h"
#include "weft/record/recorded_load.h"
#include "weft/schedule/timeline.h"
#include "weft/spec/sample_load.h"

namespace weft {

/// One rank's part of a step.
struct RecordedRank {
  double peak_bytes = 0;              ///< of tensors; on a GPU, what its allocator handed out
  std::vector<TimelineEvent> events;  ///< from the step's beginning
};

/// A step that a run wrote down, to be held against its prediction.
struct StepRecord {
  int64_t step = 0;          ///< steps done with it
  int64_t steps_before = 0;  ///< that the same process did before: the first warms up
  double step_ms = 0;
  std::vector<RecordedRank> ranks;
  std::vector<SampleLoad> samples;   ///< of the batch, in its order
  std::optional<RecordedLoad> load;  ///< nothing where it would be large
  bool load_is_too_large = false;    ///< it was written down, but is beyond what is read of a record
};

/// What a run says of itself before its first step.
struct RunHeader {
  std::string software;     ///< "weft 0.9"
  std::string device;       ///< "cpu" or "cuda"
  std::string device_name;  ///< "NVIDIA H200", or the processor's; may be empty
  std::string date;         ///< of its beginning
  int64_t threads_per_rank = 1;
  int64_t ranks_here = 1;  ///< on the host of rank 0
  int64_t cores = 0;       ///< that these share; 0 where the device is no CPU
  std::string plan;        ///< `work_hash` of the plan that the steps after this line follow; empty in older files
};

/// The steps.jsonl of a run folder.
struct RunRecord {
  std::string source;
  RunHeader header;
  std::vector<StepRecord> steps;     ///< rising; by the plan that the run went by last
  int64_t num_other_plan_steps = 0;  ///< steps that were written down before, by other plans
};

/// Whether a field of a plan says nothing of what ranks do in a step: what was predicted, and from what.
bool is_of_prediction(std::string_view field);
/// A hash of all other fields: steps of plans with equal hashes are held against one prediction.
std::string work_hash(const Plan& plan);

/// A line each, with its end.
std::string to_line(const RunHeader& header);
std::string to_line(const StepRecord& step);

/// Every line is sealed: one that was cut off or changed is an error that names it.
Result<RunRecord> parse_run_record(std::string_view text, std::string source);
/// A folder without the file, or with none of a step, is an error with what to do.
Result<RunRecord> read_run_record(const std::filesystem::path& run_folder);

inline constexpr const char* kRunRecordName = "steps.jsonl";

/// Removes the steps after `step`, which will be done again, and lines that are not whole.
std::string rewound(std::string_view text, int64_t step);

/// Whether the step after so many of a run is written down: 16, evenly over the run, and the last; fewer where a step
/// has very many events.
bool is_recorded(int64_t steps_done, int64_t num_steps, int64_t events_per_step);

}  // namespace weft
