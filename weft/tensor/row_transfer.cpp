#include "weft/tensor/row_transfer.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "weft/tensor/local_tensor.h"

namespace weft {

RowTransfer& RowTransfer::operator=(RowTransfer other) noexcept {
  std::swap(result_, other.result_);
  std::swap(sent_, other.sent_);
  std::swap(arriving_, other.arriving_);
  return *this;
}

void RowTransfer::receive() {
  for (Arriving& arriving : arriving_) arriving.work.wait();
  const at::NoGradGuard no_grad;
  for (const Arriving& arriving : arriving_) {
    if (arriving.rows.defined()) arriving.places.put(arriving.rows, result_);
  }
  arriving_.clear();
}

at::Tensor RowTransfer::wait() {
  receive();
  return std::move(result_);
}

bool RowTransfer::is_done() {
  bool has_all = true;
  for (Arriving& arriving : arriving_) has_all = arriving.work.is_done() && has_all;
  if (has_all) receive();
  std::erase_if(sent_, [](Sent& sent) {
    if (!sent.work.is_done()) return false;
    sent.work.wait();
    return true;
  });
  return has_all && sent_.empty();
}

void RowTransfer::finish() {
  receive();
  for (Sent& sent : sent_) sent.work.wait();
  sent_.clear();
}

void RowTransfer::add_to(TensorFlights& flights) const {
  for (const Sent& sent : sent_) flights.add(sent.rows);
  for (const Arriving& arriving : arriving_) flights.add(arriving.rows);
}

RowTransfer start_rows(const Group& group_in, const OwnRoute& route, const at::Tensor& rows, int64_t width,
                       const at::TensorOptions& options) {
  Group group = group_in;
  if (route.num_held > 0 || rows.defined()) {
    check_tensor(rows,
                 {.shape = {route.num_held, width}, .type = options.dtype().toScalarType(), .device = options.device()},
                 group.ranks()[static_cast<size_t>(group.rank())], "transfer of rows");
  }
  const at::NoGradGuard no_grad;
  const at::Tensor held = route.num_held > 0 ? rows.detach().contiguous() : at::empty({0, width}, options);
  const int64_t num_coming = row_traffic(route).received + total_size(route.kept_to);
  const std::vector<int64_t> shape = {route.num_needed, width};
  RowTransfer transfer;
  transfer.result_ = num_coming < route.num_needed ? at::zeros(shape, options) : at::empty(shape, options);
  for (const OwnMessage& message : route.received) {
    const RowPlaces places(message.places, options.device());
    at::Tensor own_memory;
    if (!places.is_run()) own_memory = at::empty({places.size(), width}, options);
    const at::Tensor memory = own_memory.defined() ? own_memory : places.take(transfer.result_);
    transfer.arriving_.push_back({own_memory, places, group.recv(buffer_of(memory), message.peer)});
  }
  for (const OwnMessage& message : route.sent) {
    const at::Tensor sent = RowPlaces(message.places, options.device()).take(held);
    transfer.sent_.push_back({sent, group.send(buffer_of(sent), message.peer)});
  }
  // Last, while messages are under way.
  if (!route.kept_to.empty()) {
    RowPlaces(route.kept_to, options.device())
        .put(RowPlaces(route.kept_from, options.device()).take(held), transfer.result_);
  }
  return transfer;
}

}  // namespace weft
