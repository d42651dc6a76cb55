#include "weft/checkpoint/load_checkpoint.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>

#include "weft/checkpoint/agreement.h"
#include "weft/checkpoint/move_weights.h"
#include "weft/checkpoint/own_parts.h"
#include "weft/checkpoint/stored_weights.h"

namespace weft {
namespace {

/// Where this rank's parts begin among those of all ranks.
size_t first_of_rank(const std::vector<RoutedPart>& parts, int64_t rank) {
  return static_cast<size_t>(
      std::find_if(parts.begin(), parts.end(), [&](const RoutedPart& part) { return part.rank >= rank; }) -
      parts.begin());
}

/// What one rank reads of a file together, at least: of two chunks more than it needs, which are those at an end and
/// with the header, it reads a sixteenth more.
int64_t least_read_bytes(const Checkpoint& checkpoint) {
  constexpr int64_t kChunks = 32;
  int64_t chunk_bytes = 0;
  for (const CheckpointFile& file : checkpoint.files) chunk_bytes = std::max(chunk_bytes, file.chunk_bytes);
  return kChunks * chunk_bytes;
}

int64_t most_of_all(Group& everyone, int64_t number) {
  everyone.all_reduce(Buffer{.data = &number, .count = 1, .type = DataType::kInt64}, Reduction::kMax).wait();
  return number;
}

}  // namespace

std::optional<Error> load_checkpoint(const Checkpoint& checkpoint, Group& everyone,
                                     std::span<StageOptimizer* const> optimizers, MovedBytes* bytes) {
  const at::NoGradGuard no_graph;
  const UnlimitedWaits patience(everyone);
  const OwnParts own = own_parts(optimizers, everyone.rank());
  const std::vector<RoutedPart> wanted = gather_parts(everyone, own.parts);
  StoredWeights stored(checkpoint);
  // All ranks find the same, unless they read different files.
  auto copies = route_files(stored.index(), wanted);
  if (auto error = first_error(everyone, copies ? std::nullopt : std::optional(copies.error()))) return error;
  const std::vector<int64_t> readers = assign_readers(stored.index(), wanted, *copies, least_read_bytes(checkpoint));
  const size_t first = first_of_rank(wanted, everyone.rank());
  const int64_t received_before = everyone.traffic().received;
  clear_unnamed(optimizers);
  std::optional<size_t> last;
  const auto read = [&](size_t held, const ElementRange& elements, bool has_moments) {
    // Parts come one after the other, and what was copied need not stay in memory.
    if (last && *last != held) stored.done_with_part(*last);
    last = held;
    return stored.read(held, elements, has_moments);
  };
  const auto state_of = [&](size_t number) { return own.pieces[number - first].state; };
  auto error = move_weights(everyone, {stored.index(), wanted, *copies, readers}, read, state_of);
  if (bytes != nullptr) {
    bytes->read = stored.num_read_bytes();
    bytes->received = everyone.traffic().received - received_before;
    bytes->wanted = 0;
    for (const RoutedPart& part : own.parts) bytes->wanted += stored_bytes(part);
  }
  // Ranks that go on gather values from all others.
  if (auto failed = first_error(everyone, error)) return failed;
  own.restore(optimizers, checkpoint.updates, updates_after(stored.index(), *copies, first, own.parts.size()));
  everyone.barrier().wait();
  return std::nullopt;
}

std::optional<Error> move_states(Group& everyone, std::span<StageOptimizer* const> from,
                                 std::span<StageOptimizer* const> to, MovedBytes* bytes) {
  const at::NoGradGuard no_graph;
  const int64_t step = most_of_all(everyone, from.empty() ? 0 : from.front()->step());
  const OwnParts before = own_parts(from, everyone.rank());
  const OwnParts after = own_parts(to, everyone.rank());
  const PartIndex held(gather_parts(everyone, before.parts), "the running plan");
  const std::vector<RoutedPart> wanted = gather_parts(everyone, after.parts);
  const auto copies = route_weights(held, wanted);
  if (!copies) return copies.error();  // the same on all ranks
  std::vector<int64_t> readers;
  for (const RoutedPart& part : held.parts()) readers.push_back(part.rank);
  const size_t first_held = first_of_rank(held.parts(), everyone.rank());
  const size_t first = first_of_rank(wanted, everyone.rank());
  clear_unnamed(to);
  const auto read = [&](size_t number, const ElementRange&, bool) -> Result<AdamWState> {
    return before.pieces[number - first_held].state;
  };
  const auto state_of = [&](size_t number) { return after.pieces[number - first].state; };
  const int64_t received_before = everyone.traffic().received;
  if (auto error = move_weights(everyone, {held, wanted, *copies, readers}, read, state_of)) return error;
  if (bytes != nullptr) {
    *bytes = {.received = everyone.traffic().received - received_before};
    for (const RoutedPart& part : after.parts) bytes->wanted += stored_bytes(part);
  }
  after.restore(to, step, updates_after(held, *copies, first, after.parts.size()));
  return std::nullopt;
}

}  // namespace weft
