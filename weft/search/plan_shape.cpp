#include "weft/search/plan_shape.h"

#include "weft/base/check.h"
#include "weft/schedule/lowering.h"
#include "weft/schedule/step_end.h"

namespace weft {
namespace {

/// Pairs of stage and microbatch of all the shapes that are kept, about half a kilobyte each.
constexpr int64_t kMostKept = 1 << 21;

}  // namespace

SolverShape& PlanShape::solver() {
  if (solver_ == nullptr) solver_ = std::make_unique<SolverShape>(std::move(whole_));
  return *solver_;
}

const Schedule& PlanShape::lowered() {
  if (!lowered_) lowered_ = *lower_schedule(schedule());
  return *lowered_;
}

PlanShape& PlanShapes::of(const Candidate& c) {
  const int64_t microbatches = c.microbatches(global_batch_samples_);
  const Key key(c.schedule, c.pp, c.vpp, microbatches);
  if (const auto found = shapes_.find(key); found != shapes_.end()) return *found->second;
  // Shapes of many microbatches are large: old ones make room, and are made again where they are needed.
  const int64_t size = c.pp * c.vpp * microbatches;
  if (size_ + size > kMostKept) {
    shapes_.clear();
    size_ = 0;
  }
  size_ += size;
  Result<Schedule> schedule = generate_schedule(c.schedule, {.pp = c.pp, .vpp = c.vpp, .microbatches = microbatches});
  WEFT_CHECK(schedule.ok(), "a candidate has no schedule: {}", schedule.error().message());
  return *shapes_.emplace(key, std::make_unique<PlanShape>(with_step_end(*std::move(schedule)))).first->second;
}

}  // namespace weft
