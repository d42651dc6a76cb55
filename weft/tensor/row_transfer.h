#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/comm/group.h"
#include "weft/mesh/own_route.h"
#include "weft/tensor/flights.h"
#include "weft/tensor/row_places.h"

namespace weft {

/// Rows on their way between ranks: what one of them sends and receives. Outside autograd. The rows that are sent must
/// stay as they are until nothing is under way; dropping the transfer before that abandons the messages.
class [[nodiscard]] RowTransfer {
 public:
  RowTransfer() = default;
  RowTransfer(RowTransfer&&) noexcept = default;
  /// What was under way goes before the memory that it writes.
  RowTransfer& operator=(RowTransfer other) noexcept;
  ~RowTransfer() = default;

  /// Returns when the needed rows [needed, width] are here, once, and gives them away. What this rank sends may be
  /// under way still.
  at::Tensor wait();
  /// Whether all has been received and sent; moves on what it can without waiting, and lets go of what has been sent.
  bool is_done();
  /// Returns when it is. The needed rows can be had afterwards, too.
  void finish();
  /// Adds what is under way.
  void add_to(TensorFlights& flights) const;

 private:
  friend RowTransfer start_rows(const Group& group, const OwnRoute& route, const at::Tensor& rows, int64_t width,
                                const at::TensorOptions& options);

  struct Sent {
    at::Tensor rows;  ///< goes last
    Work work;
  };
  struct Arriving {
    at::Tensor rows;   ///< memory of their own, or undefined where they come to their places by themselves
    RowPlaces places;  ///< in the result
    Work work;
  };

  void receive();

  at::Tensor result_;
  std::vector<Sent> sent_;
  std::vector<Arriving> arriving_;
};

/// Starts what this rank of the group sends and receives on its route, and returns before any of it has arrived. A rank
/// without messages may leave it out, the others call it alike: the k-th transfer with messages between two ranks meets
/// the k-th there. `rows` [held, width] may be undefined where the rank holds none, and needs no gradient; a needed row
/// that nobody holds is zero. `options` are the type and device of all of it.
RowTransfer start_rows(const Group& group, const OwnRoute& route, const at::Tensor& rows, int64_t width,
                       const at::TensorOptions& options);

}  // namespace weft
