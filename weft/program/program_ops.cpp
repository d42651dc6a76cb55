#include "weft/program/program_ops.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/program/custom_functions.h"
#include "weft/program/operator_rules.h"
#include "weft/program/program_uses.h"

namespace weft {
namespace {

/// Makes the operators of one block.
class OpWriter {
 public:
  OpWriter(const BlockProgram& block, const ProgramFeatures& features, const ProgramRows& rows,
           std::optional<std::string> tied)
      : block_(block),
        program_(block.program),
        uses_(block.program),
        features_(features),
        rows_(rows),
        tied_(std::move(tied)) {}

  Result<std::vector<Op>> write() {
    for (size_t i = 0; i < program_.operators.size() && !error_; ++i) {
      const Operator& op = program_.operators[i];
      if (i >= block_.num_own) break;  // what makes rows whole costs what it sends
      check_samples(op);
      if (const auto other = find_other_lengths(program_, op))
        refuse(op, *other, "Give the dims of its operands and its result the same lengths.");
      if (!error_) write(i);
    }
    if (error_) return *error_;
    if (auto error = find_unread_weight()) return *std::move(error);
    return std::move(ops_);
  }

 private:
  void refuse(const Operator& op, std::string problem, std::string advice) {
    if (!error_) error_ = Error{.field = op.name, .problem = std::move(problem), .advice = std::move(advice)};
  }

  const ProgramValue& value(size_t index) const { return program_.values[index]; }
  int64_t length(size_t dim) const { return program_.dims[dim].length; }
  /// Elements of a row: its last dim.
  int64_t width(size_t index) const { return value(index).dims.size() < 2 ? 1 : length(value(index).dims.back()); }
  Features features(size_t index) const {
    return value(index).dims.size() < 2 ? Features::kWidth : features_.of_dims[value(index).dims.back()];
  }
  std::string dim_text(size_t index) const {
    const ProgramDim& dim = program_.dims[value(index).dims.back()];
    return fmt::format("'dim {} {} unit {}'", dim.name, dim.length, dim.unit);
  }
  bool is_data(size_t index) const { return value(index).role == ProgramValue::Role::kData; }

  RowsPerToken rows(size_t index) const {
    int64_t rows = 1;
    const std::vector<size_t>& dims = value(index).dims;
    for (size_t place = 1; place + 1 < dims.size(); ++place) rows *= length(dims[place]);
    const int64_t common = std::gcd(rows, rows_.rows_per_sample);
    return {.numerator = rows / common, .denominator = rows_.rows_per_sample / common};
  }

  /// What is no weight has samples along its first dim, and nowhere else; a loss may have none.
  void check_samples(const Operator& op) {
    const auto check = [&](size_t index) {
      const ProgramValue& tensor = value(index);
      if (tensor.role == ProgramValue::Role::kWeight) return;
      const bool is_loss = index == program_.operators[block_.num_own - 1].result;
      if (is_loss && tensor.dims.empty()) return;
      const auto count = std::count(tensor.dims.begin(), tensor.dims.end(), rows_.sample_dim);
      if (count == 1 && tensor.dims.front() == rows_.sample_dim) return;
      refuse(op,
             fmt::format("has {} without the dim of samples {} in front", in_quotes(tensor.name),
                         in_quotes(program_.dims[rows_.sample_dim].name)),
             "Every tensor that is no weight has it as its first dim, so that samples can be dealt out.");
    };
    for (const size_t operand : op.operands) check(operand);
    check(op.result);
    for (const size_t operand : op.operands) {
      const ProgramValue& tensor = value(operand);
      if (tensor.role == ProgramValue::Role::kWeight &&
          std::count(tensor.dims.begin(), tensor.dims.end(), rows_.sample_dim) > 0)
        refuse(op, fmt::format("reads the weight {}, which has the dim of samples", in_quotes(tensor.name)),
               "Give it other dims.");
    }
  }

  void write(size_t index) {
    const Operator& op = program_.operators[index];
    switch (op.kind) {
      case OperatorKind::kEinsum:
        return write_product(op);
      case OperatorKind::kNorm:
        return write_norm(op);
      case OperatorKind::kAttention:
        return write_attention(op);
      case OperatorKind::kLookup:
        return write_lookup(index);
      case OperatorKind::kCrossEntropy:
        return write_loss(op);
      case OperatorKind::kAdd:
        if (is_bias(op)) return;
        return write_pointwise(op);
      case OperatorKind::kCustom:
        return write_custom(op);
      default:
        return write_pointwise(op);
    }
  }

  void write_custom(const Operator& op) {
    const std::vector<std::string>& known = custom_functions();
    const std::string& function = function_of(op);
    if (std::find(known.begin(), known.end(), function) != known.end()) {
      if (!error_) error_ = find_wrong_call(program_, op);
      if (!error_) write_pointwise(op);
      return;
    }
    refuse(op, fmt::format("is custom, and {} is no function that training knows", in_quotes(function)),
           fmt::format("Known are {} ('calls NAME'); write it with operators of other kinds.{}", joined_or(known),
                       did_you_mean(function, known)));
  }

  std::shared_ptr<const OpWeights> named(size_t weight, std::optional<size_t> bias = {}) const {
    OpWeights weights{.names = {value(weight).name}, .are_bare = true};
    if (bias) weights.bias_names = {value(*bias).name};
    return std::make_shared<const OpWeights>(std::move(weights));
  }

  /// The sum that adds a bias to a product, if that is the only one that reads it.
  const Operator* bias_of(const Operator& product) const {
    const std::vector<size_t>& readers = uses_.readers_of(product.result);
    if (readers.size() != 1 || product.result == block_.carried_out) return nullptr;
    const Operator& sum = program_.operators[readers[0]];
    if (sum.kind != OperatorKind::kAdd || sum.operands.size() != 2 || sum.operands[0] != product.result) return nullptr;
    if (!is_weight(program_, sum.operands[1]) || uses_.readers_of(sum.operands[1]).size() != 1) return nullptr;
    const std::vector<size_t>& dims = value(sum.operands[1]).dims;
    return dims.size() == 1 && dims[0] == value(product.result).dims.back() ? &sum : nullptr;
  }

  bool is_bias(const Operator& sum) const {
    const std::optional<size_t> maker = uses_.maker_of(sum.operands[0]);
    if (!maker || !product_dims(program_, program_.operators[*maker])) return false;
    return bias_of(program_.operators[*maker]) == &sum;
  }

  /// Whether an operator before has kept what it reads.
  bool is_kept(size_t index) { return !kept_.insert(index).second; }

  void keep(Op& op, size_t index, int64_t elements) {
    (features(index) == Features::kWidth ? op.saved.whole : op.saved.divided) += elements;
  }

  void write_product(const Operator& op) {
    const auto dims = product_dims(program_, op);
    if (!dims)
      return refuse(op, fmt::format("is no product of rows with a weight of two dims ({})", in_quotes(op.rule.text())),
                    "Products with a weight [out in] are trained; write attention as attention, and other products of "
                    "activations as multiply and sum.");
    const size_t weight = op.operands[dims->weight], in = op.operands[dims->rows];
    if (op.rule.operands[dims->rows].back() != std::vector<size_t>{dims->in} ||
        op.rule.result.back() != std::vector<size_t>{dims->out})
      return refuse(op, "sums over a dim that is not the last of its rows, or makes one that is not",
                    "Features are the last dim of a tensor; change the order of dims.");
    const size_t in_dim = value(in).dims.back(), out_dim = value(op.result).dims.back();
    const bool is_tied = tied_ == value(weight).name;
    if (is_tied && dims->is_transposed)
      return refuse(op, "reads the table of a lookup the other way round", "Its rule is like 'b s h, v h -> b s v'.");
    Matmul matmul{.in = length(in_dim), .out = length(out_dim), .is_tied = is_tied};
    const Features from = features_.of_dims[in_dim], to = features_.of_dims[out_dim];
    matmul.unit = program_.dims[from != Features::kWidth ? in_dim : out_dim].unit;
    const Operator* bias = bias_of(op);
    if (bias != nullptr) matmul.bias_elements = matmul.out;
    Op made{.name = op.name, .shape = matmul, .in = from, .out = to, .rows = rows(op.result)};
    // Attention keeps what it gives.
    const std::optional<size_t> maker = uses_.maker_of(in);
    const bool is_of_attention = maker && program_.operators[*maker].kind == OperatorKind::kAttention;
    if (!is_of_attention && !is_kept(in)) keep(made, in, matmul.in);
    OpWeights weights = *named(weight, bias != nullptr ? std::optional(bias->operands[1]) : std::nullopt);
    weights.is_transposed = dims->is_transposed;
    made.weights = std::make_shared<const OpWeights>(std::move(weights));
    ops_.push_back(std::move(made));
  }

  void write_norm(const Operator& op) {
    if (op.operands.size() == 1) return write_pointwise(op);
    for (size_t i = 1; i < op.operands.size(); ++i) {
      if (!is_weight(program_, op.operands[i]) || value(op.operands[i]).dims.size() != 1)
        return refuse(
            op, fmt::format("is scaled by {}, which is no weight of one dim", in_quotes(value(op.operands[i]).name)),
            "Its second and third operands are weights of the dim that it norms.");
    }
    const bool has_bias = op.operands.size() == 3;
    const int64_t elements = width(op.operands[0]);
    Op made{.name = op.name,
            .shape = Norm{.width = elements, .has_bias = has_bias, .epsilon = op.calculation.epsilon},
            .rows = rows(op.result),
            .saved = {.whole = elements, .whole_fp32 = has_bias ? 2 : 1}};
    made.weights = named(op.operands[1], has_bias ? std::optional(op.operands[2]) : std::nullopt);
    ops_.push_back(std::move(made));
  }

  void write_attention(const Operator& op) {
    const Attention& a = op.attention;
    const int64_t q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim;
    if (value(op.operands[0]).dims.size() != 3)
      return refuse(op, "has other dims than samples, rows and heads", "Its rule is like 'b s k -> b s k'.");
    const auto has_heads = [&](size_t index, int64_t elements) {
      const ProgramDim& dim = program_.dims[value(index).dims.back()];
      return a.kv_heads > 0 && a.heads % a.kv_heads == 0 && dim.length == elements && dim.num_units() == a.kv_heads;
    };
    if (!has_heads(op.operands[0], q + 2 * kv) || !has_heads(op.result, q))
      return refuse(
          op,
          fmt::format("has {} heads, {} of keys, of {} elements, but reads {} and makes {}", a.heads, a.kv_heads,
                      a.head_dim, dim_text(op.operands[0]), dim_text(op.result)),
          fmt::format("A unit is what a key's head, its value and its queries have: 'dim k {} unit {}' is read, "
                      "'dim o {} unit {}' made.",
                      q + 2 * kv, (q + 2 * kv) / std::max<int64_t>(1, a.kv_heads), q,
                      q / std::max<int64_t>(1, a.kv_heads)));
    ops_.push_back({.name = op.name,
                    .shape = a,
                    .in = features(op.operands[0]),
                    .out = features(op.result),
                    .rows = rows(op.result),
                    .saved = {.divided = 2 * q + 2 * kv, .divided_fp32 = a.heads}});
  }

  void write_lookup(size_t index) {
    const Operator& op = program_.operators[index];
    const size_t table = op.operands[1];
    if (!is_data(op.operands[0]) || !is_weight(program_, table) || value(table).dims.size() != 2)
      return refuse(op, "looks up what is no weight of two dims, or by numbers that are no data",
                    "Its rule is like 'b s, v h -> b s h', with data and a weight.");
    const size_t entries = value(table).dims.front();
    if (program_.dims[entries].unit != 1)
      return refuse(op,
                    fmt::format("has a table whose entries {} come in units", in_quotes(program_.dims[entries].name)),
                    "Entries are cut anywhere.");
    Op made{.name = op.name,
            .shape = Lookup{.entries = length(entries), .width = length(value(table).dims.back())},
            .in = block_.choices[index] != Choice::same() ? Features::kVocabulary : Features::kWidth,
            .rows = rows(op.result)};
    made.weights = named(table);
    ops_.push_back(std::move(made));
  }

  void write_loss(const Operator& op) {
    if (!is_data(op.operands[1]))
      return refuse(op, "compares with what is no data", "Its second operand is data: the number of a class a row.");
    const int64_t classes = width(op.operands[0]);
    Op made{.name = op.name,
            .shape = CrossEntropy{.classes = classes},
            .in = features(op.operands[0]),
            .out = features(op.operands[0]),
            .rows = rows(op.operands[0]),
            .saved = {.whole_fp32 = 1},
            .has_whole_rows = true};
    keep(made, op.operands[0], classes);
    ops_.push_back(std::move(made));
  }

  void write_pointwise(const Operator& op) {
    const bool is_wide = op.kind == OperatorKind::kSum;  // its rows are those that it reads
    const size_t first = op.operands[0];
    Pointwise shape{.elements_out = width(is_wide ? first : op.result)};
    Op made{.name = op.name, .in = features(first), .out = features(is_wide ? first : op.result)};
    made.rows = rows(is_wide ? first : op.result);
    for (const size_t operand : op.operands) {
      if (!is_weight(program_, operand)) {
        shape.elements_in += width(operand);
        continue;
      }
      const bool is_known =
          op.kind == OperatorKind::kAdd || op.kind == OperatorKind::kMultiply || op.kind == OperatorKind::kCustom;
      if (!is_known || shape.scales > 0 || value(operand).dims.size() != 1)
        return refuse(op,
                      fmt::format("reads the weight {}, which {} does not take", in_quotes(value(operand).name),
                                  name_of(op.kind)),
                      "add, multiply and custom take one weight of one dim; tables are for lookup, matrices for "
                      "einsum.");
      shape.scales = length(value(operand).dims[0]);
      shape.fresh_scale = op.kind == OperatorKind::kAdd ? 0 : 1;
      made.weights = named(operand);
    }
    if (is_weight(program_, first)) return refuse(op, "has a weight as its first operand", "Write the rows first.");
    shape.is_sum = op.kind == OperatorKind::kAdd && shape.scales == 0;
    shape.dropout = op.calculation.dropout;
    if (op.kind == OperatorKind::kDropout && shape.dropout > 0) shape.dropped = shape.elements_out;
    if (op.calculation.function) shape.activation = *op.calculation.function;
    const bool norms = op.kind == OperatorKind::kCustom && shape.scales > 0;
    if (op.kind == OperatorKind::kElementwise || op.kind == OperatorKind::kMultiply || norms) {
      for (const size_t operand : op.operands) {
        if (!is_weight(program_, operand) && !is_data(operand) && !is_kept(operand))
          keep(made, operand, width(operand));
      }
    }
    if (op.kind == OperatorKind::kSoftmax || op.kind == OperatorKind::kNorm) keep(made, op.result, width(op.result));
    made.shape = shape;
    ops_.push_back(std::move(made));
  }

  std::optional<Error> find_unread_weight() const {
    for (size_t index = 0; index < program_.values.size(); ++index) {
      const std::vector<size_t>& readers = uses_.readers_of(index);
      if (is_weight(program_, index) && readers.size() > 1) {
        const Operator& second = program_.operators[readers[1]];
        return Error{.field = second.name,
                     .problem = fmt::format("reads the weight {}, which {} reads, too", in_quotes(value(index).name),
                                            in_quotes(program_.operators[readers[0]].name)),
                     .advice = "Only a table of the entry may be read once more, by a product of the exit."};
      }
    }
    return std::nullopt;
  }

  const BlockProgram& block_;
  const Program& program_;
  ProgramUses uses_;
  const ProgramFeatures& features_;
  ProgramRows rows_;
  std::optional<std::string> tied_;
  std::vector<Op> ops_;
  std::set<size_t> kept_;
  std::optional<Error> error_;
};

}  // namespace

Result<std::vector<Op>> ops_of(const BlockProgram& block, const ProgramFeatures& features, const ProgramRows& rows,
                               std::optional<std::string> tied) {
  return OpWriter(block, features, rows, std::move(tied)).write();
}

namespace {

/// Programs of families' layers call weights by their operators.
std::optional<OpWeightPlace> place_in_layer(const std::string& name, const std::vector<Op>& ops) {
  for (size_t op = 0; op < ops.size(); ++op) {
    if (name == ops[op].name + ".weight") return OpWeightPlace{.op = op};
    if (name == ops[op].name + ".bias" || name == ops[op].name + ".bias.weight")
      return OpWeightPlace{.op = op, .is_bias = true};
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::optional<OpWeightPlace>> weight_places(const Program& program, const std::vector<Op>& ops) {
  std::unordered_map<std::string_view, OpWeightPlace> by_name;
  for (size_t op = 0; op < ops.size(); ++op) {
    if (!ops[op].weights) continue;
    const OpWeights& weights = *ops[op].weights;
    by_name[weights.names.front()] = {.op = op, .is_transposed = weights.is_transposed};
    if (!weights.bias_names.empty()) by_name[weights.bias_names.front()] = {.op = op, .is_bias = true};
  }
  std::vector<std::optional<OpWeightPlace>> places(program.values.size());
  for (size_t value = 0; value < program.values.size(); ++value) {
    if (!is_weight(program, value)) continue;
    const auto found = by_name.find(program.values[value].name);
    if (found != by_name.end()) places[value] = found->second;
    if (!places[value]) places[value] = place_in_layer(program.values[value].name, ops);
  }
  return places;
}

}  // namespace weft
