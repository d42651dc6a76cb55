#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"
#include "weft/mesh/layout.h"

namespace weft {

/// What cutting a dim of a rule means for its operator.
enum class DimKind : uint8_t {
  kMap,     ///< parts do not see each other
  kSum,     ///< the result is a sum over it, so that parts give summands
  kInside,  ///< the operator communicates itself, and gives whole results
  kWhole,   ///< it cannot be cut
};

std::string_view name_of(DimKind kind);

struct RuleDim {
  std::string name;
  DimKind kind = DimKind::kMap;

  bool operator==(const RuleDim&) const = default;
};

/// One operand or the result: for each dim of the tensor the dims of the rule that it is made of, the outermost first.
/// Mostly one; "(b s)" are rows of both.
using RuleTerm = std::vector<std::vector<size_t>>;

bool has_dim(const RuleTerm& term, size_t dim);

/// An operator as a rule over named dims: "b s h, f h -> b s f". Which strategies it has, what they communicate and
/// what becomes of gradients follows from this alone.
struct Rule {
  std::vector<RuleDim> dims;
  std::vector<RuleTerm> operands;
  RuleTerm result;
  /// Operands in which the result is linear: each entry is a set that may be summands together. A product has one entry
  /// for each factor, a sum one entry with all of its terms.
  std::vector<std::vector<size_t>> linear;

  std::optional<size_t> find(std::string_view dim) const;
  /// "b s h, f h -> b s f".
  std::string text() const;
  bool operator==(const Rule&) const = default;
};

/// Reads the form that text() writes. A dim that the result lacks is summed over, inner dims of rows like "(b s)" are
/// whole, every other is a map.
Result<Rule> parse_rule(std::string_view text);

/// What an operator does on one axis of a mesh.
struct Choice {
  enum class Kind : uint8_t { kSame, kCut, kThrough };

  Kind kind = Kind::kSame;
  size_t index = 0;  ///< of the dim that is cut, or of the set in Rule::linear; 0 otherwise

  static Choice same() { return {}; }
  static Choice cut(size_t dim) { return {Kind::kCut, dim}; }
  static Choice through(size_t set = 0) { return {Kind::kThrough, set}; }

  bool operator==(const Choice&) const = default;
};

/// The states that a choice asks of operands and gives to the result, on its axis.
struct ChoiceStates {
  std::vector<AxisState> operands;
  AxisState result;

  bool operator==(const ChoiceStates&) const = default;
};

/// Every choice that the rule allows: same, a cut of each dim, every set of linear operands.
std::vector<Choice> choices_of(const Rule& rule);

/// Whether a choice cuts a dim that is inside: the operator communicates over its parts itself.
bool is_cut_inside(const Rule& rule, Choice choice);

/// The one table from which strategies follow; see docs/design/operator-strategies.md.
ChoiceStates states_of(const Rule& rule, Choice choice);

/// "same", "cut f", "through", or "through 1" where several sets could be.
std::string text_of(const Rule& rule, Choice choice);
/// The inverse; a dim's name alone is a cut of it.
Result<Choice> parse_choice(const Rule& rule, std::string_view text);

}  // namespace weft
