#pragma once

#include "weft/base/fields.h"
#include "weft/base/json.h"
#include "weft/program/program_strategy.h"

namespace weft {

struct Plan;

/// What operators of a module's blocks do on its tensor-parallel axis, in the words of strategy files. A plan with none
/// has them do the usual.
struct ModuleStrategy {
  std::vector<Axis> mesh;  ///< that it was made for; empty: it does not say
  BlockEntries blocks;

  bool is_empty() const { return mesh.empty() && blocks.empty(); }
  bool operator==(const ModuleStrategy&) const = default;
};

/// {"mesh": {"tp": 2}, "blocks": {"layer": {"up": {"tp": "cut f"}}}}.
ModuleStrategy read_module_strategy(Fields fields);
Json to_json(const ModuleStrategy& strategy);

/// Has the blocks of the plan's model do what the strategies of its modules say: from then on everybody who asks the
/// model sees them. Fails, with the field, where a strategy is not for this plan: another mesh, a kind of
/// block or an operator that it has not, a layer with experts or adapters, a choice that a rule does not allow.
std::optional<Error> apply_strategies(Plan& plan);

}  // namespace weft
