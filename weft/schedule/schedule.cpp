#include "weft/schedule/schedule.h"

#include "weft/base/check.h"

namespace weft {

StagePlace place_of_stage(Placement placement, int32_t pp, int32_t stage) {
  if (placement == Placement::kV && stage >= pp) return {.rank = 2 * pp - 1 - stage, .chunk = 1};
  return {.rank = stage % pp, .chunk = stage / pp};
}

int32_t stage_at(Placement placement, int32_t pp, const StagePlace& place) {
  if (placement == Placement::kV && place.chunk == 1) return 2 * pp - 1 - place.rank;
  return place.chunk * pp + place.rank;
}

std::vector<int32_t> place_stages(Placement placement, int32_t pp, int32_t vpp) {
  WEFT_CHECK(placement == Placement::kLoop || vpp == 2, "V placement has two chunks, not {}", vpp);
  std::vector<int32_t> rank_of_stage;
  for (int32_t stage = 0; stage < pp * vpp; ++stage) rank_of_stage.push_back(place_of_stage(placement, pp, stage).rank);
  return rank_of_stage;
}

std::vector<int32_t> stages_of_rank(const Schedule& schedule, int32_t rank) {
  std::vector<int32_t> stages;
  for (int32_t stage = 0; stage < schedule.num_stages(); ++stage) {
    if (schedule.rank_of_stage[static_cast<size_t>(stage)] == rank) stages.push_back(stage);
  }
  return stages;
}

std::vector<int32_t> groups_of_ranks(const ScheduledEncoder& encoder, int32_t num_ranks) {
  std::vector<int32_t> group_of(static_cast<size_t>(num_ranks), -1);
  for (size_t group = 0; group < encoder.groups.size(); ++group) {
    for (const int32_t rank : encoder.groups[group]) group_of[static_cast<size_t>(rank)] = static_cast<int32_t>(group);
  }
  return group_of;
}

size_t num_actions(const Schedule& schedule) {
  size_t total = 0;
  for (const auto& row : schedule.rows) total += row.size();
  return total;
}

}  // namespace weft
