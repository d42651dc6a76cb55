#include "weft/cost/cost_key.h"

#include "weft/base/check.h"
#include "weft/base/hash.h"

namespace weft {
namespace {

/// The names themselves: plans have at most four axes, of two letters each.
uint64_t letters_of(const std::vector<std::string>& axis_order) {
  WEFT_CHECK(axis_order.size() <= 4, "a plan has {} axes", axis_order.size());
  uint64_t letters = 0;
  for (const std::string& axis : axis_order) {
    WEFT_CHECK(axis.size() == 2, "{} is no axis of a plan", axis);
    letters = letters << 16 | uint64_t{static_cast<unsigned char>(axis[0])} << 8 | static_cast<unsigned char>(axis[1]);
  }
  return letters;
}

/// In steps of one: with the first rank and their number, all are known.
bool go_up_by_one(const std::vector<int64_t>& ranks, bool ascend) {
  const int64_t first = ranks.front();
  const auto size = static_cast<int64_t>(ranks.size());
  if (ranks.back() - first + 1 != size) return false;
  if (ascend) return true;
  // Whole lists are looked at for every key, so without a branch for each rank.
  int64_t differing_bits = 0;
  int64_t expected = first;
  for (const int64_t rank : ranks) differing_bits |= rank ^ expected++;
  return differing_bits == 0;
}

}  // namespace

CostKey CostKey::of_placement() const {
  return {.experts_over_tp = experts_over_tp,
          .rank_list = rank_list,
          .axis_order = axis_order,
          .first_rank = first_rank,
          .num_ranks = num_ranks,
          .tp = tp,
          .cp = cp,
          .ep = ep,
          .pp = pp,
          .dp = dp};
}

size_t CostKey::Hash::operator()(const CostKey& key) const {
  Hasher hasher;
  hasher.add(static_cast<int64_t>(key.kind) << 16 | static_cast<int64_t>(key.precision) << 4 |
             static_cast<int64_t>(key.divides_parts) << 9 | static_cast<int64_t>(key.gives_media_rows) << 8 |
             static_cast<int64_t>(key.places_whole_rows) << 3 | static_cast<int64_t>(key.experts_over_tp) << 2 |
             static_cast<int64_t>(key.sequence_parallel) << 1 | static_cast<int64_t>(key.overlap_tp));
  hasher.add(key.axis_order);
  for (const int64_t part :
       {int64_t{key.rank_list}, key.first_rank, key.num_ranks, key.tp, key.cp, key.cp_ulysses, key.ep, key.pp, key.dp})
    hasher.add(part);
  hasher.add(key.samples);
  hasher.add(key.taken);
  return hasher.value();
}

size_t BlocksKey::Hash::operator()(const BlocksKey& key) const {
  const BlockSetting& of_block = key.setting;
  Hasher hasher;
  hasher.add(key.kind);
  hasher.add(static_cast<int64_t>(of_block.sequence_parallel) << 2 |
             static_cast<int64_t>(of_block.experts_over_tp) << 1 | static_cast<int64_t>(of_block.places_whole_rows));
  for (const int64_t part : {of_block.tp, of_block.cp, of_block.cp_ulysses, of_block.ep}) hasher.add(part);
  for (const GroupLink* link : {&of_block.tp_link, &of_block.ulysses_link, &of_block.ring_link, &of_block.ep_link})
    hasher.add(link->ring_bytes_per_ms);
  hasher.add(key.samples);
  hasher.add(key.taken);
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
  if (go_up_by_one(ranks, ascend_)) return 0;
  if (const auto found = lists_.find(ranks); found != lists_.end()) return found->second;
  const auto next = static_cast<int32_t>(lists_.size()) + 1;
  return lists_.emplace(ranks, next).first->second;
}

CostKey CostKeys::key_of(const Plan& plan, const ModulePlan& module, double samples, double taken) {
  return {.kind = module.kind,
          .precision = plan.precision.compute,
          .sequence_parallel = module.sequence_parallel,
          .experts_over_tp = module.experts_over_tp,
          .overlap_tp = plan.overlap_tp,
          .places_whole_rows = places_whole_rows(plan, module),
          .gives_media_rows = gives_media_rows(module),
          .divides_parts = divides_parts(plan, module),
          .rank_list = number_of(module.ranks),
          .axis_order = letters_of(module.axis_order),
          .first_rank = module.ranks.front(),
          .num_ranks = static_cast<int64_t>(module.ranks.size()),
          .tp = module.tp,
          .cp = module.cp,
          .cp_ulysses = module.cp_ulysses,
          .ep = module.ep,
          .pp = module.pp,
          .dp = module.dp,
          .samples = samples,
          .taken = taken};
}

}  // namespace weft
