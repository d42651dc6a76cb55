#include "weft/layers/adapter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "weft/base/check.h"

namespace weft {
namespace {

/// Rows of `up` that continue one part of `down`, and that part.
struct Stretch {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t part = -1;
};

std::vector<Stretch> stretches_of(const Adapter& adapter) {
  const std::vector<WeightPiece>& pieces = adapter.up->spec.pieces;
  WEFT_CHECK(pieces.size() == adapter.part_of_piece.size(), "{} parts of an adapter's {} pieces",
             adapter.part_of_piece.size(), pieces.size());
  std::vector<Stretch> stretches;
  int64_t row = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int64_t part = adapter.part_of_piece[i];
    if (!stretches.empty() && stretches.back().part == part) {
      stretches.back().num_rows += pieces[i].num_rows;
    } else {
      stretches.push_back({.first_row = row, .num_rows = pieces[i].num_rows, .part = part});
    }
    row += pieces[i].num_rows;
  }
  return stretches;
}

/// Columns of what `down` gives that belong to a part.
at::Tensor part_of(const at::Tensor& narrow, const Adapter& adapter, const Stretch& stretch) {
  return narrow.narrow(1, stretch.part * adapter.rank, adapter.rank);
}

}  // namespace

at::Tensor AdapterUse::add_to(const at::Tensor& y, const at::Tensor& x) const {
  const at::Tensor narrow = at::linear(drop ? drop(x) : x, adapter->down->value);
  for (const Stretch& stretch : stretches_of(*adapter)) {
    if (stretch.part < 0) continue;
    y.narrow(1, stretch.first_row, stretch.num_rows)
        .addmm_(part_of(narrow, *adapter, stretch),
                adapter->up->value.narrow(0, stretch.first_row, stretch.num_rows).t(), /*beta=*/1, adapter->scale);
  }
  return narrow;
}

at::Tensor AdapterUse::narrow_gradient(const at::Tensor& dy) const {
  const int64_t width = adapter->down->value.size(0);
  at::Tensor sum;
  for (const Stretch& stretch : stretches_of(*adapter)) {
    if (stretch.part < 0) continue;
    const at::Tensor part = at::mm(dy.narrow(1, stretch.first_row, stretch.num_rows),
                                   adapter->up->value.narrow(0, stretch.first_row, stretch.num_rows));
    if (width == adapter->rank) {
      sum = sum.defined() ? sum.add_(part) : part;
      continue;
    }
    if (!sum.defined()) sum = at::zeros({dy.size(0), width}, dy.options());
    part_of(sum, *adapter, stretch).add_(part);
  }
  return sum.mul_(adapter->scale);
}

void AdapterUse::add_to_gradient(const at::Tensor& dx, const at::Tensor& d_narrow) const {
  // An element that was dropped is one whose gradient is, by the same factor.
  if (drop)
    dx.add_(drop(at::mm(d_narrow, adapter->down->value)));
  else
    dx.addmm_(d_narrow, adapter->down->value);
}

void AdapterUse::add_weight_gradients(const at::Tensor& whole, const at::Tensor& narrow, const at::Tensor& d_narrow,
                                      const at::Tensor& dy) const {
  if (adapter->down->is_trainable()) adapter->down->add_product(d_narrow.t(), drop ? drop(whole) : whole);
  if (!adapter->up->is_trainable()) return;
  std::vector<at::Tensor> parts;
  for (const Stretch& stretch : stretches_of(*adapter)) {
    parts.push_back(stretch.part < 0 ? at::zeros({stretch.num_rows, adapter->rank}, dy.options())
                                     : at::mm(dy.narrow(1, stretch.first_row, stretch.num_rows).t(),
                                              part_of(narrow, *adapter, stretch))
                                           .mul_(adapter->scale));
  }
  adapter->up->add_gradient(parts.size() == 1 ? parts.front() : at::cat(parts, 0));
}

std::optional<AdapterUse> adapter_use(const Parameter& weight, const RunContext& context) {
  if (!weight.adapter) return std::nullopt;
  AdapterUse use{.adapter = weight.adapter, .drop = {}};
  if (weight.adapter->dropout > 0 && context.dropout != nullptr) {
    // What is dropped is drawn again for gradients, so that no copy is kept.
    use.drop = [rows = context.dropout->rows, probability = weight.adapter->dropout,
                key = dropout_key(*context.dropout, weight.adapter->number, DropoutSite::kAdapter),
                first = weight.adapter->down->spec.pieces.front().first_column](const at::Tensor& whole) {
      return drop_elements(whole, rows, probability, key, first);
    };
  }
  return use;
}

at::Tensor adapter_product(const Adapter& adapter) {
  const at::NoGradGuard no_graph;
  const at::Tensor &down = adapter.down->value, &up = adapter.up->value;
  std::vector<at::Tensor> parts;
  for (const Stretch& stretch : stretches_of(adapter)) {
    parts.push_back(stretch.part < 0 ? at::zeros({stretch.num_rows, down.size(1)}, up.options())
                                     : at::mm(up.narrow(0, stretch.first_row, stretch.num_rows),
                                              down.narrow(0, stretch.part * adapter.rank, adapter.rank)));
  }
  return (parts.size() == 1 ? parts.front() : at::cat(parts, 0)).mul_(adapter.scale);
}

}  // namespace weft
