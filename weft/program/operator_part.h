#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/mesh/axis_grid.h"
#include "weft/program/program.h"

namespace weft {

/// What the busiest rank computes of an operator, whatever the strategy and the program that it comes from: operators
/// with equal parts take equally long.
struct OperatorPart {
  std::string op;      ///< as a program writes it, with roles for names: "einsum(rows, weight) : b s h, f h -> b s f"
  std::string parts;   ///< lengths of its operands and its result there: "2x128x512, 704x512 -> 2x128x704"
  std::string inside;  ///< "h 2": a dim that so many ranks cut and over which they communicate; nothing mostly

  bool operator==(const OperatorPart&) const = default;
  auto operator<=>(const OperatorPart&) const = default;  // NOLINT(modernize-use-nullptr)
};

OperatorPart part_of(const Program& program, const Operator& op, const std::vector<Choice>& choices,
                     const AxisGrid& grid);

/// The lengths in such a text, of operands and then of the result; nothing where it is none.
std::optional<std::vector<std::vector<int64_t>>> lengths_in(const std::string& parts);

/// An operator by itself, as it is run to see how long its part takes.
struct OperatorCase {
  Program program;    ///< that operator alone
  Choice choice;      ///< what it does on its ranks
  int64_t ranks = 1;  ///< that communicate inside of it; 1: the program has the part's lengths
  OperatorPart part;
  int64_t busy_ranks = 1;     ///< of the machine that compute at the same time
  int64_t passing_bytes = 0;  ///< of other operators, which go through a processor's caches between two runs
};

OperatorCase case_of(const Program& program, const Operator& op, Choice choice, int64_t ranks);

}  // namespace weft
