#include "weft/spec/work.h"

#include <functional>

#include "weft/base/as_double.h"
#include "weft/program/adapter_ops.h"

namespace weft {
namespace {

constexpr double kFp32Bytes = 4;

/// Sums `value(block)` over a module's chain, visiting each kind of layer once.
double over_chain(const Module& module, const std::function<double(const Block&)>& value) {
  std::vector<double> per_kind;
  for (const Block& kind : module.distinct_layers) per_kind.push_back(value(kind));
  double total = value(module.entry) + value(module.exit);
  for (const size_t kind : module.layers) total += per_kind[kind];
  return total;
}

struct ForwardFlops {
  double rows;
  const Segments& segments;

  double operator()(const Matmul& m) const { return 2.0 * rows * as_double(m.in) * as_double(m.out); }
  // Two products of head_dim multiply-adds a pair: query with key, and weight with value.
  double operator()(const Attention& a) const {
    return 4.0 * num_attention_pairs(a, segments) * as_double(a.heads) * as_double(a.head_dim);
  }
  double operator()(const auto&) const { return 0.0; }
};

/// Elements read and written; weights are read once.
struct ForwardElements {
  double rows;

  double operator()(const Matmul& m) const {
    return rows * as_double(m.in + m.out) +
           as_double(m.experts) * (as_double(m.in) * as_double(m.out) + as_double(m.bias_elements));
  }
  double operator()(const Attention& a) const {
    return rows * as_double(2 * a.heads + 2 * a.kv_heads) * as_double(a.head_dim);
  }
  double operator()(const Norm& n) const { return rows * 2.0 * as_double(n.width * n.groups); }
  double operator()(const Pointwise& p) const { return rows * as_double(p.elements_in + p.elements_out); }
  double operator()(const Lookup& l) const { return rows * 2.0 * as_double(l.width); }
  double operator()(const CrossEntropy& c) const { return rows * 2.0 * as_double(c.classes); }
};

}  // namespace

double forward_flops(const Op& op, const Segments& segments) {
  return std::visit(ForwardFlops{op.rows.of(num_tokens(segments)), segments}, op.shape);
}

double forward_flops(const Block& block, const Segments& segments) {
  double total = 0;
  for (const Op& op : block.ops) total += forward_flops(op, segments);
  return total;
}

double forward_flops(const Module& module, const Segments& segments) {
  return over_chain(module, [&](const Block& block) { return forward_flops(block, segments); });
}

double weight_gradient_flops(const Op& op, const Segments& segments) {
  return std::holds_alternative<Matmul>(op.shape) ? forward_flops(op, segments) : 0.0;
}

double input_gradient_flops(const Op& op, const Segments& segments) {
  return forward_flops(op, segments) * (std::holds_alternative<Attention>(op.shape) ? 2.0 : 1.0);
}

double backward_flops(const Module& module, const Segments& segments, BackwardNeeds needs) {
  bool is_adapted = has_adapters(module.entry) || has_adapters(module.exit);
  for (const Block& kind : module.distinct_layers) is_adapted |= has_adapters(kind);
  const double all = over_chain(module, [&](const Block& block) {
    double total = 0;
    for (const Op& op : block.ops) {
      if (needs.weights && (!is_adapted || is_adapter(op))) total += weight_gradient_flops(op, segments);
      if (needs.inputs) total += input_gradient_flops(op, segments);
    }
    return total;
  });
  return needs.inputs ? all - input_gradient_flops(module.entry.ops.front(), segments) : all;
}

double forward_traffic_bytes(const Op& op, const Segments& segments, Precision precision) {
  return num_bytes(precision) * std::visit(ForwardElements{op.rows.of(num_tokens(segments))}, op.shape);
}

double forward_traffic_bytes(const Block& block, const Segments& segments, Precision precision) {
  double total = 0;
  for (const Op& op : block.ops) total += forward_traffic_bytes(op, segments, precision);
  return total;
}

double saved_bytes_per_token(const Block& block, Precision precision) {
  double total = 0;
  for (const Op& op : block.ops) {
    total += op.rows.value() * (num_bytes(precision) * as_double(op.saved.whole + op.saved.divided) +
                                kFp32Bytes * as_double(op.saved.whole_fp32 + op.saved.divided_fp32));
  }
  return total;
}

double saved_bytes_per_token(const Module& module, Precision precision) {
  return over_chain(module, [&](const Block& block) { return saved_bytes_per_token(block, precision); });
}

}  // namespace weft
