#include "weft/data/conversations/sample_order.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "weft/base/check.h"

namespace weft {
namespace {

/// Samples over which weights are kept exactly.
constexpr int64_t kWeightBlock = 4096;
constexpr int kRounds = 6;

uint64_t scrambled(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

uint64_t seed_of(uint64_t seed, uint64_t purpose, uint64_t a, uint64_t b) {
  return scrambled(scrambled(scrambled(seed ^ purpose * 0xd1b54a32d192ed03ULL) ^ a) ^ b);
}

constexpr uint64_t kForEpoch = 1, kForBlock = 2, kForSplit = 3;

}  // namespace

SeededPermutation::SeededPermutation(int64_t size, uint64_t seed) : size_(size), half_bits_(1), seed_(seed) {
  WEFT_CHECK(size > 0, "a permutation of {} things", size);
  while ((int64_t{1} << (2 * half_bits_)) < size) ++half_bits_;
}

int64_t SeededPermutation::operator()(int64_t index) const {
  // A Feistel network permutes a power of four; what falls outside goes through it again.
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half_bits_, right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t mixed = scrambled(right ^ seed_ ^ static_cast<uint64_t>(round) << 56) & mask;
      left = std::exchange(right, left ^ mixed);
    }
    value = left << half_bits_ | right;
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

SampleOrder::SampleOrder(std::vector<Set> sets, uint64_t seed) : sets_(std::move(sets)), seed_(seed) {
  double total = 0;
  for (size_t k = 0; k < sets_.size(); ++k) {
    total += sets_[k].weight;
    held_out_ += sets_[k].num_held_out;
    epoch_ += trained_records(k);
  }
  is_weighted_ = total > 0;
  WEFT_CHECK(epoch_ > 0, "{} data sets have no record to train on", std::ssize(sets_));
  if (!is_weighted_) return;
  for (const Set& set : sets_) {
    const auto quota = static_cast<int64_t>(std::llround(set.weight / total * static_cast<double>(kWeightBlock)));
    quotas_.push_back(set.weight > 0 ? std::max<int64_t>(quota, 1) : 0);
    block_ += quotas_.back();
  }
}

SampleOrder::Place SampleOrder::of_set(size_t set, int64_t index, int64_t attempt) const {
  const int64_t records = trained_records(set);
  const int64_t epoch = index / records;
  const uint64_t seed =
      seed_of(seed_, kForEpoch + static_cast<uint64_t>(attempt) * 8, set, static_cast<uint64_t>(epoch));
  const int64_t place = SeededPermutation(records, seed)(index % records);
  return {set, SeededPermutation(sets_[set].num_records,
                                 seed_of(seed_, kForSplit, set, 0))(sets_[set].num_held_out + place)};
}

SampleOrder::Place SampleOrder::at(int64_t sample, int64_t attempt) const {
  if (!is_weighted_) {
    // One permutation over all sets.
    const int64_t epoch = sample / epoch_;
    const uint64_t seed =
        seed_of(seed_, kForEpoch + static_cast<uint64_t>(attempt) * 8, sets_.size(), static_cast<uint64_t>(epoch));
    int64_t place = SeededPermutation(epoch_, seed)(sample % epoch_);
    size_t set = 0;
    while (place >= trained_records(set)) place -= trained_records(set++);
    const SeededPermutation split(sets_[set].num_records, seed_of(seed_, kForSplit, set, 0));
    return {set, split(sets_[set].num_held_out + place)};
  }
  const int64_t block = sample / block_;
  int64_t slot = SeededPermutation(block_, seed_of(seed_, kForBlock, 0, static_cast<uint64_t>(block)))(sample % block_);
  size_t set = 0;
  while (slot >= quotas_[set]) slot -= quotas_[set++];
  return of_set(set, block * quotas_[set] + slot, attempt);
}

SampleOrder::Place SampleOrder::held_out(int64_t index) const {
  size_t set = 0;
  while (index >= sets_[set].num_held_out) index -= sets_[set++].num_held_out;
  return {set, SeededPermutation(sets_[set].num_records, seed_of(seed_, kForSplit, set, 0))(index)};
}

}  // namespace weft
