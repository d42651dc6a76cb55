#include "weft/schedule/generators.h"

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

constexpr int64_t kMostPp = 16'384;
constexpr int64_t kMostMicrobatches = 1 << 20;
/// Lowered, with transfers and tables, a plan with so many takes a gigabyte and some seconds. The largest runs have a
/// million: 16 pipeline ranks of 4 chunks, and 4,096 microbatches.
constexpr int64_t kMostActions = 30'000'000;

Result<Schedule> refuse(const std::string& flag, std::string problem, std::string advice = "") {
  return Error{.source = flag, .problem = std::move(problem), .advice = std::move(advice)};
}

Result<Schedule> refuse_chunks(const ScheduleKind& kind, int64_t vpp) {
  if (kind.most_chunks == 1) {
    return refuse("vpp", fmt::format("is {}, but {} has one chunk a rank", vpp, kind.name),
                  "Set it to 1, or use interleaved_1f1b.");
  }
  if (kind.fewest_chunks == kind.most_chunks) {
    return refuse("vpp", fmt::format("is {}, but {} has exactly {} chunks a rank", vpp, kind.name, kind.most_chunks),
                  fmt::format("Set it to {}.", kind.most_chunks));
  }
  return refuse("vpp", fmt::format("is {}, but {} needs at least {} chunks a rank", vpp, kind.name, kind.fewest_chunks),
                "Raise it, or use 1f1b.");
}

}  // namespace

Result<Schedule> generate_schedule(ScheduleName name, const PipelineShape& shape) {
  const ScheduleKind& kind = kind_of(name);
  const auto out_of_range = [](int64_t value, int64_t max) {
    return fmt::format("is {}, a whole number from 1 to {} is needed", value, max);
  };
  if (shape.pp < 1 || shape.pp > kMostPp) return refuse("pp", out_of_range(shape.pp, kMostPp));
  if (shape.vpp < 1 || shape.vpp > kMostVpp) return refuse("vpp", out_of_range(shape.vpp, kMostVpp));
  if (shape.microbatches < 1 || shape.microbatches > kMostMicrobatches) {
    return refuse("microbatches", out_of_range(shape.microbatches, kMostMicrobatches));
  }
  if (shape.vpp < kind.fewest_chunks || shape.vpp > kind.most_chunks) return refuse_chunks(kind, shape.vpp);
  if (shape.pp * shape.vpp * shape.microbatches > kMostActions / 3) {
    return refuse("microbatches",
                  fmt::format("{} × pp {} × vpp {} gives more than {} actions", shape.microbatches, shape.pp, shape.vpp,
                              with_commas(kMostActions)),
                  "Lower microbatches, pp or vpp.");
  }

  Schedule schedule{
      .num_microbatches = static_cast<int32_t>(shape.microbatches),
      .rank_of_stage = place_stages(kind.placement, static_cast<int32_t>(shape.pp), static_cast<int32_t>(shape.vpp)),
      .rows = {}};
  schedule.rows.resize(static_cast<size_t>(shape.pp));
  kind.fill(shape, schedule.rows);
  return schedule;
}

Result<int64_t> virtual_stages(int64_t layers, int64_t pp, int64_t layers_per_virtual_stage) {
  if (layers < 1 || pp < 1 || layers_per_virtual_stage < 1 || layers % (pp * layers_per_virtual_stage) != 0) {
    return Error{.source = "layers_per_virtual_stage",
                 .problem = fmt::format("{} layers do not divide into pp {} × {} layers a stage", layers, pp,
                                        layers_per_virtual_stage),
                 .advice = "Choose a number that divides layers / pp."};
  }
  return layers / (pp * layers_per_virtual_stage);
}

}  // namespace weft
