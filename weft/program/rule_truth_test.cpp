#include <random>

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/program/simulated_operator.h"
#include "weft/program/operator_rules.h"

namespace weft {
namespace {

/// A kind of operator with a rule, whose dims get lengths later.
struct Case {
  std::string name;
  OperatorKind kind;
  std::string rule;
  int64_t unit = 1;                ///< of the last dim of every tensor that has more than one dim
  std::vector<bool> is_data = {};  ///< operands without gradient
};

const std::vector<Case>& cases() {
  static const std::vector<Case> list = {
      {"linear", OperatorKind::kEinsum, "b s h, f h -> b s f"},
      {"heads", OperatorKind::kEinsum, "b s h, f h -> b s f", 2},
      {"product of activations", OperatorKind::kEinsum, "b i k, b j k -> b i j"},
      {"experts", OperatorKind::kEinsum, "e c h, e f h -> e c f"},
      {"outer product", OperatorKind::kEinsum, "i, j -> i j"},
      {"three factors", OperatorKind::kEinsum, "i a, i b, i c -> a b c"},
      {"bias", OperatorKind::kAdd, "b s h, h -> b s h"},
      {"residual sum", OperatorKind::kAdd, "b s h, b s h -> b s h"},
      {"three terms", OperatorKind::kAdd, "b h, b h, b h -> b h"},
      {"gate", OperatorKind::kMultiply, "b s h, b s h -> b s h"},
      {"row weights", OperatorKind::kMultiply, "b s h, b s -> b s h"},
      {"activation", OperatorKind::kElementwise, "b s h -> b s h"},
      {"gated activation", OperatorKind::kElementwise, "b s h, b s h -> b s h"},
      {"rotary", OperatorKind::kScale, "b s h -> b s h", 2},
      {"dropout", OperatorKind::kDropout, "b s h -> b s h"},
      {"sum", OperatorKind::kSum, "b s h -> b h"},
      {"sum of all", OperatorKind::kSum, "b s ->"},
      {"transpose", OperatorKind::kReshape, "b s h -> h b s"},
      {"norm", OperatorKind::kNorm, "b s h, h -> b s h"},
      {"layer norm", OperatorKind::kNorm, "b h, h, h -> b h"},
      {"norm without weight", OperatorKind::kNorm, "b h -> b h"},
      {"softmax", OperatorKind::kSoftmax, "b s h -> b s h"},
      {"attention", OperatorKind::kAttention, "b s k -> b s k"},
      {"lookup", OperatorKind::kLookup, "b s, v h -> b s h", 1, {true, false}},
      {"loss", OperatorKind::kCrossEntropy, "b s v, b s -> b s", 1, {false, true}},
      {"dispatch", OperatorKind::kDispatch, "b s h -> e (b s) h"},
      {"combine", OperatorKind::kCombine, "e (b s) h, b s e -> b s h"},
      {"merge", OperatorKind::kReshape, "b k d -> b (k d)"},
      {"split", OperatorKind::kReshape, "b (k d) -> b k d"},
  };
  return list;
}

/// Rows that go to experts may lie there in any order, so that a cut of their inner dim is no block of the rows as they
/// are numbered here: it is not run.
std::vector<Choice> runnable_choices(const SimulatedOperator& op) {
  std::vector<Choice> choices = choices_of(op.rule);
  const bool is_of_experts = op.kind == OperatorKind::kDispatch || op.kind == OperatorKind::kCombine;
  const auto is_inner = [&](const RuleTerm& term, size_t dim) {
    return std::any_of(term.begin(), term.end(), [&](const std::vector<size_t>& parts) {
      return std::find(parts.begin() + (parts.empty() ? 0 : 1), parts.end(), dim) != parts.end();
    });
  };
  std::erase_if(choices, [&](const Choice& choice) {
    return is_of_experts && choice.kind == Choice::Kind::kCut &&
           (is_inner(op.rule.operands[0], choice.index) || is_inner(op.rule.result, choice.index));
  });
  return choices;
}

enum class Sizes { kEven, kUneven, kShort, kEmpty };

/// Lengths of a rule's dims, in units.
SimulatedOperator simulated(const Case& one, Sizes sizes, uint64_t seed) {
  std::mt19937_64 random(seed);
  SimulatedOperator op{.kind = one.kind,
                       .rule = *complete_rule(one.kind, *parse_rule(one.rule)),
                       .shapes = {},
                       .units = {},
                       .is_data = one.is_data};
  std::vector<int64_t> lengths;
  for (const RuleDim& dim : op.rule.dims) {
    // What a norm or a softmax goes over has at least one element.
    const bool may_be_empty = dim.kind == DimKind::kMap || (dim.kind == DimKind::kSum && sizes == Sizes::kEmpty);
    const int64_t length = sizes == Sizes::kEven     ? 4
                           : sizes == Sizes::kUneven ? 2 + static_cast<int64_t>(random() % 3)
                           : sizes == Sizes::kShort  ? 1 + static_cast<int64_t>(random() % 2)
                           : may_be_empty            ? static_cast<int64_t>(random() % 3)
                                                     : 1 + static_cast<int64_t>(random() % 2);
    lengths.push_back(op.rule.dims.size() > 4 ? std::min<int64_t>(length, 3) : length);
  }
  const bool is_attention = one.kind == OperatorKind::kAttention;
  op.attention = {.heads = 2 * lengths.back(), .kv_heads = lengths.back(), .head_dim = 1};
  if (is_attention && op.attention.heads == 0) {
    lengths.back() = 1;
    op.attention = {.heads = 2, .kv_heads = 1, .head_dim = 1};
  }
  for (size_t i = 0; i <= op.rule.operands.size(); ++i) {
    const bool is_result = i == op.rule.operands.size();
    const RuleTerm& term = is_result ? op.rule.result : op.rule.operands[i];
    std::vector<int64_t>& shape = op.shapes.emplace_back();
    std::vector<int64_t>& units = op.units.emplace_back();
    for (const std::vector<size_t>& parts : term) {
      int64_t length = 1, unit = 1;
      for (size_t part = 0; part < parts.size(); ++part) {
        length *= lengths[parts[part]];
        if (part > 0) unit *= lengths[parts[part]];
      }
      if (op.rule.dims[parts[0]].name == "h" || op.rule.dims[parts[0]].name == "f") unit *= one.unit;
      if (is_attention && op.rule.dims[parts[0]].name == "k") unit = is_result ? 2 : 4;
      shape.push_back(parts.size() > 1 ? length : length * unit);
      units.push_back(std::max<int64_t>(1, unit));
    }
  }
  return op;
}

std::vector<std::vector<Choice>> products(const std::vector<Choice>& choices, size_t num_axes) {
  std::vector<std::vector<Choice>> rows{{}};
  for (size_t axis = 0; axis < num_axes; ++axis) {
    std::vector<std::vector<Choice>> longer;
    for (const auto& row : rows) {
      for (const Choice choice : choices) {
        longer.push_back(row);
        longer.back().push_back(choice);
      }
    }
    rows = std::move(longer);
  }
  return rows;
}

AxisGrid grid_of_sizes(const std::vector<int64_t>& sizes) {
  std::vector<Axis> axes;
  for (const int64_t size : sizes) axes.push_back({std::string(1, static_cast<char>('a' + axes.size())), size});
  return *AxisGrid::create(axes);
}

std::string text_of(const Rule& rule, const std::vector<Choice>& choices) {
  std::string text;
  for (const Choice choice : choices) text += (text.empty() ? "" : " × ") + text_of(rule, choice);
  return text;
}

TEST(RuleTruth, EveryChoiceOfEveryKindGivesTheRightResultAndGradients) {
  const size_t every = kIsSanitized ? 23 : 1;
  size_t number = 0, tried = 0;
  for (const Case& one : cases()) {
    for (const Sizes sizes : {Sizes::kEven, Sizes::kUneven, Sizes::kShort, Sizes::kEmpty}) {
      for (const std::vector<int64_t>& mesh : std::vector<std::vector<int64_t>>{{2}, {3}, {2, 2}, {2, 3}}) {
        const SimulatedOperator op = simulated(one, sizes, number);
        const AxisGrid grid = grid_of_sizes(mesh);
        for (const std::vector<Choice>& choices : products(runnable_choices(op), mesh.size())) {
          ++number;
          if (number % every != 0) continue;
          ++tried;
          EXPECT_TRUE(is_true_of(op, grid, choices, number))
              << one.name << ": " << text_of(op.rule, choices) << " on " << grid.text();
        }
      }
    }
  }
  EXPECT_GE(number, 5000u);
  EXPECT_GE(tried, number / every);
}

std::vector<AxisState> all_states(size_t num_dims, bool is_result) {
  std::vector<AxisState> states{AxisState::partial(), AxisState::replicated()};
  // A result with a partial gradient is one that its readers hold so.
  if (!is_result) states.push_back(AxisState::replicated_partial_grad());
  for (size_t dim = 0; dim < num_dims; ++dim) states.push_back(AxisState::shard(dim));
  return states;
}

/// Operands without gradient have one way of being whole, and none of being summands.
ChoiceStates without_gradients(const SimulatedOperator& op, ChoiceStates states) {
  for (size_t i = 0; i < states.operands.size(); ++i) {
    if (!op.has_gradient(i) && states.operands[i].is_replicated()) states.operands[i] = AxisState::replicated();
  }
  return states;
}

TEST(RuleTruth, RulesThatAreWrongAreCaught) {
  const AxisGrid grid = grid_of_sizes({2});
  const size_t every = kIsSanitized ? 7 : 1;
  size_t mutated = 0, number = 0;
  for (const Case& one : cases()) {
    const SimulatedOperator op = simulated(one, Sizes::kEven, 1);
    std::vector<ChoiceStates> right;
    for (const Choice choice : runnable_choices(op)) right.push_back(without_gradients(op, states_of(op.rule, choice)));
    for (const Choice choice : runnable_choices(op)) {
      const bool is_inside = choice.kind == Choice::Kind::kCut && op.rule.dims[choice.index].kind == DimKind::kInside;
      if (is_inside) continue;
      for (size_t i = 0; i <= op.rule.operands.size(); ++i) {
        const bool is_result = i == op.rule.operands.size();
        if (!is_result && !op.has_gradient(i)) continue;
        for (const AxisState& state : all_states(op.shapes[i].size(), is_result)) {
          ChoiceStates wrong = without_gradients(op, states_of(op.rule, choice));
          (is_result ? wrong.result : wrong.operands[i]) = state;
          // Another row of the table is no mistake.
          if (std::find(right.begin(), right.end(), wrong) != right.end()) continue;
          if (++number % every != 0) continue;
          ++mutated;
          EXPECT_FALSE(is_true_of(op, grid, {wrong}, {std::nullopt}, number))
              << one.name << ": " << text_of(op.rule, choice) << " with tensor " << i << " " << state.text();
        }
      }
    }
  }
  EXPECT_GE(number, 200u);
  EXPECT_GT(mutated, 0u);
}

TEST(RuleTruth, NothingElseNeedsNoCommunication) {
  const AxisGrid grid = grid_of_sizes({2});
  size_t tried = 0;
  for (const Case& one : cases()) {
    const SimulatedOperator op = simulated(one, Sizes::kEven, 1);
    std::vector<ChoiceStates> derived;
    for (const Choice choice : runnable_choices(op)) {
      const bool is_inside = choice.kind == Choice::Kind::kCut && op.rule.dims[choice.index].kind == DimKind::kInside;
      if (!is_inside) derived.push_back(without_gradients(op, states_of(op.rule, choice)));
    }
    std::vector<ChoiceStates> assignments{{}};
    for (size_t i = 0; i <= op.rule.operands.size(); ++i) {
      const bool is_result = i == op.rule.operands.size();
      std::vector<ChoiceStates> longer;
      for (const ChoiceStates& assignment : assignments) {
        for (const AxisState& state : all_states(op.shapes[i].size(), is_result)) {
          if (!is_result && !op.has_gradient(i) && !state.is_shard() && state != AxisState::replicated()) continue;
          longer.push_back(assignment);
          if (is_result) {
            longer.back().result = state;
          } else {
            longer.back().operands.push_back(state);
          }
        }
      }
      assignments = std::move(longer);
    }
    for (const ChoiceStates& assignment : assignments) {
      if (kIsSanitized && ++tried % 11 != 0) continue;
      const bool is_derived = std::find(derived.begin(), derived.end(), assignment) != derived.end();
      std::string states;
      for (const AxisState& state : assignment.operands) states += state.text() + ", ";
      EXPECT_EQ(is_true_of(op, grid, {assignment}, {std::nullopt}, 5), is_derived)
          << one.name << ": " << states << "-> " << assignment.result.text();
    }
  }
}

}  // namespace
}  // namespace weft
