#include "weft/tensor/row_exchange.h"

#include <memory>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/tensor/local_tensor.h"
#include "weft/tensor/row_elements.h"
#include "weft/tensor/row_places.h"

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A route as one rank of the group goes it.
class RankWay {
 public:
  RankWay(const OwnRoute& route, int64_t num_ranks, at::Device device)
      : num_held_(route.num_held),
        num_needed_(route.num_needed),
        has_messages_(route.moves_rows),
        to_(static_cast<size_t>(num_ranks), 0),
        from_(to_),
        kept_from_(route.kept_from, device),
        kept_to_(route.kept_to, device) {
    // Messages are sorted by the other rank: both sides pack in the order of ranks.
    std::vector<Range> sent, received;
    for (const OwnMessage& message : route.sent) {
      to_[static_cast<size_t>(message.peer)] = message.num_rows();
      sent.insert(sent.end(), message.places.begin(), message.places.end());
    }
    for (const OwnMessage& message : route.received) {
      from_[static_cast<size_t>(message.peer)] = message.num_rows();
      received.insert(received.end(), message.places.begin(), message.places.end());
    }
    sent_ = RowPlaces(sent, device);
    received_ = RowPlaces(received, device);
  }

  /// On no rank of the group anything moves, and this one needs exactly what it has.
  bool is_nothing() const {
    return !has_messages_ && kept_from_.are_all_of(num_held_) && kept_to_.are_all_of(num_needed_);
  }

  at::Tensor go(const at::Tensor& rows, Group group) const {
    const int64_t width = rows.size(1);
    const at::Tensor held = rows.contiguous();
    const bool has_gaps = received_.size() + kept_to_.size() < num_needed_;
    at::Tensor result =
        has_gaps ? at::zeros({num_needed_, width}, rows.options()) : at::empty({num_needed_, width}, rows.options());
    if (!has_messages_) {
      kept_to_.put(kept_from_.take(held), result);
      return result;
    }
    const at::Tensor sent = sent_.take(held);
    const at::Tensor received =
        received_.is_run() ? received_.take(result) : at::empty({received_.size(), width}, rows.options());
    Work work = group.all_to_all(buffer_of(sent), buffer_of(received), elements_of_rows(to_, width),
                                 elements_of_rows(from_, width));
    kept_to_.put(kept_from_.take(held), result);
    work.wait();
    if (!received_.is_run()) received_.put(received, result);
    return result;
  }

 private:
  int64_t num_held_;
  int64_t num_needed_;
  bool has_messages_;          ///< on any rank
  std::vector<int64_t> to_;    ///< rows to each rank
  std::vector<int64_t> from_;  ///< and from each
  RowPlaces sent_;             ///< by rank
  RowPlaces received_;
  RowPlaces kept_from_;
  RowPlaces kept_to_;
};

struct Ways : torch::CustomClassHolder {
  Ways(const Group& group_in, RankWay there_in, RankWay back_in)
      : group(group_in), there(std::move(there_in)), back(std::move(back_in)) {}

  Group group;
  RankWay there;
  RankWay back;
};

struct ExchangeRowsFunction : torch::autograd::Function<ExchangeRowsFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& rows, const c10::intrusive_ptr<Ways>& ways) {
    saved->saved_data["ways"] = at::IValue::make_capsule(ways);
    return ways->there.go(rows, ways->group);
  }
  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const auto ways = c10::static_intrusive_pointer_cast<Ways>(saved->saved_data["ways"].toCapsule());
    return {ways->back.go(gradients[0], ways->group), at::Tensor()};
  }
};

}  // namespace

at::Tensor exchange_rows(const at::Tensor& rows, const Group& group, const OwnRoute& route, const OwnRoute& back) {
  WEFT_CHECK(route.num_held == back.num_needed && route.num_needed == back.num_held,
             "the way back is not from who needs rows to who holds them");
  WEFT_CHECK(rows.defined() && rows.dim() == 2, "rows are [rows, width] on every rank, also without any");
  check_tensor(rows, {.shape = {route.num_held, rows.size(1)}, .type = {}, .device = {}},
               group.ranks()[static_cast<size_t>(group.rank())], "exchange of rows");
  RankWay there(route, group.size(), rows.device()), home(back, group.size(), rows.device());
  if (there.is_nothing() && home.is_nothing()) return rows;
  return ExchangeRowsFunction::apply(rows, c10::make_intrusive<Ways>(group, std::move(there), std::move(home)));
}

}  // namespace weft
