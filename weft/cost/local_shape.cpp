#include "weft/cost/local_shape.h"

#include <algorithm>

namespace weft {
namespace {

int64_t ceil_div(int64_t value, int64_t parts) {
  return (value + parts - 1) / parts;
}

/// The cut side of a product: heads stay whole, and key and value heads are copied where ranks outnumber them.
int64_t cut(int64_t size, const Matmul& m, int64_t parts) {
  if (m.head_dim == 0) return ceil_div(size, parts);
  const int64_t query_heads = size / m.head_dim - 2 * m.kv_heads;
  const int64_t kv_heads = m.kv_heads == 0 ? 0 : std::max<int64_t>(1, ceil_div(m.kv_heads, parts));
  return (ceil_div(query_heads, parts) + 2 * kv_heads) * m.head_dim;
}

struct Parameters {
  const Op& op;
  const BlockSetting& setting;

  LocalParameters operator()(const Matmul& m) const {
    if (m.is_tied) return {};
    const LocalMatmul local = local_matmul(m, op.split, setting);
    // A bias lies along the output, which only a column split cuts.
    const int64_t bias = op.split == TensorSplit::kColumn ? ceil_div(m.bias_elements, setting.tp) : m.bias_elements;
    const int64_t elements = local.copies * (local.in * local.out + bias);
    return m.copies > 1 ? LocalParameters{.expert = elements} : LocalParameters{.dense = elements};
  }
  LocalParameters operator()(const Lookup& l) const {
    const int64_t entries = op.split == TensorSplit::kColumn ? ceil_div(l.entries, setting.tp) : l.entries;
    return {.dense = entries * l.width};
  }
  LocalParameters operator()(const auto&) const { return {.dense = num_parameters(op)}; }
};

}  // namespace

LocalMatmul local_matmul(const Matmul& m, TensorSplit split, const BlockSetting& setting) {
  LocalMatmul local{.in = m.in, .out = m.out, .copies = m.copies > 1 ? ceil_div(m.copies, setting.ep) : 1};
  if (split == TensorSplit::kColumn || split == TensorSplit::kInside) local.out = cut(m.out, m, setting.tp);
  if (split == TensorSplit::kRow) local.in = cut(m.in, m, setting.tp);
  return local;
}

int64_t local_heads(int64_t heads, const BlockSetting& setting) {
  return ceil_div(ceil_div(heads, setting.tp), setting.cp_ulysses);
}

int64_t local_kv_heads(int64_t kv_heads, const BlockSetting& setting) {
  return std::max<int64_t>(1, ceil_div(ceil_div(kv_heads, setting.tp), setting.cp_ulysses));
}

LocalParameters local_parameters(const Op& op, const BlockSetting& setting) {
  return std::visit(Parameters{op, setting}, op.shape);
}

int64_t row_share(const Op& op, const BlockSetting& setting) {
  return op.split == TensorSplit::kWhole ? setting.row_share() : 1;
}

int64_t feature_share(const Op& op, const BlockSetting& setting) {
  return op.split == TensorSplit::kInside ? setting.tp : 1;
}

}  // namespace weft
