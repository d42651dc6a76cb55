#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace weft {

/// What the backward of a block runs again, so that the block need not keep it: nothing, all of it, or attention; of an
/// llm's exit the logits, some rows at a time.
enum class BlockRecompute : uint8_t { kKeep, kFull, kAttention, kLogits };

/// Neighbouring blocks that recompute the same.
struct RecomputeRun {
  BlockRecompute what = BlockRecompute::kKeep;
  int64_t blocks = 0;

  bool operator==(const RecomputeRun&) const = default;
};

/// The first blocks of a chunk whole, the next their attention: what is searched, and all that version 1 can say.
struct RecomputeCounts {
  int64_t full = 0;
  int64_t selective = 0;

  std::array<RecomputeRun, 2> runs() const {
    return {{{BlockRecompute::kFull, full}, {BlockRecompute::kAttention, selective}}};
  }
  bool operator==(const RecomputeCounts&) const = default;
};

/// What the blocks of a chunk recompute, block by block from the first. Blocks behind the last run keep everything.
class Recompute {
 public:
  Recompute() = default;
  Recompute(const RecomputeCounts& counts) {  // NOLINT: counts are one way to say it
    for (const RecomputeRun& run : counts.runs()) add(run.what, run.blocks);
  }

  /// The next blocks. Those that keep everything are remembered once others follow.
  void add(BlockRecompute what, int64_t blocks);

  /// Neighbours differ, and the last recomputes something.
  std::span<const RecomputeRun> runs() const {
    return many_.empty() ? std::span<const RecomputeRun>(few_.data(), num_few_) : std::span<const RecomputeRun>(many_);
  }
  /// Up to the last that recomputes something.
  int64_t num_blocks() const;
  int64_t count(BlockRecompute what) const;
  bool operator==(const Recompute& other) const;

 private:
  void push(const RecomputeRun& run);

  // What searches write needs no memory of its own: they change it for every candidate.
  std::array<RecomputeRun, 3> few_{};
  size_t num_few_ = 0;
  std::vector<RecomputeRun> many_;  ///< all runs, where they are more than few
  int64_t kept_ = 0;                ///< behind the last run
};

/// How many of the blocks do so.
int64_t count_of(std::span<const RecomputeRun> runs, BlockRecompute what);

/// What a layer may: "keep", "full", "attention".
std::span<const std::string_view> block_recompute_names();
/// The same, or "logits".
std::string_view name_of(BlockRecompute what);

}  // namespace weft
