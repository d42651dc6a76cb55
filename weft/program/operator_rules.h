#pragma once

#include "weft/program/program.h"

namespace weft {

/// What an operator of a kind communicates inside where it cuts a dim itself, over the axes that cut it: times the
/// elements of one operand or of the result, as the rank holds them.
struct InsideTraffic {
  enum class Form : uint8_t {
    kSums,  ///< `passes` all-reduces of one number for each row
    kRing,  ///< the keys and values of all other ranks come by, `passes` times
  };

  Form form = Form::kSums;
  double forward_passes = 0;
  double backward_passes = 0;
};

/// Completes a rule that was parsed: which dims are inside or whole, and in which operands the result is linear.
/// Fails where the kind cannot have such a rule.
Result<Rule> complete_rule(OperatorKind kind, Rule rule);

/// What an operator cannot compute because dims that its rule calls the same differ in length: units make such dims,
/// and only a function of elements, whose operand may have a gate beside what it lets through, a reshape, attention and
/// custom operators have them.
std::optional<std::string> find_other_lengths(const Program& program, const Operator& op);

/// Of a kind that has a dim inside.
InsideTraffic inside_traffic(OperatorKind kind);

/// Whether the operator needs the operand, as it was, for its backward.
bool keeps_operand(const Program& program, const Operator& op, size_t operand);

}  // namespace weft
