#include "weft/parallelize/tensor_parallel.h"

#include "weft/mesh/split.h"

namespace weft {

TensorParallel::TensorParallel(MeshGroups groups, bool divides_rows)
    : groups_(std::move(groups)), divides_rows_(divides_rows) {}

int64_t TensorParallel::local_rows(int64_t num_rows) const {
  if (!divides_rows_) return num_rows;
  const Range rows = Split(num_rows, {groups_.mesh().num_ranks()}).part(groups_.position());
  return rows.end - rows.begin;
}

at::Tensor TensorParallel::change(Change which, const at::Tensor& x, int64_t num_rows) {
  const auto key = std::tuple(which, num_rows, x.size(1));
  auto found = known_.find(key);
  if (found == known_.end()) {
    // How rows lie between blocks, and what each change starts from and ends in.
    const AxisState between = divides_rows_ ? AxisState::shard(0) : AxisState::replicated();
    AxisState from;
    AxisState to;
    switch (which) {
      case Change::kEnter:
        from = between;
        to = AxisState::replicated_partial_grad();
        break;
      case Change::kLeave:
        from = AxisState::partial();
        to = between;
        break;
      case Change::kSum:
        from = AxisState::partial();
        to = AxisState::replicated();
        break;
      case Change::kDivide:
        from = AxisState::replicated();
        to = between;
        break;
    }
    const auto layout = [&](AxisState state) {
      return *Layout::create(groups_.mesh().grid(), {num_rows, x.size(1)}, {state});
    };
    found = known_.emplace(key, Redistribution(groups_, layout(from), layout(to))).first;
  }
  return found->second(x);
}

ActivationSites TensorParallel::sites(int64_t num_rows) {
  const auto site = [this, num_rows](Change which) {
    return [this, num_rows, which](const at::Tensor& x) { return change(which, x, num_rows); };
  };
  return {.enter = site(Change::kEnter),
          .leave = site(Change::kLeave),
          .sum = site(Change::kSum),
          .divide = site(Change::kDivide),
          .vocabulary = group()};
}

}  // namespace weft
