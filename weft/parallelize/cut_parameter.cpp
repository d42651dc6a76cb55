#include "weft/parallelize/cut_parameter.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/mesh/head_share.h"
#include "weft/mesh/split.h"

namespace weft {
namespace {

/// What a rank has of `length` elements that a cut deals out.
Range cut_range(const WeightCut& cut, int64_t length, const TensorShare& share) {
  if (cut.unit == CutUnit::kNone) return {0, length};
  if (cut.unit == CutUnit::kElements) {
    const Range groups = Split(length / cut.num_together, {share.num_ranks}).part(share.rank);
    return {groups.begin * cut.num_together, groups.end * cut.num_together};
  }
  if (cut.unit == CutUnit::kShares) {
    const Range own = Split(cut.num_shares, {share.num_ranks}).part(share.rank);
    return {0, cut.share >= own.begin && cut.share < own.end ? length : 0};
  }
  const HeadShare heads = share_of_heads(cut.heads, share.num_ranks, share.rank);
  const int64_t dim = cut.heads.head_dim;
  if (cut.unit == CutUnit::kQueryHeads) return {heads.first_head * dim, (heads.first_head + heads.num_heads) * dim};
  return {heads.first_kv_head * dim, (heads.first_kv_head + heads.num_kv_heads) * dim};
}

/// Shares that other ranks have. One piece stays, so that a rank without any knows what it has nothing of.
void drop_other_shares(std::vector<WeightPiece>& pieces) {
  const auto is_elsewhere = [](const WeightPiece& piece) {
    return piece.cut.unit == CutUnit::kShares && piece.num_rows == 0;
  };
  const auto named = std::find_if(pieces.begin(), pieces.end(), [](const auto& piece) { return !piece.name.empty(); });
  const std::vector<WeightPiece> first(named, named == pieces.end() ? named : named + 1);
  std::erase_if(pieces, is_elsewhere);
  if (pieces.empty()) pieces = first;
}

}  // namespace

ParameterSpec cut_experts(const ParameterSpec& whole, const TensorShare& share) {
  if (share.num_ranks == 1 || whole.pieces.empty() || !whole.pieces.front().is_expert) return whole;
  const int64_t experts = whole.shape.front();
  WEFT_CHECK(experts % share.num_ranks == 0, "{} experts on {} ranks", experts, share.num_ranks);
  const int64_t here = experts / share.num_ranks;
  const int64_t pieces = std::ssize(whole.pieces) / experts;  // of each expert
  ParameterSpec part = whole;
  const auto first = whole.pieces.begin() + static_cast<std::ptrdiff_t>(share.rank * here * pieces);
  part.pieces.assign(first, first + static_cast<std::ptrdiff_t>(here * pieces));
  part.shape.front() = here;
  return part;
}

ParameterSpec cut_parameter(const ParameterSpec& whole, const TensorShare& share) {
  const auto is_whole = [](const WeightPiece& piece) { return piece.cut.unit == CutUnit::kNone; };
  if (share.num_ranks == 1 || std::all_of(whole.pieces.begin(), whole.pieces.end(), is_whole)) return whole;
  ParameterSpec part = whole;
  int64_t rows = 0;
  int64_t columns = whole.shape.back();
  for (WeightPiece& piece : part.pieces) {
    if (piece.cut.unit != CutUnit::kNone && piece.cut.dim == 1) {
      const Range range = cut_range(piece.cut, piece.shape[1], share);
      piece.first_column = range.begin;
      piece.num_columns = range.end - range.begin;
      columns = piece.num_columns;
    } else {
      const Range range = cut_range(piece.cut, piece.num_rows, share);
      piece.first_row += range.begin;
      piece.num_rows = range.end - range.begin;
    }
    rows += piece.num_rows;
  }
  drop_other_shares(part.pieces);
  switch (part.shape.size()) {
    case 1:
      part.shape = {rows};
      break;
    case 2:
      part.shape = {rows, columns};
      break;
    default:
      part.shape = {whole.shape[0], rows / whole.shape[0], columns};
  }
  return part;
}

PieceCopies copies_of(const WeightPiece& piece, const TensorShare& share) {
  if (piece.cut.unit == CutUnit::kNone) return {.count = share.num_ranks, .place = share.rank};
  if (piece.cut.unit != CutUnit::kKeyHeads) return {};
  const HeadShare heads = share_of_heads(piece.cut.heads, share.num_ranks, share.rank);
  return {.count = heads.sharers, .place = heads.place};
}

}  // namespace weft
