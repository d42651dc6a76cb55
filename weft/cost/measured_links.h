#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/profile/profile.h"

namespace weft {

/// How links of one kind were fitted.
struct LinkSource {
  bool is_between_nodes = false;
  int64_t points = 0;
  double gb_per_s = 0;       ///< that rings reach
  double latency_us = 0;     ///< of a hop
  double error_percent = 0;  ///< what the fit misses at most
};

/// Bandwidth and latency of the links that a profile measured, in place of the cluster's: for rings of all kinds
/// together, and by collective where several sizes were measured. All points are fitted by least squares of their
/// relative errors. Returns what looks like a mistaken unit.
std::vector<std::string> apply_links(const Profile& profile, Cluster& cluster,
                                     std::vector<LinkSource>* sources = nullptr);

}  // namespace weft
