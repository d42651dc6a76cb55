#pragma once

#include <cmath>
#include <limits>
#include <map>

#include <ATen/ATen.h>

#include "weft/base/check.h"
#include "weft/program/program.h"

// A program in plain LibTorch, operator by operator and layer by layer, with nothing of what runs programs on ranks.
namespace weft {

using PlainValues = std::map<std::string, at::Tensor>;

class PlainProgram {
 public:
  explicit PlainProgram(const Program& program) : program_(program) {}

  /// What the program's last operator makes. Weights of layer i have "layers.i." before their names.
  at::Tensor run(const PlainValues& data, const PlainValues& weights) const {
    PlainValues values = data;
    int64_t layer = 0;
    for (size_t op = 0; op < program_.operators.size();) {
      const auto repeat = program_.repeat_of(op);
      if (!repeat) {
        compute(program_.operators[op++], "", weights, values);
        continue;
      }
      const Repeat& body = program_.repeats[*repeat];
      for (int64_t time = 0; time < body.count; ++time, ++layer) {
        for (size_t i = body.begin; i < body.end; ++i)
          compute(program_.operators[i], "layers." + std::to_string(layer) + ".", weights, values);
        const std::string& in = program_.values[body.carried_in].name;
        if (time + 1 < body.count) values[in] = values.at(program_.values[body.carried_out].name);
      }
      op = body.end;
    }
    return values.at(program_.operators.back().name);
  }

 private:
  static std::string letters(const Rule& rule, const RuleTerm& term) {
    std::string text;
    for (const auto& parts : term) text += static_cast<char>('a' + parts.at(0));
    (void)rule;
    return text;
  }

  void compute(const Operator& op, const std::string& path, const PlainValues& weights, PlainValues& values) const {
    std::vector<at::Tensor> x;
    for (const size_t operand : op.operands) {
      const ProgramValue& value = program_.values[operand];
      const bool is_weight = value.role == ProgramValue::Role::kWeight;
      x.push_back(is_weight ? weights.at(path + value.name) : values.at(value.name));
    }
    values[op.name] = result(op, x);
  }

  at::Tensor result(const Operator& op, const std::vector<at::Tensor>& x) const {
    switch (op.kind) {
      case OperatorKind::kEinsum:
      case OperatorKind::kMultiply:
      case OperatorKind::kSum: {
        std::string equation;
        for (const RuleTerm& term : op.rule.operands)
          equation += (equation.empty() ? "" : ",") + letters(op.rule, term);
        return at::einsum(equation + "->" + letters(op.rule, op.rule.result), x);
      }
      case OperatorKind::kAdd: {
        at::Tensor sum = x[0];
        for (size_t i = 1; i < x.size(); ++i) sum = sum + x[i];
        return sum;
      }
      case OperatorKind::kElementwise: {
        at::Tensor rows = x[0];
        const ProgramDim& from = program_.dims[program_.values[op.operands[0]].dims.back()];
        const ProgramDim& to = program_.dims[program_.values[op.result].dims.back()];
        if (from.length == to.length) return activated(op, rows);
        const at::Tensor halves = rows.unflatten(-1, {-1, 2, to.unit});
        return (activated(op, halves.select(-2, 0)) * halves.select(-2, 1)).flatten(-2);
      }
      case OperatorKind::kScale:
        return x[0] * op.calculation.factor;
      case OperatorKind::kDropout:
        WEFT_CHECK(op.calculation.dropout == 0, "{} drops", op.name);
        return x[0];
      case OperatorKind::kNorm: {
        const std::vector<int64_t> width = {x[0].size(-1)};
        if (x.size() == 3) return at::layer_norm(x[0], width, x[1], x[2], op.calculation.epsilon);
        return x[0] * (x[0].square().mean(-1, true) + op.calculation.epsilon).rsqrt() * x[1];
      }
      case OperatorKind::kAttention:
        return attended(op.attention, x[0]);
      case OperatorKind::kCustom:
        return custom(op, x);
      case OperatorKind::kLookup:
        return at::embedding(x[1], x[0]);
      case OperatorKind::kCrossEntropy: {
        const at::Tensor loss = at::cross_entropy_loss(x[0].flatten(0, -2), x[1].flatten().clamp_min(0), {}, 0);
        return at::where(x[1] >= 0, loss.view(x[1].sizes()), at::zeros({}, loss.options()));
      }
      default:
        WEFT_CHECK(false, "{} has no plain form", op.name);
    }
  }

  static at::Tensor activated(const Operator& op, const at::Tensor& x) {
    if (op.calculation.function == Activation::kRelu) return at::relu(x);
    if (op.calculation.function == Activation::kTanh) return at::tanh(x);
    return at::silu(x);
  }

  /// Norms of heads, each by itself or all of a row together, and heads that turn: of groups of queries, a key and a
  /// value.
  static at::Tensor custom(const Operator& op, const std::vector<at::Tensor>& x) {
    const Attention& a = op.attention;
    const int64_t shared = a.heads / a.kv_heads;
    const at::Tensor groups = x[0].unflatten(-1, {a.kv_heads, shared + 2, a.head_dim});
    const at::Tensor q = groups.narrow(-2, 0, shared), k = groups.narrow(-2, shared, 1),
                     v = groups.narrow(-2, shared + 1, 1);
    const auto normed = [&](const at::Tensor& heads) {
      const bool is_of_rows = x[1].size(0) != a.head_dim;
      const at::Tensor squares =
          is_of_rows ? heads.square().mean({-3, -2, -1}, true) : heads.square().mean(-1, /*keepdim=*/true);
      const at::Tensor weight = is_of_rows ? x[1].view({a.kv_heads, -1, a.head_dim}) : x[1];
      return heads * (squares + op.calculation.epsilon).rsqrt() * weight;
    };
    const auto turned = [&](const at::Tensor& heads) {
      const auto halves = heads.chunk(2, -1);
      const at::Tensor angles = x[1].unsqueeze(-2).unsqueeze(-2);
      return at::cat(
          {halves[0] * angles.cos() - halves[1] * angles.sin(), halves[1] * angles.cos() + halves[0] * angles.sin()},
          -1);
    };
    if (op.calculation.calls == "norm_queries") return at::cat({normed(q), k, v}, -2).flatten(-3);
    if (op.calculation.calls == "norm_keys") return at::cat({q, normed(k), v}, -2).flatten(-3);
    WEFT_CHECK(op.calculation.calls == "rotary", "{} has no plain form", op.name);
    return at::cat({turned(q), turned(k), v}, -2).flatten(-3);
  }

  static at::Tensor attended(const Attention& a, const at::Tensor& packed) {
    const int64_t shared = a.heads / a.kv_heads, rows = packed.size(1);
    const at::Tensor groups = packed.unflatten(-1, {a.kv_heads, shared + 2, a.head_dim});
    const auto heads = [&](const at::Tensor& x) { return x.permute({0, 2, 3, 1, 4}); };  // [b, kv, q, s, d]
    const at::Tensor q = heads(groups.narrow(-2, 0, shared));
    const at::Tensor k = heads(groups.narrow(-2, shared, 1)), v = heads(groups.narrow(-2, shared + 1, 1));
    at::Tensor scores = at::matmul(q, k.transpose(-1, -2)) / std::sqrt(static_cast<double>(a.head_dim));
    if (a.mask == Mask::kCausal) {
      const at::Tensor later = at::ones({rows, rows}, at::kBool).triu(1);
      scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
    }
    return at::matmul(at::softmax(scores, -1), v).permute({0, 3, 1, 2, 4}).flatten(-3);
  }

  const Program& program_;
};

}  // namespace weft
