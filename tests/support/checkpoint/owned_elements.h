#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "weft/optim/owned_pieces.h"

// What ranks own, element by element: the brute force that routes are held against.
namespace weft {

/// Which elements of which weight: 0 not owned, 1 without moments, 2 with them.
using OwnedElements = std::map<std::string, std::vector<int8_t>>;

/// Where an element of a piece lies in the whole weight, flattened.
inline int64_t place_in_weight(const WeightPiece& piece, int64_t element) {
  const int64_t width = piece.held_row_elements();
  const int64_t skipped = piece.num_columns < 0 ? 0 : piece.first_column * (piece.row_elements() / piece.shape[1]);
  return (piece.first_row + element / width) * piece.row_elements() + skipped + element % width;
}

inline OwnedElements owned_elements(std::span<StageOptimizer* const> optimizers) {
  OwnedElements all;
  for (const StageOptimizer* optimizer : optimizers) {
    for (const OwnedPiece& owned : owned_pieces(*optimizer)) {
      const WeightPiece& piece = *owned.piece;
      if (piece.name.empty()) continue;
      std::vector<int8_t>& elements = all[piece.name];
      elements.resize(static_cast<size_t>(piece.shape[0] * piece.row_elements()));
      for (int64_t i = owned.elements.begin; i < owned.elements.end; ++i)
        elements[static_cast<size_t>(place_in_weight(piece, i))] = owned.state.moment1.defined() ? 2 : 1;
    }
  }
  return all;
}

/// One element of a weight as an optimizer holds it, to the last bit.
struct ElementState {
  std::array<uint64_t, 3> bits{};  ///< of the value and both moments
  int64_t updates = -1;            ///< that the moments are of; -1 without moments

  bool operator==(const ElementState&) const = default;
};

/// Of each element what different copies there are: AdamW rounds the last elements of a stretch otherwise than those
/// before, so that copies that lie elsewhere may differ in their last bit.
using ElementStates = std::map<std::string, std::vector<std::vector<ElementState>>>;

/// Adds what a rank's optimizers own.
inline void add_states(std::span<StageOptimizer* const> optimizers, ElementStates& all) {
  for (const StageOptimizer* optimizer : optimizers) {
    for (const OwnedPiece& owned : owned_pieces(*optimizer)) {
      const WeightPiece& piece = *owned.piece;
      if (piece.name.empty()) continue;
      std::vector<std::vector<ElementState>>& elements = all[piece.name];
      elements.resize(static_cast<size_t>(piece.shape[0] * piece.row_elements()));
      const bool has_moments = owned.state.moment1.defined();
      std::vector<at::Tensor> tensors = {owned.state.master};
      if (has_moments) tensors.insert(tensors.end(), {owned.state.moment1, owned.state.moment2});
      for (at::Tensor& tensor : tensors) tensor = tensor.to(at::kDouble).contiguous();
      for (int64_t i = owned.elements.begin; i < owned.elements.end; ++i) {
        ElementState state{.updates = has_moments ? optimizer->updates_of(owned.index) : -1};
        for (size_t t = 0; t < tensors.size(); ++t)
          state.bits[t] = std::bit_cast<uint64_t>(tensors[t].const_data_ptr<double>()[i - owned.elements.begin]);
        std::vector<ElementState>& copies = elements[static_cast<size_t>(place_in_weight(piece, i))];
        if (std::find(copies.begin(), copies.end(), state) == copies.end()) copies.push_back(state);
      }
    }
  }
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
