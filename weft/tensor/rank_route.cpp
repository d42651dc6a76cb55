#include "weft/tensor/rank_route.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

namespace weft {
namespace {

int64_t place_of(const Group& group, int64_t rank) {
  const auto found = std::lower_bound(group.ranks().begin(), group.ranks().end(), rank);
  return found - group.ranks().begin();
}

}  // namespace

at::Tensor BridgeTransfer::wait() {
  for (Work& work : works_) work.wait();
  const at::NoGradGuard no_grad;
  for (const Arrival& arrival : arrivals_) arrival.block.copy_(arrival.packed.view(arrival.block.sizes()));
  works_.clear();
  arrivals_.clear();
  sent_.clear();
  return std::move(result_);
}

RankRoute::RankRoute(const Route& route, const std::optional<MeshGroups>& from, const std::optional<MeshGroups>& to,
                     const Group& group, at::TensorOptions options, std::string what)
    : rank_(group.ranks()[static_cast<size_t>(group.rank())]),
      group_(group),
      options_(options),
      what_(std::move(what)) {
  std::optional<Box> source_box, target_box;
  if (from) {
    const Layout& given = route.reduce.empty() ? route.source : route.reduce.front().before;
    given_shape_ = given.local_shape(from->position());
    reduce_.emplace(route.reduce, *from);
    source_box = route.source.box(from->position());
  }
  if (to) {
    to_shape_ = route.target.local_shape(to->position());
    target_box = route.target.box(to->position());
    has_zeros_ = !needed_box(route.target, to->position()).has_value();
  }
  const auto message = [&](int64_t peer, const Box& box, const Box& whole) {
    const Box block = relative_box(box, whole);
    std::vector<int64_t> shape;
    for (const Range& range : whole) shape.push_back(range.size());
    return RankMessage{place_of(group, peer), block, stretch_begin(block, shape).has_value()};
  };
  for (const Message& m : route.messages) {
    if (m.from_rank == rank_) sends_.push_back(message(m.to_rank, m.box, *source_box));
    if (m.to_rank == rank_) receives_.push_back(message(m.from_rank, m.box, *target_box));
  }
  for (const KeptBlock& kept : route.kept) {
    if (kept.rank != rank_) continue;
    kept_.emplace(relative_box(kept.box, *source_box), relative_box(kept.box, *target_box));
    keeps_all_ = kept.box == *source_box && kept.box == *target_box;
  }
}

void RankRoute::check(const at::Tensor& x) const {
  if (!reduce_ && x.defined()) {
    throw TensorMisuse(fmt::format("rank {}, {}: there is a tensor {}, expected none: the rank is not in the mesh",
                                   rank_, what_, shape_text({x.sizes().data(), x.sizes().size()})));
  }
  const bool is_empty = std::find(given_shape_.begin(), given_shape_.end(), 0) != given_shape_.end();
  if (!reduce_ || (is_empty && !x.defined())) return;
  check_tensor(x, {.shape = given_shape_, .type = options_.dtype().toScalarType(), .device = options_.device()}, rank_,
               what_);
}

BridgeTransfer RankRoute::start(const at::Tensor& x) const {
  check(x);
  const at::NoGradGuard no_grad;
  BridgeTransfer transfer;
  at::Tensor source;
  if (reduce_) source = reduce_->run(x.defined() ? x.detach() : at::empty(given_shape_, options_));
  Group group = group_;
  if (to_shape_) {
    transfer.result_ = keeps_all_   ? source
                       : has_zeros_ ? at::zeros(*to_shape_, options_)
                                    : at::empty(*to_shape_, options_);
  }
  for (const RankMessage& message : receives_) {
    at::Tensor block = block_of(transfer.result_, message.block);
    at::Tensor memory = block;
    if (!message.is_stretch) {
      memory = at::empty({block.numel()}, options_);
      transfer.arrivals_.push_back({memory, block});
    }
    transfer.works_.push_back(group.recv(buffer_of(memory), message.peer));
  }
  for (const RankMessage& message : sends_) {
    transfer.sent_.push_back(block_of(source, message.block).contiguous());
    transfer.works_.push_back(group.send(buffer_of(transfer.sent_.back()), message.peer));
  }
  // Last, while messages are under way.
  if (kept_ && !keeps_all_) block_of(transfer.result_, kept_->second).copy_(block_of(source, kept_->first));
  return transfer;
}

}  // namespace weft
