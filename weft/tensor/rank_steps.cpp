#include "weft/tensor/rank_steps.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

namespace weft {

RankSteps::RankSteps(std::span<const Step> steps, const MeshGroups& groups) {
  for (const Step& step : steps) steps_.push_back(rank_step(step, groups));
}

RankSteps::RankStep RankSteps::rank_step(const Step& step, const MeshGroups& groups) {
  const int64_t position = groups.position();
  const Box before = step.before.box(position);
  const Box after = step.after.box(position);
  RankStep result{.kind = step.kind, .after_shape = step.after.local_shape(position)};
  if (!is_collective(step.kind)) {
    const Box common = intersection(before, after);
    result.own = relative_box(common, step.kind == StepKind::kSlice ? before : after);
    result.keeps_copy = step.kind != StepKind::kZeroPad || keeps_copy(step, position);
    return result;
  }
  result.group = groups.along(step.axes);
  std::vector<Box> to_members, from_members;
  for (int64_t member = 0; member < result.group->size(); ++member) {
    const int64_t other = step.before.grid().group_member(position, step.axes, member);
    to_members.push_back(relative_box(intersection(before, step.after.box(other)), before));
    from_members.push_back(relative_box(intersection(after, step.before.box(other)), after));
  }
  result.to_members = Blocks(std::move(to_members), step.before.local_shape(position));
  result.from_members = Blocks(std::move(from_members), result.after_shape);
  return result;
}

at::Tensor RankSteps::communicate(const RankStep& step, const at::Tensor& x, bool may_overwrite) {
  Group group = *step.group;
  switch (step.kind) {
    case StepKind::kAllGather: {
      const at::Tensor own = x.contiguous();
      int64_t num_gathered = 0;
      for (const int64_t count : step.from_members.counts()) num_gathered += count;
      const at::Tensor gathered = at::empty({num_gathered}, x.options());
      group.all_gather(buffer_of(own), buffer_of(gathered), step.from_members.counts()).wait();
      return step.from_members.unpack(gathered);
    }
    case StepKind::kReduceScatter: {
      const at::Tensor packed = step.to_members.pack(x);
      at::Tensor own = at::empty(step.after_shape, x.options());
      group.reduce_scatter(buffer_of(packed), buffer_of(own), Reduction::kSum, step.to_members.counts()).wait();
      return own;
    }
    case StepKind::kAllReduce: {
      const at::Tensor summand = x.contiguous();
      at::Tensor sum = may_overwrite ? summand : at::empty(step.after_shape, x.options());
      group.all_reduce(buffer_of(summand), buffer_of(sum), Reduction::kSum).wait();
      return sum;
    }
    default:
      break;
  }
  at::Tensor packed = step.to_members.pack(x);
  int64_t num_received = 0;
  for (const int64_t count : step.from_members.counts()) num_received += count;
  const at::Tensor received = at::empty({num_received}, x.options());
  group.all_to_all(buffer_of(packed), buffer_of(received), step.to_members.counts(), step.from_members.counts()).wait();
  packed.reset();  // before another copy is made
  return step.from_members.unpack(received);
}

at::Tensor RankSteps::run(const at::Tensor& x, bool may_overwrite) const {
  const at::NoGradGuard no_grad;
  at::Tensor result = x;
  bool is_own = false;  // memory that nobody else sees
  for (const RankStep& step : steps_) {
    if (is_collective(step.kind)) {
      result = communicate(step, result, is_own || may_overwrite);
      is_own = true;
    } else if (step.kind == StepKind::kSlice) {
      result = block_of(result, step.own);
    } else if (step.kind == StepKind::kZeroPad && (!step.keeps_copy || result.sizes() != step.after_shape)) {
      const at::Tensor padded = at::zeros(step.after_shape, result.options());
      if (step.keeps_copy) block_of(padded, step.own).copy_(result);
      result = padded;
      is_own = true;
    }
  }
  return is_own || result.is_same(x) ? result : result.clone(at::MemoryFormat::Contiguous);
}

}  // namespace weft
