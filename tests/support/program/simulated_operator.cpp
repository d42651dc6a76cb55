#include "tests/support/program/simulated_operator.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "weft/base/check.h"
#include "weft/mesh/transition.h"

namespace weft {
namespace {

using Number = std::complex<double>;
constexpr double kStep = 1e-30;

Box whole_box(const std::vector<int64_t>& shape) {
  Box box;
  for (const int64_t size : shape) box.push_back({0, size});
  return box;
}

/// Goes through the elements of blocks by the coordinates of the rule's dims.
class Loop {
 public:
  Loop(const Rule& rule, const std::vector<SimulatedBlock>& operands, const Box& result)
      : rule_(rule), ranges_(rule.dims.size()) {
    for (size_t i = 0; i < operands.size(); ++i) meet(rule.operands[i], operands[i].box);
    meet(rule.result, result);
    // Rows of several dims are as many as these have, once all are known.
    for (size_t i = 0; i < operands.size(); ++i) meet_rows(rule.operands[i], operands[i].box);
    meet_rows(rule.result, result);
  }

  bool fits() const { return fits_; }

  /// Calls with the coordinates of every point.
  template <typename Body>
  void run(const Body& body) {
    std::vector<int64_t> point(rule_.dims.size());
    visit(0, point, body);
  }

  /// The place of a point in a block.
  size_t place(const RuleTerm& term, const Box& box, const std::vector<int64_t>& point) const {
    int64_t index = 0;
    for (size_t i = 0; i < term.size(); ++i) {
      int64_t coordinate = 0;
      for (const size_t dim : term[i]) coordinate = coordinate * lengths(dim, term[i].size() > 1) + point[dim];
      index = index * box[i].size() + (coordinate - box[i].begin);
    }
    return static_cast<size_t>(index);
  }

 private:
  int64_t lengths(size_t dim, bool is_part) const { return is_part ? ranges_[dim]->size() : 0; }

  void meet(const RuleTerm& term, const Box& box) {
    for (size_t i = 0; i < term.size(); ++i) {
      if (term[i].size() != 1) continue;
      std::optional<Range>& range = ranges_[term[i][0]];
      if (!range) range = box[i];
      fits_ = fits_ && (*range == box[i] || (range->empty() && box[i].empty()));
    }
  }

  void meet_rows(const RuleTerm& term, const Box& box) {
    for (size_t i = 0; i < term.size() && fits_; ++i) {
      if (term[i].size() == 1) continue;
      int64_t inner = 1;
      for (size_t part = 1; part < term[i].size(); ++part) inner *= ranges_[term[i][part]]->size();
      const Range outer = *ranges_[term[i][0]];
      fits_ = box[i].size() == outer.size() * inner && (box[i].empty() || box[i].begin == outer.begin * inner);
    }
  }

  template <typename Body>
  void visit(size_t dim, std::vector<int64_t>& point, const Body& body) {
    if (dim == point.size()) return body(point);
    for (point[dim] = ranges_[dim]->begin; point[dim] < ranges_[dim]->end; ++point[dim]) visit(dim + 1, point, body);
  }

  const Rule& rule_;
  std::vector<std::optional<Range>> ranges_;
  bool fits_ = true;
};

/// Rows of a block: all but its last dim.
struct Rows {
  int64_t count = 1;
  int64_t width = 1;
};
Rows rows_of(const Box& box) {
  Rows rows;
  for (size_t i = 0; i + 1 < box.size(); ++i) rows.count *= box[i].size();
  rows.width = box.back().size();
  return rows;
}

Numbers compute_norm(const std::vector<SimulatedBlock>& operands) {
  const Rows rows = rows_of(operands[0].box);
  Numbers result;
  for (int64_t row = 0; row < rows.count; ++row) {
    const Number* x = operands[0].elements.data() + row * rows.width;
    Number square = 0;
    for (int64_t i = 0; i < rows.width; ++i) square += x[i] * x[i];
    const Number factor = 1.0 / std::sqrt(square / static_cast<double>(rows.width) + 1e-2);
    for (int64_t i = 0; i < rows.width; ++i)
      result.push_back(x[i] * factor * (operands.size() > 1 ? operands[1].elements[static_cast<size_t>(i)] : 1.0) +
                       (operands.size() > 2 ? operands[2].elements[static_cast<size_t>(i)] : 0.0));
  }
  return result;
}

Numbers compute_softmax(const SimulatedBlock& operand) {
  const Rows rows = rows_of(operand.box);
  Numbers result;
  for (int64_t row = 0; row < rows.count; ++row) {
    const Number* x = operand.elements.data() + row * rows.width;
    Number sum = 0;
    for (int64_t i = 0; i < rows.width; ++i) sum += std::exp(x[i]);
    for (int64_t i = 0; i < rows.width; ++i) result.push_back(std::exp(x[i]) / sum);
  }
  return result;
}

Numbers compute_loss(const SimulatedBlock& logits, const SimulatedBlock& targets) {
  const Rows rows = rows_of(logits.box);
  Numbers result;
  for (int64_t row = 0; row < rows.count; ++row) {
    const Number* x = logits.elements.data() + row * rows.width;
    Number sum = 0, target = 0;
    for (int64_t i = 0; i < rows.width; ++i) {
      sum += std::exp(x[i]);
      if (std::llround(targets.elements[static_cast<size_t>(row)].real()) == logits.box.back().begin + i) target = x[i];
    }
    result.push_back(std::log(sum) - target);
  }
  return result;
}

/// Groups of queries with one key and one value: [b, rows, groups of (queries, key, value)].
Numbers compute_attention(const SimulatedOperator& op, const SimulatedBlock& operand) {
  const Attention& a = op.attention;
  const int64_t queries = a.heads / a.kv_heads, d = a.head_dim, unit = (queries + 2) * d;
  const int64_t samples = operand.box[0].size(), rows = operand.box[1].size(), width = operand.box[2].size();
  const auto x = [&](int64_t b, int64_t s, int64_t i) {
    return operand.elements[static_cast<size_t>((b * rows + s) * width + i)];
  };
  Numbers result;
  for (int64_t b = 0; b < samples; ++b) {
    for (int64_t s = 0; s < rows; ++s) {
      for (int64_t group = 0; group < width / unit; ++group) {
        for (int64_t head = 0; head < queries; ++head) {
          Number sum = 0;
          Numbers mixed(static_cast<size_t>(d));
          for (int64_t t = 0; t <= s; ++t) {
            Number score = 0;
            for (int64_t i = 0; i < d; ++i)
              score += x(b, s, group * unit + head * d + i) * x(b, t, group * unit + queries * d + i);
            const Number weight = std::exp(score);
            sum += weight;
            for (int64_t i = 0; i < d; ++i)
              mixed[static_cast<size_t>(i)] += weight * x(b, t, group * unit + (queries + 1) * d + i);
          }
          for (const Number& value : mixed) result.push_back(value / sum);
        }
      }
    }
  }
  return result;
}

/// The same on every rank, by where an element is.
bool is_dropped(const std::vector<int64_t>& point) {
  uint64_t hash = 7;
  for (const int64_t coordinate : point) hash = hash * 1000003 + static_cast<uint64_t>(coordinate);
  return (hash >> 3) % 3 == 0;
}

}  // namespace

std::optional<Numbers> compute_block(const SimulatedOperator& op, const std::vector<SimulatedBlock>& operands,
                                     const Box& result) {
  Numbers made(static_cast<size_t>(num_elements(result)), 0.0);
  if (op.kind == OperatorKind::kAttention) {
    const Box& box = operands[0].box;
    if (box[0] != result[0] || box[1] != result[1]) return std::nullopt;
    if (op.attention.head_dim * op.attention.heads == 0) return std::nullopt;
    Numbers computed = compute_attention(op, operands[0]);
    // Which groups they are must be the same on both sides.
    const bool fits = box[2].begin * op.units[1][2] == result[2].begin * op.units[0][2];
    if (!fits || computed.size() != made.size()) return std::nullopt;
    return computed;
  }
  Loop loop(op.rule, operands, result);
  if (!loop.fits()) return std::nullopt;
  if (op.kind == OperatorKind::kNorm) return compute_norm(operands);
  if (op.kind == OperatorKind::kSoftmax) return compute_softmax(operands[0]);
  if (op.kind == OperatorKind::kCrossEntropy) return compute_loss(operands[0], operands[1]);
  loop.run([&](const std::vector<int64_t>& point) {
    const auto read = [&](size_t i) {
      return operands[i].elements[loop.place(op.rule.operands[i], operands[i].box, point)];
    };
    Number value = 0;
    switch (op.kind) {
      case OperatorKind::kAdd:
        for (size_t i = 0; i < operands.size(); ++i) value += read(i);
        break;
      case OperatorKind::kElementwise:
        value = std::sin(read(0));
        for (size_t i = 1; i < operands.size(); ++i) value = std::sin(value + 0.5 * read(i) * read(i));
        break;
      case OperatorKind::kScale:
        value = 1.7 * read(0);
        break;
      case OperatorKind::kDropout:
        value = is_dropped(point) ? 0.0 : 1.5 * read(0);
        break;
      case OperatorKind::kLookup: {
        // The dim of entries is the only one that the result lacks.
        const size_t entries = op.rule.operands[1][0][0];
        value = std::llround(read(0).real()) == point[entries] ? read(1) : 0.0;
        break;
      }
      case OperatorKind::kDispatch: {
        // A row goes to some experts, whatever its columns are.
        const std::vector<size_t>& rows = op.rule.result[1];
        const int64_t way = 5 * point[op.rule.result[0][0]] + 3 * point[rows[0]] + point[rows[1]];
        value = way % 3 == 0 ? 0.0 : read(0);
        break;
      }
      default:
        value = 1;
        for (size_t i = 0; i < operands.size(); ++i) value *= read(i);
    }
    made[loop.place(op.rule.result, result, point)] += value;
  });
  return made;
}

std::vector<double> block_gradient(const SimulatedOperator& op, const std::vector<SimulatedBlock>& operands,
                                   const Box& result, const std::vector<double>& result_gradient, size_t operand) {
  std::vector<SimulatedBlock> moved = operands;
  std::vector<double> gradient;
  for (size_t i = 0; i < moved[operand].elements.size(); ++i) {
    moved[operand].elements[i] += Number(0, kStep);
    const Numbers made = *compute_block(op, moved, result);
    double sum = 0;
    for (size_t j = 0; j < made.size(); ++j) sum += made[j].imag() / kStep * result_gradient[j];
    gradient.push_back(sum);
    moved[operand].elements[i] = operands[operand].elements[i];
  }
  return gradient;
}

namespace {

/// One run of an operator on all ranks of a grid.
class RankedRun {
 public:
  RankedRun(const SimulatedOperator& op, const AxisGrid& grid, const std::vector<ChoiceStates>& states,
            const std::vector<std::optional<size_t>>& inside, uint64_t seed)
      : op_(op), grid_(grid), random_(seed) {
    for (size_t i = 0; i <= op.rule.operands.size(); ++i) {
      std::vector<AxisState> own, joined;
      for (size_t axis = 0; axis < states.size(); ++axis) {
        const AxisState state = i < states[axis].operands.size() ? states[axis].operands[i] : states[axis].result;
        own.push_back(state);
        joined.push_back(inside[axis] && state.is_shard() ? AxisState::replicated() : state);
      }
      layouts_.push_back(layout_of(i, own));
      joined_.push_back(layout_of(i, joined));
    }
  }

  bool run() {
    for (size_t i = 0; i + 1 < layouts_.size(); ++i) operands_.push_back(draw_operand(i));
    std::vector<SimulatedTensor> joined;
    for (size_t i = 0; i < operands_.size(); ++i) joined.push_back(moved(operands_[i], joined_[i]));
    const Layout& joined_result = joined_.back();
    SimulatedTensor result{joined_result, {}};
    for (int64_t position = 0; position < grid_.num_positions(); ++position) {
      const auto made = compute_block(op_, blocks_at(joined, position), joined_result.box(position));
      if (!made) return false;
      result.local.push_back(real_of(*made));
    }
    if (!copies_agree(result)) return false;
    result = moved(result, layouts_.back());
    const std::vector<SimulatedBlock> logical = logical_operands();
    const Box whole = whole_box(op_.shapes.back());
    const std::optional<Numbers> expected = compute_block(op_, logical, whole);
    WEFT_CHECK(expected.has_value(), "the tensors do not fit the rule");
    if (!is_near(logical_value(result), real_of(*expected))) return false;
    return are_gradients_right(joined, logical, whole);
  }

 private:
  Layout layout_of(size_t tensor, const std::vector<AxisState>& states) const {
    const std::vector<int64_t>& shape = op_.shapes[tensor];
    const Layout balanced = *Layout::create(grid_, shape, states);
    std::vector<PartSizes> sizes;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      const int64_t unit = op_.units[tensor][dim];
      if (unit == 1 || balanced.shard_axes(dim).empty()) continue;
      // Balanced in units.
      std::vector<int64_t> in_units = Split(shape[dim] / unit, balanced.split(dim).counts()).sizes();
      for (int64_t& size : in_units) size *= unit;
      sizes.push_back({dim, in_units});
    }
    return *Layout::create(grid_, shape, states, sizes);
  }

  SimulatedTensor draw_operand(size_t i) {
    const int64_t entries = op_.kind == OperatorKind::kLookup         ? op_.shapes[1][0]
                            : op_.kind == OperatorKind::kCrossEntropy ? op_.shapes[0].back()
                                                                      : 1;
    std::uniform_real_distribution<double> real(-1, 1);
    return fill(layouts_[i], [&]() -> double {
      if (op_.has_gradient(i)) return real(random_);
      return static_cast<double>(random_() % static_cast<uint64_t>(std::max<int64_t>(1, entries)));
    });
  }

  static SimulatedTensor moved(const SimulatedTensor& tensor, const Layout& layout) {
    return execute(plan_steps(tensor.layout, layout), tensor);
  }

  static std::vector<double> real_of(const Numbers& numbers) {
    std::vector<double> real;
    for (const Number& number : numbers) real.push_back(number.real());
    return real;
  }

  std::vector<SimulatedBlock> blocks_at(const std::vector<SimulatedTensor>& tensors, int64_t position) const {
    std::vector<SimulatedBlock> blocks;
    for (const SimulatedTensor& tensor : tensors) {
      const std::vector<double>& local = tensor.local[static_cast<size_t>(position)];
      blocks.push_back({tensor.layout.box(position), Numbers(local.begin(), local.end())});
    }
    return blocks;
  }

  std::vector<SimulatedBlock> logical_operands() const {
    std::vector<SimulatedBlock> blocks;
    for (const SimulatedTensor& tensor : operands_) {
      const std::vector<double> value = logical_value(tensor);
      blocks.push_back({whole_box(tensor.layout.shape()), Numbers(value.begin(), value.end())});
    }
    return blocks;
  }

  static bool is_near(const std::vector<double>& a, const std::vector<double>& b) {
    if (a.size() != b.size()) return false;
    double largest = 1;
    for (const double value : b) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < a.size(); ++i) {
      if (!(std::abs(a[i] - b[i]) <= 1e-12 * largest)) return false;
    }
    return true;
  }

  bool are_gradients_right(const std::vector<SimulatedTensor>& joined, const std::vector<SimulatedBlock>& logical,
                           const Box& whole) {
    std::uniform_real_distribution<double> real(-1, 1);
    const SimulatedTensor gradient = fill(layouts_.back().gradient(), [&] { return real(random_); });
    const std::vector<double> logical_gradient = logical_value(gradient);
    const SimulatedTensor joined_gradient = moved(gradient, joined_.back().gradient());
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (!op_.has_gradient(i)) continue;
      SimulatedTensor made{joined_[i].gradient(), {}};
      for (int64_t position = 0; position < grid_.num_positions(); ++position) {
        made.local.push_back(block_gradient(op_, blocks_at(joined, position), joined_.back().box(position),
                                            joined_gradient.local[static_cast<size_t>(position)], i));
      }
      if (!copies_agree(made)) return false;
      made = moved(made, layouts_[i].gradient());
      if (!is_near(logical_value(made), block_gradient(op_, logical, whole, logical_gradient, i))) return false;
    }
    return true;
  }

  /// Copies that differ are no copies: a state that was wrong.
  bool copies_agree(const SimulatedTensor& tensor) const {
    const AxisList copies = tensor.layout.replicated_axes();
    for (int64_t position = 0; position < grid_.num_positions(); ++position) {
      if (tensor.local[static_cast<size_t>(position)] !=
          tensor.local[static_cast<size_t>(grid_.group_base(position, copies))])
        return false;
    }
    return true;
  }

  const SimulatedOperator& op_;
  const AxisGrid& grid_;
  std::mt19937_64 random_;
  std::vector<Layout> layouts_;  ///< of the operands, then of the result
  std::vector<Layout> joined_;   ///< where the operator has communicated
  std::vector<SimulatedTensor> operands_;
};

}  // namespace

bool is_true_of(const SimulatedOperator& op, const AxisGrid& grid, const std::vector<ChoiceStates>& states,
                const std::vector<std::optional<size_t>>& inside, uint64_t seed) {
  return RankedRun(op, grid, states, inside, seed).run();
}

bool is_true_of(const SimulatedOperator& op, const AxisGrid& grid, const std::vector<Choice>& choices, uint64_t seed) {
  std::vector<ChoiceStates> states;
  std::vector<std::optional<size_t>> inside;
  for (const Choice choice : choices) {
    states.push_back(states_of(op.rule, choice));
    const bool is_inside = choice.kind == Choice::Kind::kCut && op.rule.dims[choice.index].kind == DimKind::kInside;
    inside.push_back(is_inside ? std::optional(choice.index) : std::nullopt);
  }
  return is_true_of(op, grid, states, inside, seed);
}

}  // namespace weft
