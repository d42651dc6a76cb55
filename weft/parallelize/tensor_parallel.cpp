#include "weft/parallelize/tensor_parallel.h"

#include <algorithm>

#include "weft/mesh/split.h"

namespace weft {

TensorParallel::TensorParallel(MeshGroups groups, bool divides_rows)
    : groups_(std::move(groups)), divides_rows_(divides_rows) {}

Range TensorParallel::rows_between(int64_t num_rows) const {
  if (!divides_rows_) return {0, num_rows};
  return Split(num_rows, {groups_.mesh().num_ranks()}).part(groups_.position());
}

int64_t TensorParallel::local_rows(int64_t num_rows) const {
  const Range rows = rows_between(num_rows);
  return rows.end - rows.begin;
}

Range TensorParallel::rows_sent(int64_t num_rows) const {
  const Range sent = weft::rows_sent(num_rows, groups_.mesh().num_ranks(), groups_.position());
  const int64_t first = rows_between(num_rows).begin;
  return {sent.begin - first, sent.end - first};
}

at::Tensor TensorParallel::join(const at::Tensor& part, int64_t num_rows) {
  return joins_rows() ? change(RowChange::kJoin, part, num_rows) : part;
}

Redistribution TensorParallel::make(const Key& key) const {
  const auto [which, num_rows, num_columns] = key;
  const std::vector<int64_t> shape = {num_rows, num_columns};
  const auto layout = [&](AxisState state) { return *Layout::create(groups_.mesh().grid(), shape, {state}); };
  const RowStates states = states_of(which, divides_rows_);
  return Redistribution(groups_, layout(states.from), layout(states.to));
}

at::Tensor TensorParallel::change(RowChange which, const at::Tensor& x, int64_t num_rows) {
  const Key key(which, num_rows, x.size(1));
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const auto& entry) { return entry.first == key; });
  if (found != known_.end()) {
    known_.splice(known_.begin(), known_, found);
  } else {
    known_.emplace_front(key, make(key));
    if (known_.size() > kMostKnown) known_.pop_back();
  }
  const Redistribution used = known_.front().second;  // running it may come back here
  return used(x);
}

ActivationSites TensorParallel::sites(int64_t num_rows) {
  const auto site = [this, num_rows](RowChange which) {
    return [this, num_rows, which](const at::Tensor& x) { return change(which, x, num_rows); };
  };
  const Range own = rows_between(num_rows);
  return {.enter = site(RowChange::kEnter),
          .leave = site(RowChange::kLeave),
          .sum = site(RowChange::kSum),
          .divide = site(RowChange::kDivide),
          .gather = site(RowChange::kGather),
          .divides_rows = divides_rows_,
          .first_row = own.begin,
          .num_rows = own.end - own.begin,
          .vocabulary = group()};
}

}  // namespace weft
