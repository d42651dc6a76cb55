#include "weft/exchange/refusals.h"

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/plan/rank_set.h"

namespace weft {
namespace {

constexpr std::string_view kPlacementNames[] = {"base", "inline", "colocated", "disjoint", "partial"};

/// The axes of an order that have more than one rank.
std::vector<std::string> axes_that_matter(const ModulePlan& module, const std::vector<std::string>& order) {
  std::vector<std::string> axes;
  for (const std::string& axis : order) {
    if (module.degree(axis) > 1) axes.push_back(axis);
  }
  return axes;
}

}  // namespace

void Refusals::add(std::string field, std::string reason, std::string advice) {
  refused_.push_back({std::move(field), std::move(reason)});
  advice_.push_back(std::move(advice));
}

void Refusals::add(const ModulePlan& module, std::string_view field, std::string reason, std::string advice) {
  add(fmt::format("modules.{}.{}", name_of(module.kind), field), std::move(reason), std::move(advice));
}

Error Refusals::error() const {
  Error error = to_error(refused_, fmt::format("cannot be expressed for {}", system_));
  if (refused_.size() > 1) return error;
  error.advice = advice_.front().empty() ? "Change the plan, or export it to another system." : advice_.front();
  return error;
}

std::string_view name_of(ModulePlacement placement) {
  return kPlacementNames[static_cast<size_t>(placement)];
}

void refuse_what_no_target_has(const Plan& plan, Refusals& refusals) {
  const std::string& system = refusals.system();
  const ModulePlan& llm = plan.llm();
  if (static_cast<int64_t>(llm.ranks.size()) != plan.world_size) {
    refusals.add("world_size", fmt::format("is {}, but the llm uses {} of them; in {} every process that is started "
                                           "takes part in the llm",
                                           plan.world_size, llm.ranks.size(), system));
  } else {
    for (const ModulePlan& module : plan.modules) {
      if (module.ranks.size() != llm.ranks.size()) continue;  // its placement is refused
      for (size_t i = 0; i < module.ranks.size(); ++i) {
        if (module.ranks[i] == static_cast<int64_t>(i)) continue;
        refusals.add(module, "ranks",
                     fmt::format("is {}, but {} counts the ranks of a mesh from 0 upwards", ranks_to_text(module.ranks),
                                 system));
        break;
      }
    }
  }
  if (plan.balance != Balance::kNone) {
    refusals.add("balance", fmt::format("is {}, but {} has no setting that reassigns samples the same way; only none "
                                        "can be exported",
                                        name_of(plan.balance), system));
  }
  if (!plan.trainable.empty()) {
    refusals.add("trainable",
                 fmt::format("has rules about weights, but Weft knows no settings of {} that mean the same", system),
                 "Leave the rules out, or freeze whole modules in the workload.");
  }
  if (!plan.offload.is_empty())
    refusals.add("offload", fmt::format("is given, but Weft knows no settings of {} that mean the same", system));
}

bool has_axis_order(const ModulePlan& module, const std::vector<std::string>& order) {
  return axes_that_matter(module, module.axis_order) == axes_that_matter(module, order);
}

std::vector<std::vector<int64_t>> full_recompute(const ModulePlan& module) {
  std::vector<std::vector<int64_t>> counts;
  for (size_t rank = 0; rank < module.layers.size(); ++rank) {
    auto& row = counts.emplace_back(module.layers[rank].size(), 0);
    for (size_t chunk = 0; chunk < row.size(); ++chunk)
      row[chunk] = count_of(module.recompute_of(rank, chunk), BlockRecompute::kFull);
  }
  return counts;
}

void refuse_scattered(const ModulePlan& module, Refusals& refusals) {
  for (size_t rank = 0; rank < module.recompute.size(); ++rank) {
    for (size_t chunk = 0; chunk < module.recompute[rank].size(); ++chunk) {
      const Recompute& recompute = module.recompute[rank][chunk];
      const int64_t full = recompute.count(BlockRecompute::kFull);
      if (full == 0 || recompute.runs().front() == RecomputeRun{BlockRecompute::kFull, full}) continue;
      refusals.add(module, fmt::format("recompute[{}][{}]", rank, chunk),
                   fmt::format("recomputes {} that are not the chunk's first, but {} takes a count and begins with the "
                               "first",
                               counted(full, "block"), refusals.system()),
                   fmt::format("Begin the chunk's list with \"full*{}\".", full));
      return;
    }
  }
}

void refuse_selective(const ModulePlan& module, std::string_view why, Refusals& refusals) {
  for (size_t rank = 0; rank < module.recompute.size(); ++rank) {
    for (size_t chunk = 0; chunk < module.recompute[rank].size(); ++chunk) {
      const int64_t blocks = module.recompute[rank][chunk].count(BlockRecompute::kAttention);
      if (blocks == 0) continue;
      refusals.add(module, fmt::format("recompute[{}][{}]", rank, chunk),
                   fmt::format("recomputes the attention of {}, but {}", counted(blocks, "block"), why));
      return;
    }
  }
}

}  // namespace weft
