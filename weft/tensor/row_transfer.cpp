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

RowTransfer start_rows(const Group& group_in, const RowRoute& route, const at::Tensor& rows, int64_t width,
                       const at::TensorOptions& options) {
  Group group = group_in;
  WEFT_CHECK(route.num_ranks() == group.size(), "a route of {} ranks in a group of {}", route.num_ranks(),
             group.size());
  const int64_t rank = group.rank();
  const int64_t num_held = route.num_held[static_cast<size_t>(rank)];
  const int64_t num_needed = route.num_needed[static_cast<size_t>(rank)];
  if (num_held > 0 || rows.defined()) {
    check_tensor(rows, {.shape = {num_held, width}, .type = options.dtype().toScalarType(), .device = options.device()},
                 group.ranks()[static_cast<size_t>(rank)], "transfer of rows");
  }
  const at::NoGradGuard no_grad;
  const at::Tensor held = num_held > 0 ? rows.detach().contiguous() : at::empty({0, width}, options);
  int64_t num_coming = 0;
  for (const std::vector<RowMessage>* messages : {&route.messages, &route.kept}) {
    for (const RowMessage& message : *messages) num_coming += message.to == rank ? message.num_rows() : 0;
  }
  RowTransfer transfer;
  transfer.result_ =
      num_coming < num_needed ? at::zeros({num_needed, width}, options) : at::empty({num_needed, width}, options);
  for (const RowMessage& message : route.messages) {
    if (message.to != rank) continue;
    const RowPlaces places(message.receiver_places, options.device());
    at::Tensor own_memory;
    if (!places.is_run()) own_memory = at::empty({places.size(), width}, options);
    const at::Tensor memory = own_memory.defined() ? own_memory : places.take(transfer.result_);
    transfer.arriving_.push_back({own_memory, places, group.recv(buffer_of(memory), message.from)});
  }
  for (const RowMessage& message : route.messages) {
    if (message.from != rank) continue;
    const at::Tensor sent = RowPlaces(message.sender_places, options.device()).take(held);
    transfer.sent_.push_back({sent, group.send(buffer_of(sent), message.to)});
  }
  // Last, while messages are under way.
  for (const RowMessage& kept : route.kept) {
    if (kept.from != rank) continue;
    RowPlaces(kept.receiver_places, options.device())
        .put(RowPlaces(kept.sender_places, options.device()).take(held), transfer.result_);
  }
  return transfer;
}

}  // namespace weft
