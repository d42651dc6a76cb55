#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/fields.h"
#include "weft/program/program.h"

namespace weft {

/// For operators, inputs or weights whose names fit a pattern: a word for each axis. '*' stands for any letters. The
/// axis "" is that of tensor parallelism, or the first: for PyTorch's words, which name none.
struct StrategyEntry {
  std::string pattern;
  std::vector<std::pair<std::string, std::string>> words;  ///< axis and word

  bool operator==(const StrategyEntry&) const = default;
};

/// {pattern: {axis: word}} or {pattern: word}.
std::vector<StrategyEntry> read_entries(Fields& fields, std::string_view key);
/// {tp: 8, dp: 4}: axes with sizes.
std::vector<Axis> read_axes(Fields& fields, std::string_view key);

/// The axis of a grid that a word is for.
Result<size_t> axis_of(const AxisGrid& grid, const std::string& name);

/// Choices that entries pin operators to.
struct OperatorPins {
  std::vector<std::vector<std::optional<Choice>>> choices;  ///< by operator and axis
  /// By operator and axis: the first pattern that said something of it.
  std::map<std::pair<size_t, size_t>, std::string> patterns;
};

/// Of the program's first operators, so many. Fails, with the pattern as the error's field, where a pattern fits no
/// operator, where a rule does not allow a word, where the grid lacks an axis, and where two patterns contradict each
/// other.
Result<OperatorPins> pins_of(const std::vector<StrategyEntry>& entries, const Program& program, size_t num_operators,
                             const AxisGrid& grid);

}  // namespace weft
