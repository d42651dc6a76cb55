#include "weft/plan/recompute.h"

#include <algorithm>

namespace weft {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"keep", "full", "attention", "logits"};
constexpr size_t kOfLayers = 3;

}  // namespace

void Recompute::push(const RecomputeRun& run) {
  if (many_.empty() && num_few_ < few_.size()) {
    few_[num_few_++] = run;
    return;
  }
  if (many_.empty()) many_.assign(few_.begin(), few_.end());
  many_.push_back(run);
}

void Recompute::add(BlockRecompute what, int64_t blocks) {
  if (blocks <= 0) return;
  if (what == BlockRecompute::kKeep) {
    kept_ += blocks;
    return;
  }
  if (kept_ > 0) push({BlockRecompute::kKeep, kept_});
  kept_ = 0;
  if (runs().empty() || runs().back().what != what) {
    push({what, blocks});
  } else {
    (many_.empty() ? few_[num_few_ - 1] : many_.back()).blocks += blocks;
  }
}

int64_t Recompute::num_blocks() const {
  int64_t blocks = 0;
  for (const RecomputeRun& run : runs()) blocks += run.blocks;
  return blocks;
}

int64_t Recompute::count(BlockRecompute what) const {
  return count_of(runs(), what);
}

bool Recompute::operator==(const Recompute& other) const {
  return std::equal(runs().begin(), runs().end(), other.runs().begin(), other.runs().end());
}

int64_t count_of(std::span<const RecomputeRun> runs, BlockRecompute what) {
  int64_t blocks = 0;
  for (const RecomputeRun& run : runs) blocks += run.what == what ? run.blocks : 0;
  return blocks;
}

std::span<const std::string_view> block_recompute_names() {
  return std::span(kNames).first(kOfLayers);
}

std::string_view name_of(BlockRecompute what) {
  return kNames[static_cast<size_t>(what)];
}

}  // namespace weft
