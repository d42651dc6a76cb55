#include "weft/cost/state_cost.h"

#include <algorithm>
#include <cmath>

#include "weft/base/as_double.h"
#include "weft/cost/collective_time.h"
#include "weft/meaning/weight_copies.h"
#include "weft/meaning/zero_rules.h"

namespace weft {
namespace {

constexpr double kMegabyte = 1e6;
constexpr double kBytesPerMs = 1e6;  // 1 GB/s

bool has_own_master(const PrecisionPlan& precision) {
  return precision.master != precision.compute;
}

/// The optimizer's states of one kind of weight: dense ones, or experts'.
struct Share {
  double elements = 0;
  double trained = 0;
  double in_backward = 0;
  const GroupLink* link = nullptr;

  int64_t num_ranks() const { return std::max<int64_t>(1, link->num_ranks); }
  double ranks() const { return as_double(num_ranks()); }
  ZeroRules rules(const ModulePlan& module) const {
    return zero_rules(effective_zero(module.zero, num_ranks()), module.zero_keep_gathered);
  }
};

/// How many buckets weights lie in: as many as they fill, but a weight is never divided. ZeRO 3 gathers block by block,
/// so that a block has at least one of its own.
double num_buckets(const Plan& plan, double elements, int64_t num_weights) {
  const double full = elements * num_bytes(plan.precision.reduce) / (plan.buckets_mb * kMegabyte);
  return std::min(full, as_double(num_weights));
}

/// A collective for every bucket. `collective` takes a link and bytes.
template <typename Collective>
double in_buckets_ms(Collective collective, const GroupLink& link, double bytes, double buckets) {
  const double one_ms = collective(link, bytes);
  return buckets == 1 ? one_ms : one_ms + (buckets - 1) * collective(link, 0);
}

/// How long a stage's state communicates once a step.
struct StateTraffic {
  double reduce_ms = 0;
  double reduced_bytes = 0;
  double returned_ms = 0;  ///< weights after the update, behind the next forward
};

class StatePricer {
 public:
  StatePricer(const Plan& plan, const ModulePlan& module, const StateContext& context, int64_t num_weights)
      : plan_(plan),
        module_(module),
        context_(context),
        num_weights_(num_weights),
        weight_bytes_(num_bytes(plan.precision.compute)),
        gradient_bytes_(num_bytes(plan.precision.reduce)),
        overlap_(plan.overlap_dp ? plan.cluster.efficiency.overlap : 0) {}

  void add(const Share& share, StateCost& cost) {
    if (share.elements == 0) return;
    const ZeroRules rules = share.rules(module_);
    cost.memory.weights += share.elements * weight_bytes_ / (rules.releases_values ? share.ranks() : 1);
    if (share.trained == 0) return;
    const double owned = share.trained / (rules.divides_states ? share.ranks() : 1);
    const Precision sums = rules.gradient_sums(plan_.precision.reduce, plan_.precision.master);
    cost.memory.gradients += (rules.scatters_gradients ? owned : share.trained) * num_bytes(sums);
    cost.memory.optimizer += owned * optimizer_bytes(plan_.precision) * (1 - plan_.offload.optimizer);
    add_reduction(share, rules);
    add_update(share, rules, owned, cost);
  }

  /// What of all shares' communication holds compute up.
  void expose(StateCost& cost) const {
    cost.update_ms += exposed(traffic_.returned_ms, context_.forward_ms);
    if (traffic_.reduced_bytes == 0) return;
    // Buckets are sent while the last microbatch's backward goes on; the last bucket has nothing left to hide behind.
    const double last_bucket_ms =
        traffic_.reduce_ms * std::min(1.0, plan_.buckets_mb * kMegabyte / traffic_.reduced_bytes);
    cost.reduce_ms = std::max(last_bucket_ms, exposed(traffic_.reduce_ms, context_.backward_ms));
  }

 private:
  void add_reduction(const Share& share, const ZeroRules& rules) {
    if (rules.scatters_gradients || share.ranks() == 1) return;
    const double bytes = share.trained * gradient_bytes_;
    const auto collective = rules.divides_states ? reduce_scatter_ms : all_reduce_ms;
    traffic_.reduce_ms += in_buckets_ms(collective, *share.link, bytes, buckets_of(share));
    traffic_.reduced_bytes += bytes;
  }

  void add_update(const Share& share, const ZeroRules& rules, double owned, StateCost& cost) {
    const Cluster& cluster = plan_.cluster;
    const double bytes_per_ms = cluster.device.memory_bandwidth_gb_per_s * cluster.efficiency.update * kBytesPerMs;
    cost.update_ms += owned * update_traffic_bytes(plan_.precision) / bytes_per_ms;
    if (plan_.offload.optimizer > 0) {
      const double moved = 2 * owned * plan_.offload.optimizer * optimizer_bytes(plan_.precision);
      cost.update_ms += moved / (cluster.host.bandwidth_gb_per_s * kBytesPerMs);
    }
    if (rules.returns_values)
      traffic_.returned_ms +=
          in_buckets_ms(all_gather_ms, *share.link, share.trained * weight_bytes_, buckets_of(share));
  }

  double buckets_of(const Share& share) const { return std::max(1.0, num_buckets(plan_, share.trained, num_weights_)); }

  double exposed(double communication_ms, double compute_ms) const {
    return std::max(0.0, communication_ms - overlap_ * compute_ms);
  }

  const Plan& plan_;
  const ModulePlan& module_;
  const StateContext& context_;
  int64_t num_weights_;
  double weight_bytes_;
  double gradient_bytes_;
  double overlap_;
  StateTraffic traffic_;
};

Share dense_share(const ModuleCosts& costs, const StateElements& elements) {
  return {as_double(elements.all.dense), as_double(elements.trained.dense), as_double(elements.in_backward.dense),
          &costs.gradient_link};
}

Share expert_share(const ModuleCosts& costs, const StateElements& elements) {
  return {as_double(elements.all.expert), as_double(elements.trained.expert), as_double(elements.in_backward.expert),
          &costs.expert_gradient_link};
}

}  // namespace

double optimizer_bytes(const PrecisionPlan& precision) {
  const double state = num_bytes(precision.master);
  return 2 * state + (has_own_master(precision) ? state : 0);
}

double update_traffic_bytes(const PrecisionPlan& precision) {
  // The gradient twice, for its norm and for the step; states and master weights read and written; the weight written.
  const double master = num_bytes(precision.master);
  return 2 * num_bytes(precision.reduce) + 2 * 3 * master +
         (has_own_master(precision) ? num_bytes(precision.compute) : 0);
}

double owned_gradient_bytes(const Plan& plan, const ModulePlan& module, int64_t elements) {
  const ZeroRules rules = rules_of_weights(module);
  const double ranks = rules.divides_states ? as_double(num_weight_copies(module)) : 1;
  return as_double(elements) / ranks * num_bytes(rules.gradient_sums(plan.precision.reduce, plan.precision.master));
}

ZeroTraffic zero_traffic(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs,
                         const StateElements& block) {
  ZeroTraffic traffic;
  if (module.zero < 2) return traffic;
  const double weight_bytes = num_bytes(plan.precision.compute);
  for (const Share& share : {dense_share(costs, block), expert_share(costs, block)}) {
    if (share.elements == 0 || share.num_ranks() == 1) continue;
    const ZeroRules rules = share.rules(module);
    if (rules.releases_values) {
      const double buckets = std::max(1.0, num_buckets(plan, share.elements, block.num_weights));
      traffic.gather_ms += in_buckets_ms(all_gather_ms, *share.link, share.elements * weight_bytes, buckets);
      if (share.in_backward > 0)
        traffic.backward_gather_ms +=
            in_buckets_ms(all_gather_ms, *share.link, share.in_backward * weight_bytes, buckets);
    }
    if (rules.scatters_gradients && share.trained > 0) {
      double buckets = num_buckets(plan, share.trained, block.num_weights);
      if (rules.releases_values) buckets = std::max(1.0, buckets);
      traffic.scatter_ms +=
          in_buckets_ms(reduce_scatter_ms, *share.link, share.trained * num_bytes(plan.precision.reduce), buckets);
    }
  }
  return traffic;
}

StateElements elements_of(const BlockCost& block, const BackwardNeeds& backward, int64_t count) {
  StateElements elements{.all = count * block.parameters, .num_weights = count * block.num_weights};
  if (backward.weights) elements.trained = count * block.gradients;
  if (backward.runs()) elements.in_backward = elements.all;
  return elements;
}

StateCost price_state(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs,
                      const StateElements& elements, const StateContext& context) {
  StateCost cost;
  const bool is_trained = elements.trained.total() > 0;
  const ZeroRules rules = zero_rules(module.zero, module.zero_keep_gathered);
  StatePricer pricer(plan, module, context, elements.num_weights);
  pricer.add(dense_share(costs, elements), cost);
  pricer.add(expert_share(costs, elements), cost);
  pricer.expose(cost);
  const int64_t num_ranks = std::max(costs.gradient_link.num_ranks, costs.expert_gradient_link.num_ranks);
  if (is_trained && num_ranks > 1) {
    const double gradient = num_bytes(plan.precision.reduce);
    const double all = as_double(elements.trained.total()) * gradient;
    const double bucket = std::min(plan.buckets_mb * kMegabyte, all);
    if (rules.scatters_gradients) {
      // A bucket is being filled while others, with what comes back of them, are on their way.
      const double largest = std::max(bucket, context.largest_weight_elements * gradient);
      const double back = 1 / as_double(num_ranks);
      cost.passing_bytes += largest;
      cost.flight_bytes += std::min(kMostScattered * largest, all) * (1 + back);
    } else {
      cost.flight_bytes += std::min(2 * bucket, all);
    }
  }
  // A weight's gradient before it is added up.
  if (is_trained) cost.passing_bytes += context.largest_weight_elements * num_bytes(plan.precision.compute);
  if (rules.releases_values)
    cost.passing_bytes += 2 * context.largest_block_elements * num_bytes(plan.precision.compute);
  return cost;
}

}  // namespace weft
