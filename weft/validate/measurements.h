#pragma once

#include <filesystem>
#include <string_view>

#include "weft/validate/training_run.h"

namespace weft {

/// Reads a table of measured runs: comma-separated, a header first. Its columns, in any order, are num_gpus,
/// global_batch, micro_batch, hidden_size, num_heads, num_layers, sequence_length, tp, dp, pp and iteration_ms, and,
/// where a run is not as usual, recompute (none, selective, full; full if missing), zero (0), vpp (1),
/// sequence_parallel (true or false; false), attention (fused or unfused; unfused) and vocab_size (51200).
Result<std::vector<TrainingRun>> parse_measurements(std::string_view text, const std::string& source);
Result<std::vector<TrainingRun>> read_measurements(const std::filesystem::path& path);

}  // namespace weft
