#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/document.h"
#include "weft/shard/shard_search.h"

namespace weft {

/// How much of a strategy is given: modes narrow the choices of one search.
enum class ShardMode {
  kData,      ///< every operator cuts samples
  kSemi,      ///< what is pinned stays, the rest is completed with the least redistribution
  kAuto,      ///< by the cost model, weights included
  kExplicit,  ///< all is pinned, and only checked and priced
};

std::string_view name_of(ShardMode mode);
/// Also MindFormers' parallel_mode 0 to 2.
Result<ShardMode> parse_mode(const std::string& text, const std::string& source);
/// Also MindFormers' search_mode.
Result<ShardSearch> parse_search(const std::string& text, const std::string& source);

/// For operators, inputs or weights whose names fit a pattern: a word for each axis. '*' stands for any letters. The
/// axis
/// "" is the first, for PyTorch's words, which name none.
struct StrategyEntry {
  std::string pattern;
  std::vector<std::pair<std::string, std::string>> words;  ///< axis and word
};

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
  std::vector<std::string> program;  ///< "name: rule" of every operator of the program that it was made for
};

/// Unknown keys are rejected.
Result<StrategyFile> read_strategy(const Document& document);

/// "tp=8,dp=4": axes, innermost first.
Result<std::vector<Axis>> parse_mesh(const std::string& text);

/// What a strategy means for a program: pins that its rules allow. Fails where it was made for another program, with
/// the first operator that differs; where a pattern fits nothing; where two patterns contradict each other.
Result<ShardLimits> limits_of(const StrategyFile& strategy, ShardMode mode, const Program& program,
                              const AxisGrid& grid);

/// The lines by which a program is told from others.
std::vector<std::string> signature_of(const Program& program);

/// A found strategy as a file that reads back to it. Layers that differ are written as most of them are, with a
/// comment.
std::string strategy_text(const ShardProblem& problem, const ShardAssignment& assignment);

/// The dim of samples: b, or else the first dim of the first data or input.
std::string sample_dim(const Program& program);

bool matches(std::string_view pattern, std::string_view name);

}  // namespace weft
