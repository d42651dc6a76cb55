#include "weft/checkpoint/own_parts.h"

#include "weft/base/check.h"

namespace weft {

OwnParts own_parts(std::span<StageOptimizer* const> optimizers, int64_t rank) {
  OwnParts own;
  for (size_t number = 0; number < optimizers.size(); ++number) {
    const StageOptimizer& optimizer = *optimizers[number];
    const std::span<const int64_t> group = optimizer.group().ranks();
    const std::vector<int64_t> kin =
        optimizer.owns_copies() ? std::vector<int64_t>(group.begin(), group.end()) : std::vector<int64_t>();
    for (const OwnedPiece& owned : owned_pieces(optimizer)) {
      if (owned.piece->name.empty()) continue;
      const bool is_trained = owned.state.moment1.defined();
      own.parts.push_back({.rank = rank,
                           .piece = *owned.piece,
                           .elements = owned.elements,
                           .is_trained = is_trained,
                           .updates = is_trained ? optimizer.updates_of(owned.index) : 0,
                           .kin = kin,
                           .value_type = owned.state.master.scalar_type(),
                           .moment_type = (is_trained ? owned.state.moment1 : owned.state.master).scalar_type()});
      own.pieces.push_back(owned);
      own.optimizers.push_back(number);
    }
  }
  return own;
}

std::vector<OwnedPiece> pieces_to_write(const StageOptimizer& optimizer) {
  std::vector<OwnedPiece> pieces = owned_pieces(optimizer);
  std::erase_if(pieces, [](const OwnedPiece& piece) { return piece.piece->name.empty(); });
  const Group& group = optimizer.group();
  if (!optimizer.owns_copies() || group.size() == 1) return pieces;
  int64_t total = 0;
  for (const OwnedPiece& piece : pieces) total += piece.elements.size();
  const ElementRange share{total * group.rank() / group.size(), total * (group.rank() + 1) / group.size()};
  std::vector<OwnedPiece> mine;
  int64_t begin = 0;
  for (OwnedPiece& piece : pieces) {
    const int64_t size = piece.elements.size();
    const ElementRange part = shifted(common({begin, begin + size}, share), -begin);
    begin += size;
    if (part.size() <= 0) continue;
    for (at::Tensor* tensor : {&piece.state.master, &piece.state.moment1, &piece.state.moment2})
      if (tensor->defined()) *tensor = range_view(*tensor, part);
    piece.elements = shifted(part, piece.elements.begin);
    mine.push_back(std::move(piece));
  }
  return mine;
}

void clear_unnamed(std::span<StageOptimizer* const> optimizers) {
  for (const StageOptimizer* optimizer : optimizers) {
    for (const OwnedPiece& owned : owned_pieces(*optimizer)) {
      if (!owned.piece->name.empty()) continue;
      for (const at::Tensor* tensor : {&owned.state.master, &owned.state.moment1, &owned.state.moment2})
        if (tensor->defined()) tensor->zero_();
    }
  }
}

void OwnParts::restore(std::span<StageOptimizer* const> all, int64_t step, const std::vector<int64_t>& updates) const {
  std::vector<std::vector<int64_t>> late;
  for (const StageOptimizer* optimizer : all) late.emplace_back(optimizer->parameters().size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!parts[i].is_trained) continue;
    late[optimizers[i]][pieces[i].index] = step - updates[i];
  }
  for (size_t number = 0; number < all.size(); ++number) all[number]->restore(step, std::move(late[number]));
}

std::vector<int64_t> updates_after(const PartIndex& held, const std::vector<RoutedCopy>& copies, size_t first,
                                   size_t count) {
  std::vector<int64_t> updates(count);
  for (const RoutedCopy& copy : copies) {
    if (copy.wanted < first || copy.wanted >= first + count) continue;
    const RoutedPart& part = held.parts()[copy.held];
    updates[copy.wanted - first] = part.is_trained ? part.updates : 0;
  }
  return updates;
}

}  // namespace weft
