#include "weft/cost/step_walk.h"

#include "weft/cost/local_moves.h"

namespace weft {

CountedTensor walk_steps(std::span<const Step> steps, const CountedTensor& x, const SteppedTensor& how,
                         const WalkContext& context) {
  CountedTensor result = x;
  bool is_own = false, is_view = false;
  int64_t bytes = x.bytes();
  const auto make = [&](int64_t made) { return context.make(made); };
  for (const Step& step : steps) {
    const int64_t before = step.before.num_local_elements(how.position) * how.element_bytes;
    const int64_t after = step.after.num_local_elements(how.position) * how.element_bytes;
    CountedTensor apart;  // what is sent lies in one piece
    if (is_collective(step.kind) && is_view) apart = make(before);
    switch (step.kind) {
      case StepKind::kIdentity:
        continue;
      case StepKind::kSlice:
        is_view = is_view || after < before;
        bytes = after;
        continue;
      case StepKind::kZeroPad:
        if (before == after && keeps_copy(step, how.position)) continue;
        result = make(after);
        break;
      case StepKind::kAllGather: {
        CountedTensor gathered = make(after);
        result = lies_outermost(step.after, step.dim) ? gathered : make(after);
        break;
      }
      case StepKind::kReduceScatter: {
        CountedTensor packed;
        if (!lies_outermost(step.before, step.dim)) packed = make(before);
        result = make(after);
        break;
      }
      case StepKind::kAllReduce:
        if (!is_own && !how.may_overwrite) result = make(after);
        break;
      case StepKind::kAllToAll: {
        CountedTensor packed;
        if (!lies_outermost(step.before, step.to_dim)) packed = make(before);
        CountedTensor received = make(after);
        packed.reset();
        result = lies_outermost(step.after, step.dim) ? received : make(after);
        break;
      }
    }
    is_own = true;
    is_view = false;
    bytes = after;
  }
  return is_view ? make(bytes) : result;
}

}  // namespace weft
