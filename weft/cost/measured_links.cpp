#include "weft/cost/measured_links.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/as_double.h"
#include "weft/base/check.h"
#include "weft/cost/collective_time.h"

namespace weft {
namespace {

Collective collective_of(const std::string& name) {
  constexpr std::array<const char*, kNumCollectives> kNames = {"all_reduce", "all_gather", "reduce_scatter",
                                                               "all_to_all", "send"};
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<Collective>(i);
  }
  WEFT_CHECK(false, "{} is no collective", name);
  return Collective::kSend;
}

bool is_ring(Collective collective) {
  return collective != Collective::kAllToAll && collective != Collective::kSend;
}

/// A measurement as a line in two unknowns: what it would take at the links' full bandwidth, without latency, and how
/// many hops it waits for.
struct Term {
  Collective collective = Collective::kAllReduce;
  double moving_ms = 0;
  double hops = 0;
  double ms = 0;
};

Term term_of(const Cluster& ideal, const LinkMeasurement& m) {
  const GroupPlacement placement{.link = m.is_between_nodes ? LinkKind::kBetweenNodes : LinkKind::kWithinNode,
                                 .num_ranks = m.ranks,
                                 .num_nodes = m.is_between_nodes ? std::max<int64_t>(1, m.ranks / m.ranks_per_node) : 1,
                                 .most_ranks_per_node = m.is_between_nodes ? m.ranks_per_node : m.ranks,
                                 .groups_per_node = m.is_between_nodes ? 1 : 0};
  GroupLink link = link_of(ideal, placement);
  link.rates = {};
  Term term{.collective = collective_of(m.collective), .ms = m.ms};
  const auto time = [&](double latency_ms) {
    link.latency_ms = latency_ms;
    // Of a group with several ranks on a node, the hops inside are left to the bandwidth.
    link.within_latency_ms = m.is_between_nodes ? 0 : latency_ms;
    switch (term.collective) {
      case Collective::kAllReduce:
        return all_reduce_ms(link, m.bytes);
      case Collective::kAllGather:
        return all_gather_ms(link, m.bytes);
      case Collective::kReduceScatter:
        return reduce_scatter_ms(link, m.bytes);
      case Collective::kAllToAll:
        return all_to_all_ms(link, m.bytes);
      case Collective::kSend:
        return ring_step_ms(link, m.bytes);
    }
    return 0.0;
  };
  term.moving_ms = time(0);
  term.hops = time(1) - term.moving_ms;
  return term;
}

/// The two unknowns: how many times as long as at full bandwidth, and the latency of a hop.
struct Fit {
  double slowness = 0;
  double latency_ms = 0;

  double ms(const Term& term) const { return slowness * term.moving_ms + latency_ms * term.hops; }
  bool is_possible() const { return slowness > 0 && latency_ms >= 0 && std::isfinite(slowness + latency_ms); }
};

/// With a latency that is known.
Fit fit_bandwidth(const std::vector<Term>& terms, double latency_ms) {
  double squares = 0, products = 0;
  for (const Term& t : terms) {
    const double moving = t.moving_ms / t.ms;
    squares += moving * moving;
    products += moving * (1 - latency_ms * t.hops / t.ms);
  }
  return {.slowness = products / squares, .latency_ms = latency_ms};
}

/// Least squares of relative errors, of possible values.
Fit fit(const std::vector<Term>& terms, double usual_latency_ms) {
  double mm = 0, mh = 0, hh = 0, m1 = 0, h1 = 0;
  for (const Term& t : terms) {
    const double m = t.moving_ms / t.ms, h = t.hops / t.ms;
    mm += m * m;
    mh += m * h;
    hh += h * h;
    m1 += m;
    h1 += h;
  }
  const double determinant = mm * hh - mh * mh;
  if (determinant > 1e-9 * mm * hh) {
    const Fit both{.slowness = (m1 * hh - h1 * mh) / determinant, .latency_ms = (h1 * mm - m1 * mh) / determinant};
    if (both.is_possible()) return both;
  } else {
    // Messages of one size do not tell latency from bandwidth.
    const Fit usual = fit_bandwidth(terms, usual_latency_ms);
    if (usual.is_possible()) return usual;
  }
  const Term largest = *std::max_element(terms.begin(), terms.end(),
                                         [](const Term& a, const Term& b) { return a.moving_ms < b.moving_ms; });
  const Fit whole = fit_bandwidth(terms, 0);
  return whole.is_possible() ? whole : fit_bandwidth({largest}, 0);
}

bool has_several_sizes(const std::vector<Term>& terms) {
  const auto [least, most] = std::minmax_element(
      terms.begin(), terms.end(), [](const Term& a, const Term& b) { return a.moving_ms < b.moving_ms; });
  return most->moving_ms > 1.5 * least->moving_ms;
}

}  // namespace

std::vector<std::string> apply_links(const Profile& profile, Cluster& cluster, std::vector<LinkSource>* sources) {
  std::vector<std::string> warnings;
  Cluster ideal = cluster;
  ideal.efficiency.within_node = ideal.efficiency.between_nodes = 1;
  for (const bool is_between : {false, true}) {
    std::vector<Term> all, rings;
    std::array<std::vector<Term>, kNumCollectives> by_collective;
    for (const LinkMeasurement& m : profile.links) {
      if (m.is_between_nodes != is_between) continue;
      const Term term = term_of(ideal, m);
      if (term.moving_ms <= 0 || !std::isfinite(term.moving_ms)) continue;
      all.push_back(term);
      if (is_ring(term.collective)) rings.push_back(term);
      by_collective[static_cast<size_t>(term.collective)].push_back(term);
    }
    if (all.empty()) continue;
    Link& link = is_between ? cluster.between_nodes : cluster.within_node;
    double& efficiency = is_between ? cluster.efficiency.between_nodes : cluster.efficiency.within_node;
    const Fit base = fit(rings.empty() ? all : rings, link.latency_us * 1e-3);
    const double reached = 1 / base.slowness;
    efficiency = std::clamp(reached, 0.01, 1.0);
    if (reached > 1.02 || reached < 0.01) {
      warnings.push_back(
          fmt::format("{}: links: messages {} reached {:.4g} GB/s, {:.3g} times what the cluster's links allow; usual "
                      "are 0.3 to 0.95: are bytes and ms right, and links.{}.bandwidth_gb_per_s?",
                      profile.source, is_between ? "between nodes" : "within a node", reached * link.bandwidth_gb_per_s,
                      reached, is_between ? "between_nodes" : "within_node"));
    }
    link.latency_us = base.latency_ms * 1e3;
    RatesOfCollectives& rates = is_between ? cluster.measured.between_nodes : cluster.measured.within_node;
    double worst = 0;
    for (size_t c = 0; c < kNumCollectives; ++c) {
      const std::vector<Term>& terms = by_collective[c];
      if (terms.empty()) continue;
      Fit own = has_several_sizes(terms) ? fit(terms, base.latency_ms) : fit_bandwidth(terms, base.latency_ms);
      if (!own.is_possible()) own = base;
      // What is not there cannot be had a multiple of.
      constexpr double kLeastLatency_ms = 1e-6;
      if (own.latency_ms > 0 && link.latency_us == 0) link.latency_us = kLeastLatency_ms * 1e3;
      rates[c] = {.bandwidth = std::clamp(1 / own.slowness / efficiency, 0.02, 50.0),
                  .latency = own.latency_ms > 0 ? own.latency_ms / (link.latency_us * 1e-3) : 0};
      for (const Term& term : terms) worst = std::max(worst, 100 * std::abs(own.ms(term) / term.ms - 1));
    }
    if (sources != nullptr) {
      sources->push_back({.is_between_nodes = is_between,
                          .points = static_cast<int64_t>(all.size()),
                          .gb_per_s = efficiency * link.bandwidth_gb_per_s,
                          .latency_us = link.latency_us,
                          .error_percent = worst});
    }
  }
  return warnings;
}

}  // namespace weft
