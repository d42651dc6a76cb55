#include "weft/exchange/export.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/exchange/targets.h"
#include "weft/meaning/check.h"

namespace weft {
namespace {

const std::array<std::string, 5> kNames = {"megatron", "mindspeed-mm", "mindformers", "mindspeed-rl", "torchtitan"};

}  // namespace

std::span<const std::string> target_names() {
  return kNames;
}

const std::string& name_of(Target target) {
  return kNames[static_cast<size_t>(target)];
}

Result<Target> parse_target(const std::string& name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found != kNames.end()) return static_cast<Target>(found - kNames.begin());
  return Error{.problem = fmt::format("{} is not a system that plans are exported to", in_quotes(name)),
               .advice = fmt::format("Known are {}.{}", joined_or(kNames), did_you_mean(name, kNames))};
}

std::optional<Error> find_unreadable(const Model& model) {
  if (!model.numbers.program) return std::nullopt;
  return Error{.field = "model",
               .problem = fmt::format("is the program {}, which no other system reads", printable(model.name)),
               .advice = "Train it with weft train, or plan a model of a known family."};
}

Result<std::vector<ExportedFile>> export_plan(const Plan& plan, Target target) {
  if (const std::vector<Violation> violations = check_plan(plan, PlanUse::kPrice); !violations.empty())
    return to_error(violations, "are not legal");
  if (auto error = find_unreadable(plan.model)) return *std::move(error);
  for (const ModulePlan& module : plan.modules) {
    if (module.strategy.is_empty()) continue;
    return Error{.field = fmt::format("modules.{}.strategy", name_of(module.kind)),
                 .problem = "says what single operators do, which no other system is told",
                 .advice = "Leave it out, or plan for the system: weft plan --for SYSTEM."};
  }
  switch (target) {
    case Target::kMegatron:
      return export_megatron(plan);
    case Target::kMindspeedMm:
      return export_mindspeed_mm(plan);
    case Target::kMindformers:
      return export_mindformers(plan);
    case Target::kMindspeedRl:
      return export_mindspeed_rl(plan);
    case Target::kTorchtitan:
      return export_torchtitan(plan);
  }
  WEFT_CHECK(false, "no such target");
}

}  // namespace weft
