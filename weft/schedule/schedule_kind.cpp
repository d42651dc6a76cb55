#include "weft/schedule/schedule_kind.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {

std::span<const ScheduleKind> schedule_kinds() {
  static const std::array<ScheduleKind, 5> kinds = {{
      {.id = ScheduleName::kGpipe, .name = "gpipe", .fill = fill_gpipe},
      {.id = ScheduleName::k1f1b, .name = "1f1b", .fill = fill_1f1b, .is_usual = true},
      {.id = ScheduleName::kInterleaved1f1b,
       .name = "interleaved_1f1b",
       .fill = fill_interleaved_1f1b,
       .fewest_chunks = 2,
       .most_chunks = kMostVpp,
       .is_usual = true},
      {.id = ScheduleName::kZbH1, .name = "zb_h1", .fill = fill_zb_h1, .splits_backward = true},
      {.id = ScheduleName::kZbV,
       .name = "zb_v",
       .fill = fill_zb_v,
       .placement = Placement::kV,
       .fewest_chunks = 2,
       .most_chunks = 2,
       .splits_backward = true},
  }};
  return kinds;
}

const ScheduleKind& kind_of(ScheduleName name) {
  return schedule_kinds()[static_cast<size_t>(name)];
}

int64_t usual_chunks(ScheduleName name) {
  const ScheduleKind& kind = kind_of(name);
  return kind.fewest_chunks == kind.most_chunks ? kind.most_chunks : 1;
}

ScheduleName usual_schedule(int64_t chunks) {
  ScheduleName usual = ScheduleName::k1f1b;
  for (const ScheduleKind& kind : schedule_kinds()) {
    if (!kind.is_usual) continue;
    usual = kind.id;
    if (chunks <= kind.most_chunks) break;
  }
  return usual;
}

std::span<const std::string> schedule_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const ScheduleKind& kind : schedule_kinds()) all.push_back(kind.name);
    return all;
  }();
  return names;
}

const std::string& name_of(ScheduleName name) {
  return kind_of(name).name;
}

Result<ScheduleName> parse_schedule_name(const std::string& name) {
  const auto names = schedule_names();
  const auto it = std::find(names.begin(), names.end(), name);
  if (it == names.end()) {
    return Error{.problem = fmt::format("{} is not a schedule; known are {}", in_quotes(name), joined_or(names)),
                 .advice = "Give one of these." + did_you_mean(name, names)};
  }
  return static_cast<ScheduleName>(it - names.begin());
}

}  // namespace weft
