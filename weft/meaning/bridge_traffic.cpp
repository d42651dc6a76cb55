#include "weft/meaning/bridge_traffic.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/meaning/block_traffic.h"
#include "weft/mesh/row_route.h"
#include "weft/plan/module_mesh.h"

namespace weft {
namespace {

constexpr int64_t kNumberBytes = sizeof(int64_t);

/// By macro batch and rank of the bridge, numbers that begin in the macro batch.
using MacroLists = std::vector<RowLists>;

class Bridge {
 public:
  Bridge(const Plan& plan, const StepLoad& load, size_t encoder)
      : plan_(plan),
        load_(load),
        module_(plan.modules[encoder]),
        beside_(load.beside.at(module_.kind)),
        mesh_(*mesh_of(module_)),
        text_mesh_(*mesh_of(plan.llm())),
        ends_(bridge_ends(plan, encoder)) {
    for (size_t macro = 0; macro < beside_.macro_batches.front().size(); ++macro)
      begins_.push_back(beside_.rows.front()[macro].begin);
  }

  size_t num_macro_batches() const { return begins_.size(); }
  const std::vector<BridgeEnd>& ends() const { return ends_; }

  MacroLists made() const {
    MacroLists lists(num_macro_batches(), RowLists(ends_.size()));
    for (size_t end = 0; end < ends_.size(); ++end) {
      if (!ends_[end].makes) continue;
      const auto share = static_cast<size_t>(*ends_[end].makes);
      const auto part = static_cast<size_t>(mesh_.coordinates_of(ends_[end].rank)[mesh_.grid().axis("cp")]);
      for (size_t macro = 0; macro < lists.size(); ++macro) {
        const std::optional<EncoderLoad>& load = beside_.macro_batches[share][macro];
        if (!load) continue;
        const int64_t first = beside_.rows[share][macro].begin - begins_[macro];
        const RowLists made = share_encoder(plan_, module_.kind, *load, module_.cp, 0).made;
        for (const int64_t row : made[part]) lists[macro][end].push_back(first + row);
      }
    }
    // Without context parallelism rows leave in the order of their numbers.
    if (module_.cp == 1) {
      for (RowLists& lists_of_macro : lists)
        for (std::vector<int64_t>& rows : lists_of_macro) std::sort(rows.begin(), rows.end());
    }
    return lists;
  }

  MacroLists needed() const {
    const ModulePlan& llm = plan_.llm();
    MacroLists lists(num_macro_batches(), RowLists(ends_.size()));
    for (size_t end = 0; end < ends_.size(); ++end) {
      if (!ends_[end].takes) continue;
      const ModulePlace place = place_on(plan_, llm, text_mesh_, ends_[end].rank);
      for (const MicrobatchLoad& microbatch : load_.llm[static_cast<size_t>(place.data_parallel_rank)]) {
        const auto found = microbatch.rows_beside.find(module_.kind);
        if (found == microbatch.rows_beside.end()) continue;
        const TextShare share = share_text(microbatch, llm.cp, place.context.all.rank);
        const Range own = place.rows_between(share.tokens);
        const std::vector<int64_t>& places = share.places.at(module_.kind);
        const std::vector<int64_t>& entries =
            share.needed.at(module_.kind)[static_cast<size_t>(place.context.all.rank)];
        for (size_t i = 0; i < places.size(); ++i) {
          if (places[i] < own.begin || places[i] >= own.end) continue;
          const int64_t row = found->second[static_cast<size_t>(entries[i])];
          const auto macro =
              static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), row) - begins_.begin() - 1);
          lists[macro][end].push_back(row - begins_[macro]);
        }
      }
    }
    return lists;
  }

 private:
  const Plan& plan_;
  const StepLoad& load_;
  const ModulePlan& module_;
  const BesideLoad& beside_;
  Mesh mesh_;
  Mesh text_mesh_;
  std::vector<BridgeEnd> ends_;
  std::vector<int64_t> begins_;  ///< by macro batch: the number of its first row
};

/// Ranks tell each other lists of numbers: how many, then which.
void add_told(const RankGroup& group, const MacroLists& lists, TrafficWriter& writer) {
  std::vector<int64_t> counts(static_cast<size_t>(group.size()));
  int64_t total = 0;
  for (const RowLists& by_rank : lists) {
    for (size_t rank = 0; rank < by_rank.size(); ++rank) {
      counts[rank] += std::ssize(by_rank[rank]);
      total += std::ssize(by_rank[rank]);
    }
  }
  writer.add(group, OperationKind::kAllGather, gather_traffic(group.size(), group.size()), kNumberBytes);
  const auto next = static_cast<size_t>((group.rank + 1) % group.size());
  if (total > 0)
    writer.add(group, OperationKind::kAllGather,
               gather_traffic(total, counts[static_cast<size_t>(group.rank)], counts[next]), kNumberBytes);
}

void add_messages(const RankGroup& group, const RowRoute& route, int64_t row_elements, int64_t bytes,
                  TrafficWriter& writer) {
  for (const RowMessage& message : route.messages) {
    if (message.from == group.rank) writer.send(group, message.num_rows() * row_elements, bytes);
    if (message.to == group.rank) writer.receive(group, message.num_rows() * row_elements, bytes);
  }
}

}  // namespace

void add_bridge_traffic(const Plan& plan, const StepLoad& load, size_t encoder, int64_t rank, TrafficWriter& writer) {
  const Bridge bridge(plan, load, encoder);
  RankGroup rows{.name = std::string(name_of(plan.modules[encoder].kind)) + " rows", .ranks = {}, .rank = -1};
  for (const BridgeEnd& end : bridge.ends()) {
    if (end.rank == rank) rows.rank = rows.size();
    rows.ranks.push_back(end.rank);
  }
  if (rows.rank < 0) return;
  RankGroup gradients = rows;
  gradients.name = std::string(name_of(plan.modules[encoder].kind)) + " gradients";
  const MacroLists made = bridge.made(), needed = bridge.needed();
  if (plan.modules[encoder].cp > 1) add_told(rows, made, writer);
  add_told(rows, needed, writer);
  const int64_t width = plan.model.find(plan.modules[encoder].kind)->output_width;
  const auto bytes = static_cast<int64_t>(num_bytes(plan.precision.compute));
  for (size_t macro = 0; macro < made.size(); ++macro) {
    add_messages(rows, plan_row_route(made[macro], needed[macro]), width, bytes, writer);
    if (!plan.workload.is_frozen(plan.modules[encoder].kind))
      add_messages(gradients, plan_row_route(needed[macro], made[macro]), width, bytes, writer);
  }
}

}  // namespace weft
