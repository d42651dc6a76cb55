#pragma once

#include <optional>
#include <string>

#include "weft/schedule/schedule.h"

namespace weft {

/// What is wrong with a schedule, and where: a row and a position in it.
struct ScheduleProblem {
  int32_t rank = 0;
  size_t position = 0;
  std::string message;  ///< a sentence without a final full stop
};

/// Judges a schedule, compute-only or lowered, without knowing how it was made: actions belong to the rank that holds
/// their stage; every stage runs F once for every microbatch and then B once, or I and then W once each; a lowered one
/// sends and receives each tensor that crosses ranks exactly once, after it is made and before it is used, and both
/// ends of every channel agree on the order; reductions and updates come after a stage's last gradient; encoder actions
/// come once per macro batch, in the same order on all ranks of a group, after what they read and within the encoder's
/// live bound; and with unbuffered channels nothing waits for ever.
std::optional<ScheduleProblem> find_problem(const Schedule& schedule);

/// The grid around the problem's cell, the cell marked, and the message.
std::string show_problem(const Schedule& schedule, const ScheduleProblem& problem);

}  // namespace weft
