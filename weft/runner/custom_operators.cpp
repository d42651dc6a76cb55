#include "weft/runner/custom_operators.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/base/check.h"
#include "weft/layers/norm.h"
#include "weft/layers/rotary.h"
#include "weft/program/custom_functions.h"
#include "weft/tensor/local_tensor.h"

namespace weft {
namespace {

/// Packed rows in groups of heads that share a key: [..., groups, queries + 2, head_dim].
at::Tensor groups_of(const at::Tensor& packed, const Attention& heads) {
  return packed.unflatten(-1, {-1, heads.heads / heads.kv_heads + 2, heads.head_dim});
}

/// Turns queries and keys of packed groups, which lie before each value.
struct TurnFunction : torch::autograd::Function<TurnFunction> {
  /// [rows, groups, queries + 1, head_dim] of packed rows, as a view.
  static at::Tensor turning(const at::Tensor& packed, int64_t count, int64_t head_dim) {
    const int64_t groups = packed.size(-1) / ((count + 1) * head_dim);
    return packed.view({packed.numel() / packed.size(-1), groups, count + 1, head_dim}).narrow(2, 0, count);
  }

  static at::Tensor forward(torch::autograd::AutogradContext* saved, const at::Tensor& packed,
                            const at::Tensor& cosines, const at::Tensor& sines, int64_t count, bool in_place) {
    saved->save_for_backward({cosines, sines});
    saved->saved_data["count"] = count;
    const at::Tensor result =
        in_place && packed.is_contiguous() ? packed.detach() : packed.clone(at::MemoryFormat::Contiguous);
    rotate_(turning(result, count, 2 * cosines.size(-1)), {cosines, sines});
    return result;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 const torch::autograd::variable_list& gradients) {
    const auto tensors = saved->get_saved_variables();
    const at::Tensor result = is_own(gradients[0]) ? gradients[0] : gradients[0].clone(at::MemoryFormat::Contiguous);
    const int64_t count = saved->saved_data["count"].toInt();
    rotate_(turning(result, count, 2 * tensors[0].size(-1)), {tensors[0], tensors[1]}, /*back=*/true);
    return {result, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

/// Element i of a head turns with element i + head_dim / 2; queries and keys turn, values stay. `tables` are the
/// cosines and sines of every row.
at::Tensor turned(const at::Tensor& packed, const RotaryTable& tables, const CustomCall& call) {
  const Attention& heads = call.op.attention;
  const int64_t count = heads.heads / heads.kv_heads + 1;
  if (packed.numel() == 0) return packed.clone();
  if (tables.cos.size(0) * packed.size(-1) != packed.numel())
    throw WrongCall(fmt::format("{}: {} rows have angles, {} are turned", call.op.name, tables.cos.size(0),
                                packed.numel() / packed.size(-1)));
  return TurnFunction::apply(packed, tables.cos, tables.sin, count, call.owns_first);
}

/// Angles, or cosines and sines, are there for all elements of a head.
void check_table(const at::Tensor& table, int64_t needed, const CustomCall& call) {
  if (table.size(-1) == needed) return;
  throw WrongCall(fmt::format("{}: {} numbers turn a row, heads of {} elements need {}", call.op.name, table.size(-1),
                              call.op.attention.head_dim, needed));
}

at::Tensor rotary(const std::vector<at::Tensor>& x, const CustomCall& call) {
  const at::ScalarType type = x[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  check_table(x[1], call.op.attention.head_dim / 2, call);
  const at::Tensor angles = x[1].to(type).flatten(0, -2);
  return turned(x[0], {angles.cos(), angles.sin()}, call);
}

/// The same by cosines and, behind them, sines.
at::Tensor rotary_table(const std::vector<at::Tensor>& x, const CustomCall& call) {
  check_table(x[1], call.op.attention.head_dim, call);
  const std::vector<at::Tensor> halves = x[1].flatten(0, -2).chunk(2, 1);
  return turned(x[0], {halves[0], halves[1]}, call);
}

/// Which heads of a group are normed.
struct NormedHeads {
  int64_t first = 0;
  int64_t count = 0;
};

at::Tensor norm_of_heads(const std::vector<at::Tensor>& x, const CustomCall& call, NormedHeads which) {
  const Attention& heads = call.op.attention;
  const int64_t size = heads.heads / heads.kv_heads + 2;
  const double epsilon = call.op.calculation.epsilon;
  if (x[1].size(0) != heads.head_dim && x[1].size(0) != heads.kv_heads * which.count * heads.head_dim)
    throw WrongCall(fmt::format("{}: its weight has {} elements, a head has {}, all heads of a row have {}",
                                call.op.name, x[1].size(0), heads.head_dim,
                                heads.kv_heads * which.count * heads.head_dim));
  if (x[1].size(0) == heads.head_dim && heads.kv_heads * which.count > 1)
    return norm_group_heads(x[0], x[1],
                            {.size = size, .head_dim = heads.head_dim, .first = which.first, .count = which.count},
                            epsilon, call.owns_first);
  // All heads of a row together; this rank has those of its groups.
  const at::Tensor groups = groups_of(x[0], heads), own = groups.narrow(-2, which.first, which.count);
  const at::ScalarType type = x[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor exact = own.to(type);
  const at::Tensor sums = call.sum_inside(exact.square().flatten(-3).sum(-1)) / static_cast<double>(x[1].size(0));
  const at::Tensor scale = (sums + epsilon).rsqrt().unsqueeze(-1).unsqueeze(-1).unsqueeze(-1);
  const Range part = call.parts[0].back();
  const int64_t begin = part.empty() ? 0 : part.begin / (size * heads.head_dim);
  const at::Tensor weight = x[1].view({heads.kv_heads, which.count, heads.head_dim}).narrow(0, begin, groups.size(-3));
  const at::Tensor normed = (exact * scale).to(x[0].scalar_type()) * weight;
  const at::Tensor before = groups.narrow(-2, 0, which.first);
  const at::Tensor behind = groups.narrow(-2, which.first + which.count, size - which.first - which.count);
  return at::cat({before, normed, behind}, -2).flatten(-3);
}

}  // namespace

CustomOperators CustomOperators::built_in() {
  CustomOperators all;
  all.functions_["rotary"] = rotary;
  all.functions_["rotary_table"] = rotary_table;
  all.functions_["merge_rows"] = [](const std::vector<at::Tensor>& x, const CustomCall& call) {
    return x[0].reshape({call.result_shape.data(), call.result_shape.size()});
  };
  all.functions_["norm_queries"] = [](const std::vector<at::Tensor>& x, const CustomCall& call) {
    return norm_of_heads(x, call, {.first = 0, .count = call.op.attention.heads / call.op.attention.kv_heads});
  };
  all.functions_["norm_keys"] = [](const std::vector<at::Tensor>& x, const CustomCall& call) {
    return norm_of_heads(x, call, {.first = call.op.attention.heads / call.op.attention.kv_heads, .count = 1});
  };
  return all;
}

std::optional<Error> CustomOperators::add(std::string name, CustomFunction function) {
  WEFT_CHECK(function != nullptr, "the custom operator {} has no function", name);
  if (!functions_.emplace(name, std::move(function)).second)
    return Error{.field = name,
                 .problem = "is the name of two custom operators",
                 .advice = "Give one of them another name, and write it behind 'calls'."};
  return std::nullopt;
}

const CustomFunction* CustomOperators::find(const Operator& op) const {
  const auto found = functions_.find(function_of(op));
  return found == functions_.end() ? nullptr : &found->second;
}

std::vector<std::string> CustomOperators::names() const {
  std::vector<std::string> names;
  for (const auto& [name, function] : functions_) names.push_back(name);
  return names;
}

}  // namespace weft
