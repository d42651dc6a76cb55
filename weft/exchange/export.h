#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/plan/plan.h"

namespace weft {

/// The systems whose settings a plan can be written as.
enum class Target { kMegatron, kMindspeedMm, kMindformers, kMindspeedRl, kTorchtitan };

/// "megatron", "mindspeed-mm", "mindformers", "mindspeed-rl", "torchtitan", in the order of the enum.
std::span<const std::string> target_names();
const std::string& name_of(Target target);
Result<Target> parse_target(const std::string& name);

/// One file of another system's settings, under the name by which that system knows it.
struct ExportedFile {
  std::string name;
  std::string text;

  bool operator==(const ExportedFile&) const = default;
};

/// Why no system reads a model, whatever its plan: a user's own program.
std::optional<Error> find_unreadable(const Model& model);

/// The plan as the target's settings. A plan that is not legal is an error as check_plan tells it; what the target
/// cannot express is an error that names every such field, so that nothing is left out unseen.
Result<std::vector<ExportedFile>> export_plan(const Plan& plan, Target target);

}  // namespace weft
