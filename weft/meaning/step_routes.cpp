#include "weft/meaning/step_routes.h"

#include <algorithm>

#include "weft/meaning/bridge_routes.h"
#include "weft/meaning/exchange_calls.h"
#include "weft/meaning/trainable.h"

namespace weft {
namespace {

/// What ranks of a bridge take in and make, as they tell it each other.
class BridgeShares {
 public:
  BridgeShares(const Plan& plan, const StepLoad& load, size_t encoder, const PlannedBridge& bridge)
      : plan_(plan), load_(load), encoder_(encoder), bridge_(bridge), beside_(load.beside.at(module().kind)) {}

  /// Rows that a rank of the bridge's group takes in, by microbatch.
  std::vector<std::vector<int64_t>> rows_taken(int64_t rank) const {
    std::vector<std::vector<int64_t>> taken;
    if (bridge_.ends.takers[static_cast<size_t>(rank)] < 0) return taken;
    const ModulePlace place = place_of(rank, plan_.modules.size() - 1);
    const auto share_of_samples = static_cast<size_t>(place.groups.place.dp);
    for (size_t m = 0; m < load_.llm[share_of_samples].size(); ++m) {
      std::vector<int64_t>& rows = taken.emplace_back();
      const MicrobatchLoad& microbatch = load_.llm[share_of_samples][m];
      const LlmShare share = share_llm(microbatch, place.plan->cp, place.context.rank);
      const auto places = share.places.find(module().kind);
      if (places == share.places.end()) continue;
      const std::vector<int64_t> packed = beside_.numbers.rows_of(load_.samples[share_of_samples][m]);
      const std::vector<int64_t>& entries = share.needed.at(module().kind)[static_cast<size_t>(place.context.rank)];
      const Range own = place.rows_between(share.tokens);
      for (size_t i = 0; i < entries.size(); ++i) {
        const int64_t token = places->second[i];
        if (token >= own.begin && token < own.end) rows.push_back(packed[static_cast<size_t>(entries[i])]);
      }
    }
    return taken;
  }

  /// The same as runs, microbatch by microbatch.
  std::vector<RowRun> taken(int64_t rank) const {
    std::vector<RowRun> runs;
    for (const std::vector<int64_t>& rows : rows_taken(rank)) add_runs(rows, rank, 0, runs);
    return runs;
  }

  /// Runs that it makes where context parallelism shares them out, macro batch by macro batch.
  std::vector<RowRun> made(int64_t rank) const {
    std::vector<RowRun> runs;
    const int64_t maker = bridge_.ends.makers[static_cast<size_t>(rank)];
    if (maker < 0 || !bridge_.shares_made) return runs;
    const ModulePlace place = place_of(rank, encoder_);
    const auto& macro_batches = beside_.macro_batches[static_cast<size_t>(maker)];
    for (size_t k = 0; k < macro_batches.size(); ++k) {
      if (!macro_batches[k]) continue;
      const EncoderShare share =
          share_encoder(plan_, module().kind, *macro_batches[k], module().cp, place.context.rank);
      const size_t begin = runs.size();
      add_runs(share.made[static_cast<size_t>(place.context.rank)], rank, 0, runs);
      for (size_t i = begin; i < runs.size(); ++i)
        runs[i].first_row += beside_.numbers.rows(static_cast<int64_t>(k), maker).begin;
    }
    return runs;
  }

 private:
  const ModulePlan& module() const { return plan_.modules[encoder_]; }
  ModulePlace place_of(int64_t rank, size_t module) const {
    return place_on(plan_, module, bridge_.ranks[static_cast<size_t>(rank)]).value();
  }

  const Plan& plan_;
  const StepLoad& load_;
  size_t encoder_;
  const PlannedBridge& bridge_;
  const BesideLoad& beside_;
};

/// Neighbours tell each other how many numbers, then first row and length of every run, and how many are taken.
void tell(const BridgeShares& shares, const PlannedBridge& bridge, int64_t rank, BridgeRoutes& routes,
          StepRoutes& found) {
  std::vector<RowRun> taken = shares.taken(rank), made = shares.made(rank);
  const auto numbers = [](size_t runs_taken, size_t runs_made) {
    return static_cast<int64_t>(1 + 2 * (runs_taken + runs_made));
  };
  const int64_t own = numbers(taken.size(), made.size());
  for (const int64_t peer : routes.neighbours()) {
    const std::vector<RowRun> their_taken = shares.taken(peer), their_made = shares.made(peer);
    found.told.push_back({.peer = peer, .sent = own, .received = numbers(their_taken.size(), their_made.size())});
    taken.insert(taken.end(), their_taken.begin(), their_taken.end());
    made.insert(made.end(), their_made.begin(), their_made.end());
  }
  if (bridge.shares_taken) routes.take_only(taken);
  if (bridge.shares_made) routes.make_only(made);
}

}  // namespace

std::optional<StepRoutes> step_routes(const Plan& plan, const StepLoad& load, size_t encoder, int64_t rank) {
  const PlannedBridge bridge = planned_bridge(plan, encoder);
  const auto own = std::find(bridge.ranks.begin(), bridge.ranks.end(), rank);
  if (own == bridge.ranks.end()) return std::nullopt;
  const int64_t place = own - bridge.ranks.begin();
  const ModuleKind kind = plan.modules[encoder].kind;
  const BridgeShares shares(plan, load, encoder, bridge);
  const RowNumbers& numbers = load.beside.at(kind).numbers;
  StepRoutes found{.ranks = bridge.ranks, .taken = shares.rows_taken(place)};
  BridgeRoutes routes(bridge.ends, place);
  routes.begin(numbers, load.samples);
  if (bridge.is_told()) tell(shares, bridge, place, routes, found);
  const bool has_gradients = trains(plan, kind);
  for (int64_t macro = 0; macro < numbers.num_macro_batches(); ++macro) {
    found.rows.push_back(routes.rows(macro));
    if (has_gradients) found.gradients.push_back(routes.gradients(macro));
  }
  return found;
}

}  // namespace weft
