#pragma once

#include <functional>

#include "weft/checkpoint/weight_route.h"

namespace weft {

/// A route, which all ranks have computed alike.
struct WeightMove {
  const PartIndex& held;
  const std::vector<RoutedPart>& wanted;
  const std::vector<RoutedCopy>& copies;
  const std::vector<int64_t>& readers;  ///< by part that is there: who has its bytes, or reads them
};

/// The tensors of a part that this rank reads, flat, of which these elements are needed; moments only where asked for.
using ReadHeld = std::function<Result<AdamWState>(size_t held, const ElementRange& elements, bool has_moments)>;
/// Where a part goes that this rank wants.
using WantedState = std::function<AdamWState(size_t wanted)>;

/// Brings every copy of a route where it is wanted, in rounds of a few MiB a rank: each element is sent once to each
/// rank that wants it, in the type in which it is wanted. Moments of weights that had none become zero. What this rank
/// could not read is its error; others then have zeros. All ranks call it.
std::optional<Error> move_weights(Group& everyone, const WeightMove& move, const ReadHeld& read,
                                  const WantedState& state_of);

}  // namespace weft
