#pragma once

#include <cstdint>

namespace weft {

/// What one rank sends and receives, in elements.
struct Traffic {
  int64_t sent = 0;
  int64_t received = 0;

  Traffic in_bytes(int64_t bytes_per_element) const { return {sent * bytes_per_element, received * bytes_per_element}; }
  Traffic& operator+=(const Traffic& other) {
    sent += other.sent;
    received += other.received;
    return *this;
  }
  bool operator==(const Traffic&) const = default;
};

// Collectives go round a ring in group order, in which every rank sends to the next. Where a group has one rank,
// nothing moves.

/// A gather brings a rank what it does not hold: `total` elements, of which it has `own` and the next rank `next`.
Traffic gather_traffic(int64_t total, int64_t own, int64_t next);
/// A scatter has a rank send what it does not keep: `own` of `total` elements; the rank before it keeps `previous`.
Traffic scatter_traffic(int64_t total, int64_t own, int64_t previous);
/// The same of equal parts.
Traffic gather_traffic(int64_t total, int64_t num_ranks);
Traffic scatter_traffic(int64_t total, int64_t num_ranks);
/// An all-reduce is a scatter and a gather of balanced chunks.
Traffic all_reduce_traffic(int64_t num_elements, int64_t num_ranks, int64_t rank);

}  // namespace weft
