#include "weft/cli/profile_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/text.h"

namespace weft {
namespace {

using Kind = BlockSource::Kind;

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kMeasured:
      return "measured";
    case Kind::kInterpolated:
      return "interpolated";
    case Kind::kExtrapolated:
      return "extrapolated";
    case Kind::kCarriedOver:
      return "carried over";
    case Kind::kRelative:
      return "relative to the measured usual layer";
    case Kind::kFormula:
      break;
  }
  return "formula";
}

bool is_in_the_table(const BlockSource& source) {
  return source.kind == Kind::kMeasured || source.kind == Kind::kInterpolated || source.kind == Kind::kExtrapolated;
}

std::string block_text(const BlockSource& source) {
  const std::string setting = setting_text(source.asked);
  return fmt::format("{} '{}'{}", weft::name_of(source.asked.module), printable(source.asked.block),
                     setting == "one device" ? "" : " at " + setting);
}

std::string carried_text(const BlockSource& source) {
  return fmt::format("{} (from {})", block_text(source), setting_text(source.taken_from));
}

/// "a; b; c and 4 more".
template <typename Text>
std::string listed(const std::vector<BlockSource>& blocks, Kind kind, Text text) {
  constexpr size_t kMostNamed = 4;
  std::string list;
  size_t count = 0;
  for (const BlockSource& source : blocks) {
    if (source.kind != kind) continue;
    if (++count <= kMostNamed) list += (list.empty() ? "" : "; ") + text(source);
  }
  if (count > kMostNamed) list += fmt::format(" and {} more", count - kMostNamed);
  return list;
}

std::string machine_text(const MachineSource& machine) {
  std::vector<std::string> parts;
  for (const LinkSource& link : machine.links) {
    parts.push_back(fmt::format("links {} ({:.4g} GB/s, {:.3g} us, fitted within {:.1f} %)",
                                link.is_between_nodes ? "between nodes" : "within a node", link.gb_per_s,
                                link.latency_us, link.error_percent));
  }
  if (machine.update_points > 0) {
    parts.push_back(machine.update_points > 2
                        ? fmt::format("updates (fitted within {:.1f} %)", machine.update_error_percent)
                        : std::string("updates"));
  }
  if (machine.has_action) parts.emplace_back("the executor's time around actions");
  if (machine.has_step) parts.emplace_back("a step's own time");
  if (machine.has_memory) parts.emplace_back("bytes of all blocks");
  if (machine.has_reserved) parts.emplace_back("what the device has reserved");
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::string profile_text(const PlanReport& report) {
  if (!report.profile) return "";
  const ProfileUse& use = *report.profile;
  size_t in_the_table = 0;
  double mean = 0, most = 0, with_error = 0;
  for (const BlockSource& source : use.blocks) {
    if (!is_in_the_table(source)) continue;
    ++in_the_table;
    if (source.kind == Kind::kMeasured || !source.error) continue;
    mean += source.error->mean_percent;
    most = std::max(most, source.error->most_percent);
    with_error += 1;
  }
  std::string text =
      fmt::format("profile {}{}: {} of {} measured", use.source, use.date.empty() ? "" : " of " + printable(use.date),
                  in_the_table, counted(static_cast<int64_t>(use.blocks.size()), "block"));
  if (with_error > 0) {
    text += fmt::format("; a point read from the others is off by {:.1f} % on average, {:.1f} % at most",
                        mean / with_error, most);
  }
  text += "\n";
  if (const std::string list = listed(use.blocks, Kind::kExtrapolated, block_text); !list.empty())
    text += fmt::format("  far beyond the points that were measured: {}\n", list);
  if (const std::string list = listed(use.blocks, Kind::kCarriedOver, carried_text); !list.empty())
    text += fmt::format("  with the formula's error in another setting: {}\n", list);
  if (const std::string list = listed(use.blocks, Kind::kRelative, carried_text); !list.empty()) {
    text += fmt::format(
        "  priced by formulas relative to measured layers: {}; 'weft profile --for PLAN --out {}' measures them\n",
        list, use.source);
  }
  if (const std::string list = listed(use.blocks, Kind::kFormula, block_text); !list.empty()) {
    text += fmt::format(
        "  from the formula, because the profile lacks them: {}; 'weft profile --for PLAN --out {}' measures them\n",
        list, use.source);
  }
  const std::string machine = machine_text(use.machine);
  text += machine.empty() ? "  of the machine nothing was measured: links and updates are the cluster's\n"
                          : fmt::format("  measured besides: {}\n", machine);
  return text;
}

Json profile_json(const ProfileUse& use) {
  Json blocks = Json::array();
  for (const BlockSource& source : use.blocks) {
    Json json = {{"module", weft::name_of(source.asked.module)},
                 {"block", source.asked.block},
                 {"setting", setting_text(source.asked)},
                 {"from", name_of(source.kind)}};
    if (source.kind != Kind::kFormula) {
      json["points"] = source.points;
      json["error_percent"] = source.error ? Json(source.error->most_percent) : Json();
      json["mean_error_percent"] = source.error ? Json(source.error->mean_percent) : Json();
      json["spread_percent"] = source.spread_percent;
      json["memory"] = source.has_memory;
      json["busy_ranks"] = source.taken_from.busy_ranks;
    }
    if (source.kind == Kind::kCarriedOver || source.kind == Kind::kRelative)
      json["measured_at"] = setting_text(source.taken_from);
    blocks.push_back(std::move(json));
  }
  Json links = Json::array();
  for (const LinkSource& link : use.machine.links) {
    links.push_back({{"link", link.is_between_nodes ? "between_nodes" : "within_node"},
                     {"points", link.points},
                     {"gb_per_s", link.gb_per_s},
                     {"latency_us", link.latency_us},
                     {"error_percent", link.error_percent}});
  }
  Json json = {{"source", use.source}, {"blocks", std::move(blocks)}, {"links", std::move(links)}};
  if (!use.date.empty()) json["date"] = use.date;
  json["updates"] = {{"points", use.machine.update_points}, {"error_percent", use.machine.update_error_percent}};
  json["action"] = use.machine.has_action;
  json["step"] = use.machine.has_step;
  json["memory"] = use.machine.has_memory;
  json["reserved"] = use.machine.has_reserved;
  return json;
}

}  // namespace weft
