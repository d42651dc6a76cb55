#include "weft/layers/expert_exchange.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/base/check.h"
#include "weft/tensor/local_tensor.h"
#include "weft/tensor/row_elements.h"

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

int64_t sum(const std::vector<int64_t>& counts) {
  int64_t all = 0;
  for (const int64_t count : counts) all += count;
  return all;
}

/// Rows to and from each rank, in their order.
struct Way : torch::CustomClassHolder {
  Way(const Group& group_in, std::vector<int64_t> to_in, std::vector<int64_t> from_in)
      : group(group_in), to(std::move(to_in)), from(std::move(from_in)) {}

  Group group;
  std::vector<int64_t> to;
  std::vector<int64_t> from;

  at::Tensor move(const at::Tensor& rows, bool backward) const {
    const std::vector<int64_t>& out = backward ? from : to;
    const std::vector<int64_t>& in = backward ? to : from;
    const int64_t width = rows.size(1);
    const at::Tensor sent = rows.contiguous();
    const at::Tensor received = at::empty({sum(in), width}, rows.options());
    Group(group)
        .all_to_all(buffer_of(sent), buffer_of(received), elements_of_rows(out, width), elements_of_rows(in, width))
        .wait();
    return received;
  }
};

struct ExchangeFunction : torch::autograd::Function<ExchangeFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& rows, const c10::intrusive_ptr<Way>& way) {
    saved->saved_data["way"] = at::IValue::make_capsule(way);
    return way->move(rows, /*backward=*/false);
  }
  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const auto way = c10::static_intrusive_pointer_cast<Way>(saved->saved_data["way"].toCapsule());
    return {way->move(gradients[0], /*backward=*/true), at::Tensor()};
  }
};

at::Tensor index_tensor(std::vector<int64_t>& indices, at::Device device) {
  return at::from_blob(indices.data(), {static_cast<int64_t>(indices.size())}, at::TensorOptions().dtype(at::kLong))
      .to(device, /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

ExpertExchange plan_exchange(const Group& group, const std::vector<int64_t>& counts, at::Device device) {
  const int64_t num_ranks = group.size();
  const auto num_experts = static_cast<int64_t>(counts.size());
  WEFT_CHECK(num_experts % num_ranks == 0, "{} experts on {} ranks", num_experts, num_ranks);
  const int64_t here = num_experts / num_ranks;
  ExpertExchange exchange{.group = group};
  // [from rank][expert here]
  std::vector<int64_t> arriving(static_cast<size_t>(num_experts));
  exchange.group
      .all_to_all(ConstBuffer(counts.data(), num_experts, DataType::kInt64),
                  Buffer{.data = arriving.data(), .count = num_experts, .type = DataType::kInt64})
      .wait();
  exchange.counts.resize(static_cast<size_t>(here));
  std::vector<int64_t> first_row(static_cast<size_t>(num_experts));  // of a rank's rows for an expert, as they arrive
  int64_t row = 0;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    int64_t sent = 0, received = 0;
    for (int64_t expert = 0; expert < here; ++expert) {
      const auto cell = static_cast<size_t>(rank * here + expert);
      sent += counts[cell];
      received += arriving[cell];
      first_row[cell] = row;
      row += arriving[cell];
      exchange.counts[static_cast<size_t>(expert)] += arriving[cell];
    }
    exchange.sent.push_back(sent);
    exchange.received.push_back(received);
  }
  std::vector<int64_t> order, inverse(static_cast<size_t>(row));
  order.reserve(static_cast<size_t>(row));
  for (int64_t expert = 0; expert < here; ++expert) {
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      const auto cell = static_cast<size_t>(rank * here + expert);
      for (int64_t i = 0; i < arriving[cell]; ++i) {
        inverse[static_cast<size_t>(first_row[cell] + i)] = static_cast<int64_t>(order.size());
        order.push_back(first_row[cell] + i);
      }
    }
  }
  exchange.order = index_tensor(order, device);
  exchange.inverse = index_tensor(inverse, device);
  return exchange;
}

at::Tensor dispatch(const at::Tensor& rows, const ExpertExchange& exchange) {
  const auto way = c10::make_intrusive<Way>(exchange.group, exchange.sent, exchange.received);
  return ExchangeFunction::apply(rows, way).index_select(0, exchange.order);
}

at::Tensor combine(const at::Tensor& rows, const ExpertExchange& exchange) {
  const auto way = c10::make_intrusive<Way>(exchange.group, exchange.received, exchange.sent);
  return ExchangeFunction::apply(rows.index_select(0, exchange.inverse), way);
}

}  // namespace weft
