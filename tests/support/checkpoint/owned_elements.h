#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "weft/optim/owned_pieces.h"

// What ranks own, element by element: the brute force that routes are held against.
namespace weft {

/// Which elements of which weight: 0 not owned, 1 without moments, 2 with them.
using OwnedElements = std::map<std::string, std::vector<int8_t>>;

inline OwnedElements owned_elements(std::span<StageOptimizer* const> optimizers) {
  OwnedElements all;
  for (const StageOptimizer* optimizer : optimizers) {
    for (const OwnedPiece& owned : owned_pieces(*optimizer)) {
      const WeightPiece& piece = *owned.piece;
      if (piece.name.empty()) continue;
      std::vector<int8_t>& elements = all[piece.name];
      elements.resize(static_cast<size_t>(piece.shape[0] * piece.row_elements()));
      const int64_t width = piece.held_row_elements();
      const int64_t skipped = piece.num_columns < 0 ? 0 : piece.first_column * (piece.row_elements() / piece.shape[1]);
      for (int64_t i = owned.elements.begin; i < owned.elements.end; ++i) {
        const int64_t place = (piece.first_row + i / width) * piece.row_elements() + skipped + i % width;
        elements[static_cast<size_t>(place)] = owned.state.moment1.defined() ? 2 : 1;
      }
    }
  }
  return all;
}

/// What any of them owns.
inline OwnedElements united(const std::vector<OwnedElements>& ranks) {
  OwnedElements all;
  for (const OwnedElements& rank : ranks) {
    for (const auto& [name, flags] : rank) {
      std::vector<int8_t>& elements = all[name];
      elements.resize(flags.size());
      for (size_t i = 0; i < flags.size(); ++i) elements[i] = std::max(elements[i], flags[i]);
    }
  }
  return all;
}

/// The fewest bytes that must come to a rank: of elements that it wants and does not have. Moments count where any rank
/// has them.
inline int64_t least_moved_bytes(const OwnedElements& before, const OwnedElements& after, const OwnedElements& there,
                                 int64_t element_bytes) {
  int64_t bytes = 0;
  for (const auto& [name, wanted] : after) {
    const auto held = before.find(name);
    const std::vector<int8_t>& anywhere = there.at(name);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i] == 0 || (held != before.end() && held->second[i] != 0)) continue;
      bytes += (wanted[i] == 2 && anywhere[i] == 2 ? 3 : 1) * element_bytes;
    }
  }
  return bytes;
}

}  // namespace weft
