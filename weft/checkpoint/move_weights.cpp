#include "weft/checkpoint/move_weights.h"

#include <algorithm>
#include <numeric>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

namespace weft {
namespace {

/// What all ranks together pack in a round, and the least and the most that one does.
constexpr int64_t kRoundBytes = int64_t{256} << 20;
constexpr int64_t kLeastRankBytes = int64_t{1} << 20;
constexpr int64_t kMostRankBytes = int64_t{64} << 20;

/// Pieces of a message begin at multiples of this, so that elements of any type can be used in place.
constexpr int64_t kPieceAlignment = 8;

int64_t piece_bytes(int64_t elements, at::ScalarType type) {
  const int64_t bytes = elements * static_cast<int64_t>(c10::elementSize(type));
  return (bytes + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
}

/// Rows of a copy that go in one round.
struct Portion {
  size_t copy = 0;
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t round = 0;
};

class Mover {
 public:
  Mover(Group& everyone, const WeightMove& move, const ReadHeld& read, const WantedState& state_of)
      : everyone_(everyone),
        move_(move),
        read_(read),
        state_of_(state_of),
        num_ranks_(everyone.size()),
        rank_(everyone.rank()),
        portions_(static_cast<size_t>(num_ranks_)) {
    cut_into_rounds();
  }

  std::optional<Error> run() {
    clear_new_moments();
    for (int64_t round = 0; round < num_rounds_; ++round) run_round(round);
    return error_;
  }

 private:
  const RoutedPart& wanted_of(const RoutedCopy& copy) const { return move_.wanted[copy.wanted]; }
  const RoutedPart& held_of(const RoutedCopy& copy) const { return move_.held.parts()[copy.held]; }
  bool has_moments(const RoutedCopy& copy) const { return wanted_of(copy).is_trained && held_of(copy).is_trained; }

  int64_t bytes_of(const RoutedCopy& copy, int64_t rows) const {
    const int64_t elements = rows * copy.box.num_columns;
    return piece_bytes(elements, wanted_of(copy).value_type) +
           (has_moments(copy) ? 2 * piece_bytes(elements, wanted_of(copy).moment_type) : 0);
  }

  void cut_into_rounds() {
    std::vector<size_t> order(move_.copies.size());
    std::iota(order.begin(), order.end(), size_t{0});
    // Of one part one after the other, so that its bytes are read once.
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return move_.copies[a].held < move_.copies[b].held; });
    const int64_t most = std::clamp(kRoundBytes / num_ranks_, kLeastRankBytes, kMostRankBytes);
    std::vector<int64_t> in_round(static_cast<size_t>(num_ranks_)), rounds(static_cast<size_t>(num_ranks_));
    for (const size_t index : order) {
      const RoutedCopy& copy = move_.copies[index];
      const auto reader = static_cast<size_t>(move_.readers[copy.held]);
      const bool is_sent = move_.readers[copy.held] != wanted_of(copy).rank;
      for (int64_t row = 0; row < copy.box.num_rows;) {
        const int64_t row_bytes = std::max<int64_t>(1, bytes_of(copy, 1));
        const int64_t left = copy.box.num_rows - row;
        const int64_t fits = is_sent ? std::max<int64_t>(0, (most - in_round[reader]) / row_bytes) : left;
        if (fits == 0 && in_round[reader] > 0) {
          ++rounds[reader];
          in_round[reader] = 0;
          continue;
        }
        const int64_t rows = std::min(left, std::max<int64_t>(1, fits));
        portions_[reader].push_back({index, row, rows, rounds[reader]});
        if (is_sent) in_round[reader] += bytes_of(copy, rows);
        row += rows;
        num_rounds_ = std::max(num_rounds_, rounds[reader] + 1);
      }
    }
    next_.resize(portions_.size());
  }

  void clear_new_moments() {
    for (const RoutedCopy& copy : move_.copies) {
      const RoutedPart& wanted = wanted_of(copy);
      if (wanted.rank != rank_ || !wanted.is_trained || held_of(copy).is_trained) continue;
      const AdamWState state = state_of_(copy.wanted);
      state.moment1.zero_();
      state.moment2.zero_();
    }
  }

  /// The portions of a reader in a round.
  std::span<const Portion> portions_in(size_t reader, int64_t round) {
    const std::vector<Portion>& all = portions_[reader];
    const size_t begin = next_[reader];
    size_t end = begin;
    while (end < all.size() && all[end].round == round) ++end;
    next_[reader] = end;
    return std::span(all).subspan(begin, end - begin);
  }

  /// These rows of a copy alone.
  static BoxCopy rows_of(const BoxCopy& box, const Portion& portion) {
    BoxCopy rows = box;
    rows.num_rows = portion.num_rows;
    rows.from += portion.first_row * box.from_stride;
    rows.to += portion.first_row * box.to_stride;
    return rows;
  }

  std::optional<AdamWState> read(const RoutedCopy& copy, const BoxCopy& box) {
    if (error_) return std::nullopt;
    const ElementRange elements{box.from, box.from + (box.num_rows - 1) * box.from_stride + box.num_columns};
    auto state = read_(copy.held, elements, has_moments(copy));
    if (state) return *std::move(state);
    error_ = std::move(state).error();
    return std::nullopt;
  }

  static void copy_state(const BoxCopy& box, const AdamWState& to, const AdamWState& from, bool has_moments) {
    copy_box(box, to.master, from.master);
    if (!has_moments) return;
    copy_box(box, to.moment1, from.moment1);
    copy_box(box, to.moment2, from.moment2);
  }

  /// A portion as a message has it, over memory that is at least that long; moves on behind it.
  AdamWState message_of(const RoutedCopy& copy, int64_t rows, std::byte*& memory) const {
    const int64_t elements = rows * copy.box.num_columns;
    const auto piece = [&](at::ScalarType type) {
      at::Tensor tensor = at::from_blob(memory, {elements}, at::TensorOptions().dtype(type));
      memory += piece_bytes(elements, type);
      return tensor;
    };
    AdamWState state{.master = piece(wanted_of(copy).value_type)};
    if (!has_moments(copy)) return state;
    state.moment1 = piece(wanted_of(copy).moment_type);
    state.moment2 = piece(wanted_of(copy).moment_type);
    return state;
  }

  void run_round(int64_t round) {
    std::vector<std::span<const Portion>> portions;
    for (size_t reader = 0; reader < portions_.size(); ++reader) portions.push_back(portions_in(reader, round));
    std::vector<int64_t> sent(static_cast<size_t>(num_ranks_)), received(static_cast<size_t>(num_ranks_));
    bool is_any_sent = false;
    for (size_t reader = 0; reader < portions.size(); ++reader) {
      for (const Portion& portion : portions[reader]) {
        const RoutedCopy& copy = move_.copies[portion.copy];
        const int64_t to = wanted_of(copy).rank;
        if (to == static_cast<int64_t>(reader)) continue;
        is_any_sent = true;
        const int64_t bytes = bytes_of(copy, portion.num_rows);
        if (static_cast<int64_t>(reader) == rank_) sent[static_cast<size_t>(to)] += bytes;
        if (to == rank_) received[reader] += bytes;
      }
    }
    // Words, so that pieces are aligned.
    const auto words = [](const std::vector<int64_t>& counts) {
      return std::vector<int64_t>(
          static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0}) / kPieceAlignment));
    };
    std::vector<int64_t> outgoing = words(sent), incoming = words(received);
    pack(portions[static_cast<size_t>(rank_)], sent, reinterpret_cast<std::byte*>(outgoing.data()));
    if (!is_any_sent) return;
    for (std::vector<int64_t>* counts : {&sent, &received})
      for (int64_t& count : *counts) count /= kPieceAlignment;
    everyone_
        .all_to_all(ConstBuffer(outgoing.data(), std::ssize(outgoing), DataType::kInt64),
                    Buffer{.data = incoming.data(), .count = std::ssize(incoming), .type = DataType::kInt64}, sent,
                    received)
        .wait();
    auto* memory = reinterpret_cast<std::byte*>(incoming.data());
    for (size_t reader = 0; reader < portions.size(); ++reader) {
      if (static_cast<int64_t>(reader) == rank_) continue;
      for (const Portion& portion : portions[reader]) {
        const RoutedCopy& copy = move_.copies[portion.copy];
        if (wanted_of(copy).rank != rank_) continue;
        const AdamWState message = message_of(copy, portion.num_rows, memory);
        BoxCopy box = rows_of(copy.box, portion);
        box.from = 0;
        box.from_stride = box.num_columns;
        copy_state(box, state_of_(copy.wanted), message, has_moments(copy));
      }
    }
  }

  /// Copies what stays here, and puts what goes away into messages, by receiver.
  void pack(std::span<const Portion> portions, const std::vector<int64_t>& sent, std::byte* memory) {
    std::vector<std::byte*> next;
    for (const int64_t bytes : sent) {
      next.push_back(memory);
      memory += bytes;
    }
    for (const Portion& portion : portions) {
      const RoutedCopy& copy = move_.copies[portion.copy];
      const BoxCopy box = rows_of(copy.box, portion);
      const bool is_sent = wanted_of(copy).rank != rank_;
      const auto to = static_cast<size_t>(wanted_of(copy).rank);
      const AdamWState target = is_sent ? message_of(copy, portion.num_rows, next[to]) : state_of_(copy.wanted);
      const auto from = read(copy, box);
      if (!from) continue;
      BoxCopy placed = box;
      if (is_sent) {
        placed.to = 0;
        placed.to_stride = box.num_columns;
      }
      copy_state(placed, target, *from, has_moments(copy));
    }
  }

  Group& everyone_;
  const WeightMove& move_;
  const ReadHeld& read_;
  const WantedState& state_of_;
  int64_t num_ranks_;
  int64_t rank_;
  std::vector<std::vector<Portion>> portions_;  ///< by reader, in the order of rounds
  std::vector<size_t> next_;
  int64_t num_rounds_ = 0;
  std::optional<Error> error_;
};

}  // namespace

std::optional<Error> move_weights(Group& everyone, const WeightMove& move, const ReadHeld& read,
                                  const WantedState& state_of) {
  const at::NoGradGuard no_graph;
  return Mover(everyone, move, read, state_of).run();
}

}  // namespace weft
