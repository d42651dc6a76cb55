#include "weft/cost/cost_key.h"

#include "weft/base/check.h"
#include "weft/base/hash.h"

namespace weft {
namespace {

/// None is 0, so that orders of different lengths differ.
int32_t digit_of(const std::string& axis) {
  if (axis == "tp") return 1;
  if (axis == "cp") return 2;
  if (axis == "dp") return 3;
  WEFT_CHECK(axis == "pp", "{} is no axis of a plan", axis);
  return 4;
}

int32_t code_of(const std::vector<std::string>& axis_order) {
  constexpr int32_t kBase = 5;
  int32_t code = 0;
  for (const std::string& axis : axis_order) code = code * kBase + digit_of(axis);
  return code;
}

/// In steps of one: with the first rank and their number, all are known.
bool go_up_by_one(const std::vector<int64_t>& ranks) {
  const auto size = static_cast<int64_t>(ranks.size());
  if (ranks.back() - ranks.front() + 1 != size) return false;
  // Whole lists are looked at for every key: without a branch for each rank.
  int64_t differing_bits = 0;
  for (int64_t i = 0; i < size; ++i) differing_bits |= ranks[static_cast<size_t>(i)] ^ (ranks.front() + i);
  return differing_bits == 0;
}

}  // namespace

size_t CostKey::Hash::operator()(const CostKey& key) const {
  Hasher hasher;
  hasher.add(static_cast<int64_t>(key.kind) << 8 | static_cast<int64_t>(key.precision) << 2 |
             static_cast<int64_t>(key.sequence_parallel) << 1 | static_cast<int64_t>(key.overlap_tp));
  hasher.add(int64_t{key.axis_order} << 32 | key.rank_list);
  for (const int64_t part : {key.first_rank, key.num_ranks, key.tp, key.cp, key.cp_ulysses, key.ep, key.pp, key.dp})
    hasher.add(part);
  hasher.add(key.samples);
  return hasher.value();
}

/// Of some of the ranks: lists are long, few, and compared as a whole where these agree.
size_t CostKeys::ListHash::operator()(const std::vector<int64_t>& ranks) const {
  constexpr size_t kSamples = 8;
  Hasher hasher;
  hasher.add(ranks.size());
  for (size_t i = 0; i < kSamples; ++i) hasher.add(ranks[i * ranks.size() / kSamples]);
  return hasher.value();
}

int32_t CostKeys::number_of(const std::vector<int64_t>& ranks) {
  if (go_up_by_one(ranks)) return 0;
  if (const auto found = lists_.find(ranks); found != lists_.end()) return found->second;
  const auto next = static_cast<int32_t>(lists_.size()) + 1;
  return lists_.emplace(ranks, next).first->second;
}

CostKey CostKeys::key_of(const Plan& plan, const ModulePlan& module, double samples) {
  return {.kind = module.kind,
          .precision = plan.precision.compute,
          .sequence_parallel = module.sequence_parallel,
          .overlap_tp = plan.overlap_tp,
          .axis_order = code_of(module.axis_order),
          .rank_list = number_of(module.ranks),
          .first_rank = module.ranks.front(),
          .num_ranks = static_cast<int64_t>(module.ranks.size()),
          .tp = module.tp,
          .cp = module.cp,
          .cp_ulysses = module.cp_ulysses,
          .ep = module.ep,
          .pp = module.pp,
          .dp = module.dp,
          .samples = samples};
}

}  // namespace weft
