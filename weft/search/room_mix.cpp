#include "weft/search/room_mix.h"

#include <algorithm>
#include <numeric>

#include "weft/search/precision.h"

namespace weft {
namespace {

double price_of(const StageTimes& weights, const StageTimes& work) {
  return std::inner_product(weights.begin(), weights.end(), work.begin(), 0.0);
}

/// Layers that a rank takes at the same price.
struct Offer {
  double price_ms;
  int64_t rank;
  bool is_recomputed;
};

}  // namespace

void LayeredWork::ignore_reductions() {
  layer[kReduceWork] = first[kReduceWork] = last[kReduceWork] = 0;
  for (StageTimes& other : others) other[kReduceWork] = 0;
}

RoomMix::RoomMix(const Schedule& schedule, const PathMix& mix, const LayeredWork& work, const StageTimes& every_stage,
                 const FluidChain& chain, std::span<const double> in_flight)
    : chain_(chain),
      in_flight_(in_flight.begin(), in_flight.end()),
      prices_(static_cast<size_t>(chain.pp), {kInfinity, kInfinity}) {
  std::vector<double> others_ms(work.others.size(), kInfinity);
  for (size_t stage = 0; stage < mix.size(); ++stage) {
    fixed_ms_ += price_of(mix[stage], every_stage);
    RankPrice& price = prices_[static_cast<size_t>(schedule.rank_of_stage[stage])];
    price.layer_ms = std::min(price.layer_ms, price_of(mix[stage], work.layer));
    price.input_ms = std::min(price.input_ms, mix[stage][kInputWork]);
    for (size_t i = 0; i < others_ms.size(); ++i)
      others_ms[i] = std::min(others_ms[i], price_of(mix[stage], work.others[i]));
  }
  fixed_ms_ += price_of(mix.front(), work.first) + price_of(mix.back(), work.last);
  fixed_ms_ += std::accumulate(others_ms.begin(), others_ms.end(), 0.0);
  const double chunks = static_cast<double>(mix.size()) / static_cast<double>(chain.pp);
  host_ms_ = chunks * (every_stage[kForwardWork] + every_stage[kInputWork] + every_stage[kWeightWork]);
  chain_.memory_bytes -= chunks * chain.stage_bytes + chain.passing_bytes;
  chain_.workspace_bytes += chain.passing_bytes;
}

double RoomMix::least_makespan_ms(const BesideGib& beside) const {
  FluidChain chain = chain_;
  chain.take(beside);
  if (chain.memory_bytes <= 0 || chain.memory_bytes < chain.last_rank_bytes) return kInfinity;
  const FluidRanks ranks(chain, in_flight_);
  std::vector<double> plain;
  std::vector<Offer> offers;
  for (int64_t rank = 0; rank < chain.pp; ++rank) {
    const RankPrice& price = prices_[static_cast<size_t>(rank)];
    plain.push_back(ranks.plain_layers(rank));
    offers.push_back({.price_ms = price.layer_ms, .rank = rank, .is_recomputed = false});
    const double recompute_ms = ranks.recompute_ms(rank);
    if (recompute_ms < kInfinity)
      offers.push_back(
          {.price_ms = price.layer_ms + price.input_ms * recompute_ms, .rank = rank, .is_recomputed = true});
  }
  std::sort(offers.begin(), offers.end(), [](const Offer& a, const Offer& b) { return a.price_ms < b.price_ms; });
  // No rank works longer than the makespan; within that, layers go where the mix meets them least. A rank's plain
  // layers are cheaper than its others, so that they come first.
  std::vector<double> most(plain.size());
  const auto microbatches = static_cast<double>(chain.microbatches);
  const auto mix_ms = [&](double makespan_ms) {
    const double busy_ms = makespan_ms / microbatches - host_ms_;
    for (int64_t rank = 0; rank < chain.pp; ++rank)
      most[static_cast<size_t>(rank)] = busy_ms > 0 ? ranks.most_layers(rank, busy_ms) : 0;
    double left = chain.layers, ms = fixed_ms_;
    for (const Offer& offer : offers) {
      const auto rank = static_cast<size_t>(offer.rank);
      const double here = std::min(
          left, offer.is_recomputed ? std::max(0.0, most[rank] - plain[rank]) : std::min(most[rank], plain[rank]));
      ms += here * offer.price_ms;
      left -= here;
      if (left <= 0) break;
    }
    return left > 1e-9 * chain.layers ? kInfinity : ms;
  };
  double low = microbatches * (chain.even_ms() + host_ms_), high = low;
  if (mix_ms(low) <= low) return low;
  const double most_ms =
      4 * microbatches *
      (chain.layers * (chain.layer_ms + chain.forward_ms) + chain.other_ms + chain.first_ms + chain.last_ms + host_ms_);
  while (mix_ms(high) > high) {
    if (high > most_ms && mix_ms(high) == kInfinity) return kInfinity;
    low = high;
    high *= 1.25;
  }
  constexpr double kCloseEnough = 1e-4;
  while (high - low > kCloseEnough * high) {
    const double middle = (low + high) / 2;
    (mix_ms(middle) > middle ? low : high) = middle;
  }
  return low;
}

}  // namespace weft
