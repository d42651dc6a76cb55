#include "weft/comm/threads/pieces.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace weft {
namespace {

/// Large enough that taking a piece costs nothing beside doing it, small enough that threads that come late find some.
constexpr int64_t kPieceBytes = int64_t{128} << 10;

void add_pieces(std::vector<Piece>& pieces, const Piece& whole, DataType type) {
  const int64_t most = kPieceBytes / bytes_per_element(type);
  for (int64_t begin = 0; begin < whole.count; begin += most) {
    pieces.push_back({.from = whole.from,
                      .to = whole.to,
                      .from_begin = whole.from_begin + begin,
                      .to_begin = whole.to_begin + begin,
                      .count = std::min(most, whole.count - begin)});
  }
}

/// The few pointers that one piece needs, without allocation for groups of usual size.
template <typename Pointer>
class Pointers {
 public:
  void add(Pointer pointer) {
    if (size_ < kFew) {
      few_[size_++] = pointer;
      return;
    }
    if (many_.empty()) many_.assign(few_, few_ + kFew);
    many_.push_back(pointer);
  }
  std::span<const Pointer> all() const {
    return many_.empty() ? std::span<const Pointer>(few_, size_) : std::span<const Pointer>(many_);
  }

 private:
  static constexpr size_t kFew = 16;
  Pointer few_[kFew];
  size_t size_ = 0;
  std::vector<Pointer> many_;
};

}  // namespace

void cut_into_pieces(std::span<const Operation> posted, std::vector<Piece>& pieces) {
  const Operation& first = posted.front();
  const auto size = static_cast<int64_t>(posted.size());
  switch (first.kind) {
    case OperationKind::kAllReduce:
      add_pieces(pieces, {.count = first.in.count}, first.in.type);
      break;
    case OperationKind::kAllGather: {
      const auto parts = parts_of(first.out.count, first.out_counts, size);
      for (int64_t r = 0; r < size; ++r) {
        const PartRange part = parts[static_cast<size_t>(r)];
        add_pieces(pieces, {.from = r, .to_begin = part.begin, .count = part.size}, first.in.type);
      }
      break;
    }
    case OperationKind::kReduceScatter: {
      const auto parts = parts_of(first.in.count, first.in_counts, size);
      for (int64_t r = 0; r < size; ++r) {
        const PartRange part = parts[static_cast<size_t>(r)];
        add_pieces(pieces, {.to = r, .from_begin = part.begin, .count = part.size}, first.in.type);
      }
      break;
    }
    case OperationKind::kAllToAll: {
      std::vector<int64_t> to_begins(posted.size(), 0);
      for (int64_t from = 0; from < size; ++from) {
        const Operation& sender = posted[static_cast<size_t>(from)];
        const auto parts = parts_of(sender.in.count, sender.in_counts, size);
        for (int64_t to = 0; to < size; ++to) {
          const PartRange part = parts[static_cast<size_t>(to)];
          int64_t& to_begin = to_begins[static_cast<size_t>(to)];
          add_pieces(pieces,
                     {.from = from, .to = to, .from_begin = part.begin, .to_begin = to_begin, .count = part.size},
                     first.in.type);
          to_begin += part.size;
        }
      }
      break;
    }
    case OperationKind::kBroadcast:
      add_pieces(pieces, {.from = first.peer, .count = first.out.count}, first.out.type);
      break;
    case OperationKind::kSend:
    case OperationKind::kRecv:
      add_pieces(pieces, {.from = 0, .to = 1, .count = first.in.count}, first.in.type);
      break;
    case OperationKind::kBarrier:
      break;
  }
}

void do_piece(const Piece& piece, std::span<const Operation> posted) {
  const Operation& first = posted.front();
  const int64_t element_bytes = bytes_per_element(first.type());
  const auto input_of = [&](const Operation& operation) {
    return static_cast<const std::byte*>(operation.in.data) + piece.from_begin * element_bytes;
  };
  Pointers<std::byte*> outputs;
  for (size_t r = 0; r < posted.size(); ++r) {
    if (piece.to != kEveryone && piece.to != static_cast<int64_t>(r)) continue;
    outputs.add(static_cast<std::byte*>(posted[r].out.data) + piece.to_begin * element_bytes);
  }
  if (piece.from == kEveryone) {
    Pointers<const std::byte*> inputs;
    for (const Operation& operation : posted) inputs.add(input_of(operation));
    reduce(first.reduction, first.in.type, inputs.all(), outputs.all(), piece.count);
    return;
  }
  const std::byte* input = input_of(posted[static_cast<size_t>(piece.from)]);
  for (std::byte* output : outputs.all()) {
    if (output != input) std::memcpy(output, input, static_cast<size_t>(piece.count * element_bytes));
  }
}

}  // namespace weft
