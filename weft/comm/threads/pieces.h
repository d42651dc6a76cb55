#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/comm/operation.h"

namespace weft {

inline constexpr int64_t kEveryone = -1;

/// A part of an operation that one thread does at a time: elements of one rank's input, or the reduction of everyone's,
/// go to one rank's output or to everyone's. Pieces of one operation write different memory, so they can be done in any
/// order and at the same time.
struct Piece {
  int64_t from = kEveryone;  ///< everyone: their reduction
  int64_t to = kEveryone;
  int64_t from_begin = 0;
  int64_t to_begin = 0;
  int64_t count = 0;
};

/// Cuts an operation into pieces and adds them. `posted` is what each rank asked for, and agrees; for a message it is
/// the send and the recv.
void cut_into_pieces(std::span<const Operation> posted, std::vector<Piece>& pieces);

void do_piece(const Piece& piece, std::span<const Operation> posted);

}  // namespace weft
