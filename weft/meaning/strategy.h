#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/document.h"
#include "weft/mesh/step.h"
#include "weft/program/strategy_entries.h"

namespace weft {

/// How much of a strategy is given: modes narrow the choices of one search.
enum class ShardMode {
  kData,      ///< every operator cuts samples
  kSemi,      ///< what is pinned stays, the rest is completed with the least redistribution
  kAuto,      ///< by the cost model, weights included
  kExplicit,  ///< all is pinned, and only checked and priced
};

/// How a strategy is looked for.
enum class ShardSearch {
  kExact,      ///< the best there is
  kRecursive,  ///< axis after axis, the one with the slowest link first
  kPropagate,  ///< from operators that are pinned to their neighbours
};

std::string_view name_of(ShardMode mode);
std::string_view name_of(ShardSearch search);
/// Also MindFormers' parallel_mode 0 to 2.
Result<ShardMode> parse_mode(const std::string& text, const std::string& source);
/// Also MindFormers' search_mode.
Result<ShardSearch> parse_search(const std::string& text, const std::string& source);

/// A strategy file as it is read: nothing of it has met a program yet.
struct StrategyFile {
  std::string source;
  std::vector<Axis> mesh;  ///< empty where it names none
  std::optional<ShardMode> mode;
  std::optional<ShardSearch> search;
  std::optional<double> memory_gib;
  bool full_batch = false;               ///< every rank reads whole batches
  std::vector<StrategyEntry> inputs;     ///< layouts of inputs and data
  std::vector<StrategyEntry> operators;  ///< pins
  std::vector<StrategyEntry> zero;       ///< stages of weights
  std::vector<StepKind> forbidden;
  std::vector<std::vector<int64_t>> layers;  ///< of parts of repeats that differ, see divide_repeats; empty: none do
  std::vector<std::string> program;          ///< "name: rule" of every operator of the program that it was made for
};

/// Unknown keys are rejected.
Result<StrategyFile> read_strategy(const Document& document);

/// "tp=8,dp=4": axes, innermost first.
Result<std::vector<Axis>> parse_mesh(const std::string& text);

/// Stages that a weight may have, by axis: the least and the most.
struct ZeroRange {
  int64_t least = 0;
  int64_t most = 3;
};

/// What narrows an operator's choices down, or a weight's.
struct ShardLimits {
  std::vector<std::vector<std::optional<Choice>>> pins;       ///< by operator and axis
  std::vector<std::vector<std::optional<AxisState>>> inputs;  ///< by value and axis, of inputs and data
  std::vector<std::vector<ZeroRange>> stages;                 ///< by value and axis, of weights
  std::vector<StepKind> forbidden;

  static ShardLimits none(const Program& program, size_t num_axes);
};

/// What a strategy means for a program: pins that its rules allow. Fails where it was made for another program, with
/// the first operator that differs; where a pattern fits nothing; where two patterns contradict each other.
Result<ShardLimits> limits_of(const StrategyFile& strategy, ShardMode mode, const Program& program,
                              const AxisGrid& grid);

/// The lines by which a program is told from others.
std::vector<std::string> signature_of(const Program& program);

/// The dim of samples: b, or else the first dim of the first data or input.
std::string sample_dim(const Program& program);

}  // namespace weft
