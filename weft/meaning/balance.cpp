#include "weft/meaning/balance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>

#include "weft/base/check.h"
#include "weft/meaning/deal.h"

namespace weft {
namespace {

/// Sums of the same costs in another order differ by rounding.
constexpr double kRounding = 1e-9;

bool is_no_worse(double value, double than) {
  return value <= than * (1 + kRounding);
}

void check_costs(const std::vector<double>& costs, const BatchOrder& order) {
  WEFT_CHECK(static_cast<int64_t>(costs.size()) == order.size(), "{} costs for {} samples", costs.size(), order.size());
  WEFT_CHECK(std::all_of(costs.begin(), costs.end(), [](double c) { return std::isfinite(c) && c >= 0; }),
             "costs are finite and not negative");
}

/// The step's samples, microbatch after microbatch and in each rank after rank: a permutation of the batch.
using Order = std::vector<int32_t>;

Order batch_order(const BatchOrder& order) {
  Order samples(static_cast<size_t>(order.size()));
  std::iota(samples.begin(), samples.end(), 0);
  return samples;
}

LlmSpread spread_of(const Order& samples, const BatchOrder& order, const std::vector<double>& costs) {
  LlmSpread spread;
  std::vector<double> ranks(static_cast<size_t>(order.data_parallel), 0);
  size_t next = 0;
  for (int64_t microbatch = 0; microbatch < order.microbatches; ++microbatch) {
    double longest = 0;
    for (double& rank : ranks) {
      double sum = 0;
      for (int64_t place = 0; place < order.mbs; ++place) sum += costs[static_cast<size_t>(samples[next++])];
      rank += sum;
      longest = std::max(longest, sum);
    }
    spread.longest_in_turn += longest;
    spread.longest_microbatch = std::max(spread.longest_microbatch, longest);
  }
  spread.busiest_rank = *std::max_element(ranks.begin(), ranks.end());
  return spread;
}

bool is_no_worse(const LlmSpread& spread, const LlmSpread& than) {
  return is_no_worse(spread.busiest_rank, than.busiest_rank) &&
         is_no_worse(spread.longest_in_turn, than.longest_in_turn) &&
         is_no_worse(spread.longest_microbatch, than.longest_microbatch);
}

/// The groups of a deal to ranks as the step's order, each with its mbs samples.
Order order_of(const RoundDeal& deal, const Order& groups, int64_t mbs) {
  Order samples;
  samples.reserve(groups.size());
  for (const int32_t group : deal.item_of) {
    const auto begin = groups.begin() + group * mbs;
    samples.insert(samples.end(), begin, begin + mbs);
  }
  return samples;
}

std::vector<double> group_sums(const Order& groups, int64_t mbs, const std::vector<double>& costs) {
  std::vector<double> sums(groups.size() / static_cast<size_t>(mbs), 0);
  for (size_t i = 0; i < groups.size(); ++i)
    sums[i / static_cast<size_t>(mbs)] += costs[static_cast<size_t>(groups[i])];
  return sums;
}

/// Ready groups dealt to ranks so that those of one index are alike.
Order dealt_by_index(const Order& groups, const BatchOrder& order, const std::vector<double>& costs) {
  const std::vector<double> sums = group_sums(groups, order.mbs, costs);
  RoundDeal deal = deal_in_rounds(sums, order.data_parallel);
  even_out(sums, 1, deal);
  return order_of(deal, groups, order.mbs);
}

/// Ready groups dealt to ranks so that ranks have the same, in falling order.
Order dealt_by_rank(const Order& groups, const BatchOrder& order, const std::vector<double>& costs) {
  const std::vector<double> sums = group_sums(groups, order.mbs, costs);
  RoundDeal deal = deal_to_even_sums(sums, order.data_parallel);
  even_out(sums, 0, deal);
  sort_rounds(sums, deal);
  return order_of(deal, groups, order.mbs);
}

/// Groups of mbs samples whose sums are as equal as they get, each in the batch's order.
Order even_groups(const BatchOrder& order, const std::vector<double>& costs) {
  if (order.mbs == 1) return batch_order(order);
  const int64_t num_groups = order.data_parallel * order.microbatches;
  RoundDeal deal = deal_in_rounds(costs, num_groups);
  even_out(costs, 0, deal);
  Order groups;
  groups.reserve(costs.size());
  for (int64_t group = 0; group < num_groups; ++group) {
    for (int64_t place = 0; place < order.mbs; ++place)
      groups.push_back(deal.item_of[static_cast<size_t>(place * num_groups + group)]);
    std::sort(groups.end() - order.mbs, groups.end());
  }
  return groups;
}

/// Samples dealt to ranks so that ranks have the same, and within each to microbatches, in falling order. Ranks come
/// out more even than with groups that are made first.
Order even_ranks(const BatchOrder& order, const std::vector<double>& costs) {
  if (order.mbs == 1) return dealt_by_rank(batch_order(order), order, costs);
  RoundDeal ranks = deal_to_even_sums(costs, order.data_parallel);
  even_out(costs, 0, ranks);
  Order samples(costs.size());
  const auto own_count = static_cast<size_t>(order.microbatches * order.mbs);
  std::vector<double> own(own_count);
  for (int64_t rank = 0; rank < order.data_parallel; ++rank) {
    const auto sample_of = [&](int32_t item) {
      return ranks.item_of[static_cast<size_t>(item * order.data_parallel + rank)];
    };
    for (size_t i = 0; i < own_count; ++i) own[i] = costs[static_cast<size_t>(sample_of(static_cast<int32_t>(i)))];
    RoundDeal microbatches = deal_in_rounds(own, order.microbatches);
    even_out(own, 0, microbatches);
    std::vector<int32_t> falling(static_cast<size_t>(order.microbatches));
    std::iota(falling.begin(), falling.end(), 0);
    std::stable_sort(falling.begin(), falling.end(), [&](int32_t a, int32_t b) {
      return microbatches.sums[static_cast<size_t>(a)] > microbatches.sums[static_cast<size_t>(b)];
    });
    for (int64_t microbatch = 0; microbatch < order.microbatches; ++microbatch) {
      const auto begin = samples.begin() + order.index(rank, microbatch, 0);
      for (int64_t place = 0; place < order.mbs; ++place) {
        const auto item = place * order.microbatches + falling[static_cast<size_t>(microbatch)];
        begin[place] = sample_of(microbatches.item_of[static_cast<size_t>(item)]);
      }
      std::sort(begin, begin + order.mbs);
    }
  }
  return samples;
}

/// Better in something, and worse in nothing.
bool is_better(const LlmSpread& spread, const LlmSpread& than) {
  return is_no_worse(spread, than) && !is_no_worse(than, spread);
}

Order balanced_order(const BatchOrder& order, const std::vector<double>& costs, bool in_lockstep) {
  Order as_given = batch_order(order);
  const LlmSpread given = spread_of(as_given, order, costs);
  const std::array<std::function<Order()>, 4> ways = {
      [&] { return even_ranks(order, costs); },
      [&] { return dealt_by_index(even_groups(order, costs), order, costs); },
      // Where everything else makes something worse, the batch's own groups can be dealt better.
      [&] { return dealt_by_rank(as_given, order, costs); },
      [&] { return dealt_by_index(as_given, order, costs); },
  };
  // The first two the other way round where ranks run in lockstep.
  for (const size_t way : {size_t{in_lockstep ? 1u : 0u}, size_t{in_lockstep ? 0u : 1u}, size_t{2}, size_t{3}}) {
    Order samples = ways[way]();
    if (is_better(spread_of(samples, order, costs), given)) return samples;
  }
  return as_given;
}

BatchAssignment::Shares llm_shares(const Order& samples, const BatchOrder& order) {
  BatchAssignment::Shares shares(static_cast<size_t>(order.data_parallel));
  for (int64_t rank = 0; rank < order.data_parallel; ++rank) {
    auto& microbatches = shares[static_cast<size_t>(rank)];
    microbatches.reserve(static_cast<size_t>(order.microbatches));
    for (int64_t microbatch = 0; microbatch < order.microbatches; ++microbatch) {
      const auto begin = samples.begin() + order.index(rank, microbatch, 0);
      microbatches.emplace_back(begin, begin + order.mbs);
    }
  }
  return shares;
}

/// The rank that each sample of a macro batch goes to: in order, so many a rank, unless balancing is better.
std::vector<int32_t> ranks_of_macro(std::span<const double> costs, int64_t num_ranks, int64_t at_once, bool balances) {
  std::vector<int32_t> in_order(costs.size());
  for (size_t i = 0; i < costs.size(); ++i) in_order[i] = static_cast<int32_t>(static_cast<int64_t>(i) / at_once);
  if (!balances) return in_order;
  const auto busiest = [&](const std::vector<int32_t>& rank_of) {
    std::vector<double> sums(static_cast<size_t>(num_ranks), 0);
    for (size_t i = 0; i < costs.size(); ++i) sums[static_cast<size_t>(rank_of[i])] += costs[i];
    return *std::max_element(sums.begin(), sums.end());
  };
  std::vector<int32_t> dealt = deal_longest_first(costs, num_ranks);
  return busiest(dealt) * (1 + kRounding) < busiest(in_order) ? dealt : in_order;
}

BatchAssignment::Shares encoder_shares(const Order& samples, const BatchOrder& order, const EncoderShape& encoder,
                                       const std::vector<double>& costs, bool balances) {
  BatchAssignment::Shares shares(static_cast<size_t>(encoder.data_parallel));
  const int64_t at_once = encoder.at_once(order.mbs);
  const int64_t macro = at_once * encoder.data_parallel;
  for (auto& rank : shares) rank.resize(static_cast<size_t>((order.size() + macro - 1) / macro));
  std::vector<double> own;
  std::vector<size_t> counts;
  for (int64_t first = 0; first < order.size(); first += macro) {
    const std::span<const int32_t> part(samples.data() + first,
                                        static_cast<size_t>(std::min(macro, order.size() - first)));
    own.assign(part.size(), 0);
    if (balances) {
      for (size_t i = 0; i < part.size(); ++i) own[i] = costs[static_cast<size_t>(part[i])];
    }
    const std::vector<int32_t> rank_of = ranks_of_macro(own, encoder.data_parallel, at_once, balances);
    counts.assign(shares.size(), 0);
    for (const int32_t rank : rank_of) ++counts[static_cast<size_t>(rank)];
    for (size_t rank = 0; rank < shares.size(); ++rank)
      shares[rank][static_cast<size_t>(first / macro)].reserve(counts[rank]);
    for (size_t i = 0; i < part.size(); ++i)
      shares[static_cast<size_t>(rank_of[i])][static_cast<size_t>(first / macro)].push_back(part[i]);
  }
  return shares;
}

}  // namespace

LlmSpread llm_spread(const BatchAssignment::Shares& shares, const std::vector<double>& costs) {
  const BatchOrder order{.data_parallel = static_cast<int64_t>(shares.size()),
                         .microbatches = static_cast<int64_t>(shares.front().size()),
                         .mbs = static_cast<int64_t>(shares.front().front().size())};
  Order samples(static_cast<size_t>(order.size()));
  for (int64_t rank = 0; rank < order.data_parallel; ++rank) {
    for (int64_t microbatch = 0; microbatch < order.microbatches; ++microbatch) {
      const auto& own = shares[static_cast<size_t>(rank)][static_cast<size_t>(microbatch)];
      std::transform(own.begin(), own.end(), samples.begin() + order.index(rank, microbatch, 0),
                     [](int64_t sample) { return static_cast<int32_t>(sample); });
    }
  }
  return spread_of(samples, order, costs);
}

double encoder_spread(const BatchAssignment::Shares& shares, const std::vector<double>& costs) {
  double total = 0;
  for (size_t macro = 0; macro < shares.front().size(); ++macro) {
    double busiest = 0;
    for (const auto& rank : shares) {
      double sum = 0;
      for (const int64_t sample : rank[macro]) sum += costs[static_cast<size_t>(sample)];
      busiest = std::max(busiest, sum);
    }
    total += busiest;
  }
  return total;
}

BatchAssignment assign_balanced(const BatchShape& shape, const BalancedModules& which, const BatchCosts& costs) {
  const BatchOrder& order = shape.llm;
  WEFT_CHECK(order.size() <= INT32_MAX, "a batch of {} samples", order.size());
  if (which.llm) check_costs(costs.llm, order);
  const Order samples = which.llm ? balanced_order(order, costs.llm, which.ranks_in_lockstep) : batch_order(order);
  BatchAssignment assignment{.llm = llm_shares(samples, order)};
  const std::vector<double> none;
  for (const auto& [kind, encoder] : shape.encoders) {
    const auto own = costs.encoders.find(kind);
    WEFT_CHECK(!which.encoders || own != costs.encoders.end(), "no costs for {}", name_of(kind));
    if (which.encoders) check_costs(own->second, order);
    assignment.encoders[kind] =
        encoder_shares(samples, order, encoder, which.encoders ? own->second : none, which.encoders);
  }
  return assignment;
}

}  // namespace weft
