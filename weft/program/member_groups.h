#pragma once

#include <vector>

#include "weft/program/program_flow.h"

namespace weft {

/// Members of a segment, one behind the other, that a rank computes by one function of a layer. The runner computes
/// groups, and memory is predicted for them.
struct MemberGroup {
  enum class Kind : uint8_t {
    kAlone,       ///< one operator by itself
    kProduct,     ///< rows times a weight, with an activation before it or a bias behind it, or both
    kSumAndNorm,  ///< two terms are added, and the sum is normed
  };
  Kind kind = Kind::kAlone;
  size_t first = 0;  ///< in the segment's members
  size_t count = 1;
  bool has_activation = false;
  bool has_bias = false;

  size_t product() const { return first + (has_activation ? 1 : 0); }
  size_t last() const { return first + count - 1; }
};

/// All members of a segment, in order.
std::vector<MemberGroup> groups_of(const ProgramFlow& flow, const FlowSegment& segment);

/// "... h, f h -> ... f".
bool is_linear_rule(const Rule& rule);

/// Whether an operator is a norm of rows with weights of their width, root-mean-square or, with a bias, a layer norm:
/// what layers have a function for, as long as its width is not cut.
bool is_norm_of_rows(const Program& program, const Operator& op);

/// A function of elements that reads a gate and what it lets through, side by side in every unit of its last dim.
bool is_gate(const Program& program, const Operator& op);

/// Whether an operator's first operand is its own: made in its segment by one that keeps only what it reads, and read
/// by nobody else.
bool owns_first(const ProgramFlow& flow, size_t op);

}  // namespace weft
