#include "weft/program/program_features.h"

#include <algorithm>
#include <numeric>

#include "weft/program/program_uses.h"

namespace weft {
namespace {

/// Dims that rules call the same are one.
class DimClasses {
 public:
  explicit DimClasses(const Program& program) : parents_(program.dims.size()) {
    std::iota(parents_.begin(), parents_.end(), size_t{0});
    for (const Operator& op : program.operators) {
      std::vector<std::optional<size_t>> known(op.rule.dims.size());
      for (size_t i = 0; i <= op.operands.size(); ++i) {
        const bool is_result = i == op.operands.size();
        const ProgramValue& value = program.values[is_result ? op.result : op.operands[i]];
        const RuleTerm& term = is_result ? op.rule.result : op.rule.operands[i];
        for (size_t place = 0; place < term.size(); ++place) {
          if (term[place].size() != 1) continue;
          std::optional<size_t>& first = known[term[place][0]];
          if (!first) first = value.dims[place];
          parents_[root_of(value.dims[place])] = root_of(*first);
        }
      }
    }
    for (size_t dim = 0; dim < parents_.size(); ++dim) parents_[dim] = root_of(dim);
  }

  /// The same number for all dims of a class.
  size_t of(size_t dim) const { return parents_[dim]; }

 private:
  /// Shortens the way there, so that long chains of dims are gone through once.
  size_t root_of(size_t dim) {
    while (parents_[dim] != dim) dim = parents_[dim] = parents_[parents_[dim]];
    return dim;
  }

  std::vector<size_t> parents_;
};

/// Decides for every class of dims.
class FeatureFinder {
 public:
  FeatureFinder(const Program& program, const std::vector<size_t>& whole)
      : program_(program),
        uses_(program),
        classes_(program),
        is_whole_(program.dims.size()),
        is_cut_(program.dims.size()) {
    for (const size_t dim : whole) is_whole_[classes_.of(dim)] = true;
    for (const ProgramValue& value : program.values) note_value(value);
    for (const Operator& op : program.operators) {
      note_operator(op);
      if (const auto dims = product_dims(program, op))
        products_.push_back({class_of(op, dims->rows, dims->in), class_of(op, dims->weight, dims->out)});
      if (!first_table_ && op.kind == OperatorKind::kLookup && is_weight(program, op.operands[1]))
        first_table_ = op.operands[1];
    }
  }

  ProgramFeatures find() {
    while (!decide()) {
    }
    ProgramFeatures found;
    std::vector<Features> of_classes;
    for (size_t dim = 0; dim < program_.dims.size(); ++dim)
      of_classes.push_back(is_cut_[dim] ? Features::kInner : Features::kWidth);
    for (const Operator& op : program_.operators) name_features(op, of_classes);
    for (size_t dim = 0; dim < program_.dims.size(); ++dim) found.of_dims.push_back(of_classes[classes_.of(dim)]);
    for (const Operator& op : program_.operators) found.tensor_cuts.push_back(cut_of(op));
    return found;
  }

 private:
  /// Rows are not cut, nor is what comes with the data.
  void note_value(const ProgramValue& value) {
    if (value.role == ProgramValue::Role::kWeight) return;
    const bool is_given = value.role != ProgramValue::Role::kResult;
    for (size_t place = 0; place < value.dims.size(); ++place) {
      if (is_given || place + 1 < value.dims.size()) is_whole_[classes_.of(value.dims[place])] = true;
    }
  }

  /// What works on whole rows.
  void note_operator(const Operator& op) {
    const bool needs_whole = op.kind == OperatorKind::kNorm || op.kind == OperatorKind::kSoftmax;
    const bool has_own_weight = op.kind == OperatorKind::kMultiply || (op.kind == OperatorKind::kAdd && !is_bias(op));
    for (const size_t operand : op.operands) {
      const std::vector<size_t>& dims = program_.values[operand].dims;
      if (dims.empty()) continue;
      if (needs_whole || (has_own_weight && is_weight(program_, operand))) is_whole_[classes_.of(dims.back())] = true;
      if (op.kind == OperatorKind::kLookup && is_weight(program_, operand)) is_whole_[classes_.of(dims.back())] = true;
    }
  }

  bool is_bias(const Operator& op) const {
    const std::optional<size_t> maker = uses_.maker_of(op.operands[0]);
    return maker && product_dims(program_, program_.operators[*maker]).has_value() &&
           uses_.readers_of(op.operands[0]).size() == 1;
  }

  /// Goes through products in order. False where one had to be made whole, and all is to be looked at again.
  bool decide() {
    std::fill(is_cut_.begin(), is_cut_.end(), false);
    std::vector<bool> is_decided(program_.dims.size());
    for (const auto& [in, out] : products_) {
      if (!is_decided[out]) is_cut_[out] = !is_cut_[in] && !is_whole_[out];
      is_decided[out] = is_decided[in] = true;
      if (!is_cut_[in] || !is_cut_[out]) continue;
      is_whole_[out] = true;
      return false;
    }
    // A table that nothing else shares its entries with.
    if (first_table_) {
      const size_t entries = classes_.of(program_.values[*first_table_].dims.front());
      if (!is_decided[entries]) is_cut_[entries] = !is_whole_[entries];
    }
    return true;
  }

  size_t class_of(const Operator& op, size_t operand, size_t rule_dim) const {
    const RuleTerm& term = op.rule.operands[operand];
    for (size_t place = 0; place < term.size(); ++place) {
      if (term[place] == std::vector<size_t>{rule_dim})
        return classes_.of(program_.values[op.operands[operand]].dims[place]);
    }
    return 0;
  }

  void name_features(const Operator& op, std::vector<Features>& of_classes) const {
    const auto name = [&](size_t dim, Features features) {
      Features& known = of_classes[classes_.of(dim)];
      if (known != Features::kWidth) known = features;
    };
    const std::vector<size_t>& first = program_.values[op.operands[0]].dims;
    if (op.kind == OperatorKind::kAttention) name(first.back(), Features::kHeads);
    if (op.kind == OperatorKind::kCrossEntropy) name(first.back(), Features::kVocabulary);
    if (op.kind == OperatorKind::kLookup) name(program_.values[op.operands[1]].dims.front(), Features::kVocabulary);
  }

  std::optional<size_t> cut_of(const Operator& op) const {
    // Other tables are small: positions, types.
    if (op.kind == OperatorKind::kLookup && first_table_ != op.operands[1]) return std::nullopt;
    for (size_t i = 0; i <= op.operands.size(); ++i) {
      const bool is_result = i == op.operands.size();
      const ProgramValue& value = program_.values[is_result ? op.result : op.operands[i]];
      const RuleTerm& term = is_result ? op.rule.result : op.rule.operands[i];
      for (size_t place = 0; place < term.size(); ++place) {
        if (term[place].size() == 1 && is_cut_[classes_.of(value.dims[place])]) return term[place][0];
      }
    }
    return std::nullopt;
  }

  /// Classes of the dims that a product sums over and makes.
  struct Product {
    size_t in = 0;
    size_t out = 0;
  };

  const Program& program_;
  ProgramUses uses_;
  DimClasses classes_;
  std::vector<Product> products_;      ///< in order
  std::optional<size_t> first_table_;  ///< the weight that the first lookup reads
  std::vector<bool> is_whole_;         ///< by class
  std::vector<bool> is_cut_;           ///< by class
};

}  // namespace

ProgramFeatures features_of(const Program& program, const std::vector<size_t>& whole) {
  return FeatureFinder(program, whole).find();
}

bool is_weight(const Program& program, size_t value) {
  return program.values[value].role == ProgramValue::Role::kWeight;
}

std::optional<ProductDims> product_dims(const Program& program, const Operator& op) {
  if (op.kind != OperatorKind::kEinsum || op.operands.size() != 2) return std::nullopt;
  ProductDims dims;
  if (is_weight(program, op.operands[0]) == is_weight(program, op.operands[1])) return std::nullopt;
  if (is_weight(program, op.operands[0])) std::swap(dims.rows, dims.weight);
  const RuleTerm& weight = op.rule.operands[dims.weight];
  const RuleTerm& rows = op.rule.operands[dims.rows];
  if (weight.size() != 2 || weight[0].size() != 1 || weight[1].size() != 1) return std::nullopt;
  const auto is_summed = [&](size_t dim) { return has_dim(rows, dim) && !has_dim(op.rule.result, dim); };
  const auto is_made = [&](size_t dim) { return !has_dim(rows, dim) && has_dim(op.rule.result, dim); };
  dims.is_transposed = is_summed(weight[0][0]);
  dims.in = dims.is_transposed ? weight[0][0] : weight[1][0];
  dims.out = dims.is_transposed ? weight[1][0] : weight[0][0];
  if (!is_summed(dims.in) || !is_made(dims.out)) return std::nullopt;
  // Rows are what is left: no other sum is hidden in the product.
  for (const std::vector<size_t>& parts : rows) {
    for (const size_t dim : parts) {
      if (dim != dims.in && !has_dim(op.rule.result, dim)) return std::nullopt;
    }
  }
  return dims;
}

}  // namespace weft
