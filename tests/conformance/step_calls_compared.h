#pragma once

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "weft/meaning/group_names.h"
#include "weft/meaning/step_calls.h"

// Calls that a plan says against those that a rank made.
namespace weft {

/// A rank's calls of groups whose order a plan says: not those of bridges and of all ranks' sums.
inline std::vector<GroupCall> ordered_calls(const Plan& plan, const std::vector<GroupCall>& all) {
  std::set<std::string> left_out = {group_names::kWorld};
  for (const ModulePlan& module : plan.modules)
    left_out.insert({group_names::rows_of(module.kind), group_names::gradients_of(module.kind)});
  std::vector<GroupCall> calls;
  std::copy_if(all.begin(), all.end(), std::back_inserter(calls),
               [&](const GroupCall& call) { return call.ranks.size() > 1 && !left_out.contains(call.group); });
  return calls;
}

/// The first call that differs, with those before it; nothing where all are equal.
inline std::string first_difference(const std::vector<ActionCalls>& expected, const std::vector<GroupCall>& found) {
  constexpr size_t kShown = 8;
  size_t next = 0;
  std::vector<std::string> lines;
  const auto with_lines = [&](const std::string& difference) {
    std::string all;
    for (size_t i = lines.size() > kShown ? lines.size() - kShown : 0; i < lines.size(); ++i) all += lines[i] + "\n";
    return all + difference;
  };
  for (const ActionCalls& action : expected) {
    for (const GroupCall& call : action.calls) {
      const std::string planned = to_text(action.action) + ": " + text(call);
      if (next == found.size()) return with_lines("planned, not done: " + planned);
      if (!(call == found[next])) return with_lines("planned " + planned + "\ndone " + text(found[next]));
      lines.push_back(planned);
      ++next;
    }
  }
  return next == found.size() ? "" : with_lines("done, not planned: " + text(found[next]));
}

}  // namespace weft
