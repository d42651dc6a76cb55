#include "weft/search/fill_orders.h"

#include "weft/base/hash.h"

namespace weft {
namespace {

std::optional<Schedule> placed_order(const FillProblem& problem) {
  Result<Schedule> pipeline = generate_schedule(problem.schedule, problem.shape);
  if (!pipeline) return std::nullopt;
  pipeline->entry_stage = problem.entry_stage;
  Result<Schedule> placed = place_encoders(*pipeline, problem.encoders, problem.durations);
  if (!placed) return std::nullopt;
  return *std::move(placed);
}

}  // namespace

/// Equality decides; this only has to tell most problems apart. Within a frame those differ in their times, in how many
/// macro batches may be alive, and in the schedule.
size_t FillOrders::Hash::operator()(const FillProblem& problem) const {
  Hasher hasher;
  hasher.add(problem.schedule);
  hasher.add(problem.shape.vpp);
  hasher.add(problem.entry_stage);
  for (const double ms : problem.durations.forward_ms) hasher.add(ms);
  for (const double ms : problem.durations.backward_input_ms) hasher.add(ms);
  for (const EncoderPlacement& encoder : problem.encoders) {
    hasher.add(encoder.form);
    hasher.add(encoder.rows.num_macro_batches);
    hasher.add(encoder.rows.live_macro_batches);
    hasher.add(encoder.rows.num_groups());
    if (!encoder.forward_ms.empty()) hasher.add(encoder.forward_ms.front());
  }
  return hasher.value();
}

const Schedule* FillOrders::order_of(FillProblem problem) {
  const auto [place_of, is_new] = orders_.try_emplace(std::move(problem));
  if (is_new) place_of->second = placed_order(place_of->first);
  return place_of->second ? &*place_of->second : nullptr;
}

}  // namespace weft
