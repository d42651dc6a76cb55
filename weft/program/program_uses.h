#pragma once

#include <optional>
#include <vector>

#include "weft/program/program.h"

namespace weft {

/// Who reads and makes the values of a program, and which repeat its operators are in: tables that one pass fills.
/// Code that asks for many values asks here: each question to Program itself goes through all operators.
class ProgramUses {
 public:
  explicit ProgramUses(const Program& program);

  /// Operators in order, each once.
  const std::vector<size_t>& readers_of(size_t value) const { return readers_[value]; }
  std::optional<size_t> maker_of(size_t value) const { return makers_[value]; }
  std::optional<size_t> repeat_of(size_t op) const { return repeats_[op]; }

 private:
  std::vector<std::vector<size_t>> readers_;    ///< by value
  std::vector<std::optional<size_t>> makers_;   ///< by value
  std::vector<std::optional<size_t>> repeats_;  ///< by operator
};

}  // namespace weft
