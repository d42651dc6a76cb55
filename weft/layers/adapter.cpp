#include "weft/layers/adapter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/base/check.h"
#include "weft/layers/expert_rows.h"

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Rows of `up` that continue one part of `down`, and that part.
struct Stretch {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t part = -1;
};

std::vector<Stretch> stretches_of(const Adapter& adapter) {
  const std::vector<WeightPiece>& pieces = adapter.up->spec.pieces;
  const size_t num_pieces = adapter.part_of_piece.size();
  WEFT_CHECK(num_pieces > 0 && pieces.size() % num_pieces == 0, "{} parts of an adapter's {} pieces", num_pieces,
             pieces.size());
  std::vector<Stretch> stretches;
  int64_t row = 0;
  for (size_t i = 0; i < num_pieces; ++i) {
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

namespace {

struct ExpertAdapterHolder : torch::CustomClassHolder {
  Adapter adapter;
  std::vector<int64_t> counts;
  WeightGradients* deferred = nullptr;
};

void add_expert_gradients(const ExpertAdapterHolder& layer, const at::Tensor& x, const at::Tensor& narrow,
                          const at::Tensor& d_narrow, const at::Tensor& dy) {
  const at::NoGradGuard no_graph;
  const Adapter& adapter = layer.adapter;
  Parameter &down = *adapter.down, &up = *adapter.up;
  if (down.is_trainable()) begin_gradient(down);
  if (up.is_trainable()) begin_gradient(up);
  const std::vector<Stretch> stretches = stretches_of(adapter);
  each_expert(layer.counts, [&](int64_t expert, int64_t row, int64_t rows) {
    if (down.is_trainable())
      add_product_to(down.gradient.select(0, expert), d_narrow.narrow(0, row, rows).t(), x.narrow(0, row, rows));
    if (!up.is_trainable()) return;
    for (const Stretch& stretch : stretches) {
      if (stretch.part < 0) continue;
      add_product_to(up.gradient.select(0, expert).narrow(0, stretch.first_row, stretch.num_rows),
                     dy.narrow(0, row, rows).narrow(1, stretch.first_row, stretch.num_rows).t(),
                     part_of(narrow.narrow(0, row, rows), adapter, stretch), adapter.scale);
    }
  });
}

struct ExpertAdapterFunction : torch::autograd::Function<ExpertAdapterFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& x, const at::Tensor& /*parameter*/,
                            const c10::intrusive_ptr<ExpertAdapterHolder>& layer) {
    const Adapter& adapter = layer->adapter;
    const at::Tensor &down = adapter.down->value, &up = adapter.up->value;
    const at::Tensor narrow = at::empty({x.size(0), down.size(1)}, x.options());
    at::Tensor wide = at::empty({x.size(0), up.size(1)}, x.options());
    const std::vector<Stretch> stretches = stretches_of(adapter);
    each_expert(layer->counts, [&](int64_t expert, int64_t row, int64_t rows) {
      at::Tensor own = narrow.narrow(0, row, rows);
      at::mm_out(own, x.narrow(0, row, rows), down.select(0, expert).t());
      for (const Stretch& stretch : stretches) {
        const at::Tensor part = wide.narrow(0, row, rows).narrow(1, stretch.first_row, stretch.num_rows);
        if (stretch.part < 0) {
          part.zero_();
        } else {
          part.copy_(at::mm(part_of(own, adapter, stretch),
                            up.select(0, expert).narrow(0, stretch.first_row, stretch.num_rows).t()));
        }
      }
    });
    saved->save_for_backward({adapter.down->is_trainable() ? x : at::Tensor(),
                              adapter.up->is_trainable() ? narrow : at::Tensor(), down, up});
    saved->saved_data["layer"] = at::IValue::make_capsule(layer);
    return wide.mul_(adapter.scale);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const at::NoGradGuard no_graph;
    const variable_list tensors = saved->get_saved_variables();
    const auto layer = c10::static_intrusive_pointer_cast<ExpertAdapterHolder>(saved->saved_data["layer"].toCapsule());
    const Adapter& adapter = layer->adapter;
    const at::Tensor &down = tensors[2], &up = tensors[3];
    const at::Tensor dy = gradients[0].contiguous();
    at::Tensor d_narrow = at::zeros({dy.size(0), down.size(1)}, dy.options());
    const std::vector<Stretch> stretches = stretches_of(adapter);
    each_expert(layer->counts, [&](int64_t expert, int64_t row, int64_t rows) {
      for (const Stretch& stretch : stretches) {
        if (stretch.part < 0) continue;
        part_of(d_narrow.narrow(0, row, rows), adapter, stretch)
            .add_(at::mm(dy.narrow(0, row, rows).narrow(1, stretch.first_row, stretch.num_rows),
                         up.select(0, expert).narrow(0, stretch.first_row, stretch.num_rows)));
      }
    });
    d_narrow.mul_(adapter.scale);
    if (adapter.is_trainable() && layer->deferred != nullptr) {
      const auto detached = [](const at::Tensor& kept) { return kept.defined() ? kept.detach() : kept; };
      layer->deferred->add([layer, x = detached(tensors[0]), narrow = detached(tensors[1]), d_narrow, dy] {
        add_expert_gradients(*layer, x, narrow, d_narrow, dy);
      });
    } else if (adapter.is_trainable()) {
      add_expert_gradients(*layer, tensors[0], tensors[1], d_narrow, dy);
    }
    at::Tensor dx;
    if (saved->needs_input_grad(0)) {
      dx = at::empty({dy.size(0), down.size(2)}, dy.options());
      each_expert(layer->counts, [&](int64_t expert, int64_t row, int64_t rows) {
        at::Tensor part = dx.narrow(0, row, rows);
        at::mm_out(part, d_narrow.narrow(0, row, rows), down.select(0, expert));
      });
    }
    return {dx, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor add_expert_adapter(const at::Tensor& y, const at::Tensor& x, const Adapter& adapter,
                              const std::vector<int64_t>& counts, const RunContext& context) {
  WEFT_CHECK(adapter.dropout == 0, "experts' rows have no numbers to draw {} of them by", adapter.dropout);
  auto layer = c10::make_intrusive<ExpertAdapterHolder>();
  layer->adapter = adapter;
  layer->counts = counts;
  layer->deferred = context.deferred;
  const at::Tensor& parameter = adapter.down->is_trainable() ? adapter.down->value : adapter.up->value;
  at::Tensor sum = y;
  return sum.add_(ExpertAdapterFunction::apply(x, parameter, layer));
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
