#include "weft/meaning/bucket_layout.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "weft/base/check.h"

namespace weft {
namespace {

constexpr double kBytesPerMb = 1e6;

int64_t round_up(int64_t count, int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

int64_t end_of_slots(const BucketLayout& bucket) {
  return bucket.slots.back().elements.end;
}

}  // namespace

ElementRange common(const ElementRange& a, const ElementRange& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

ElementRange shifted(const ElementRange& range, int64_t by) {
  return {range.begin + by, range.end + by};
}

int64_t bucket_elements(double buckets_mb, double gradient_bytes) {
  return static_cast<int64_t>(buckets_mb * kBytesPerMb) / static_cast<int64_t>(gradient_bytes);
}

double searched_buckets_mb(int64_t num_ranks) {
  constexpr int64_t kLeastMb = 64, kMbPerHop = 4;
  return static_cast<double>(std::max(kLeastMb, kMbPerHop * num_ranks));
}

std::vector<BucketLayout> lay_out_buckets(const std::vector<BucketWeight>& weights, const BucketRules& rules) {
  WEFT_CHECK(rules.num_shards > 0 && rules.alignment > 0 && rules.max_elements >= 0,
             "buckets of {} elements, {} shards, aligned to {}", rules.max_elements, rules.num_shards, rules.alignment);
  std::vector<BucketLayout> buckets;
  std::map<std::tuple<int64_t, bool, bool>, BucketLayout> open;
  for (size_t i = weights.size(); i-- > 0;) {
    const BucketWeight& weight = weights[i];
    BucketLayout& bucket = open[{weight.bundle, weight.is_trained, weight.has_decay}];
    int64_t begin = bucket.slots.empty() ? 0 : round_up(end_of_slots(bucket), rules.alignment);
    if (!bucket.slots.empty() && begin + weight.elements > rules.max_elements) {
      buckets.push_back(std::move(bucket));
      bucket = {};
      begin = 0;
    }
    bucket.bundle = weight.bundle;
    bucket.is_trained = weight.is_trained;
    bucket.has_decay = weight.has_decay;
    bucket.slots.push_back({.parameter = i, .elements = {begin, begin + weight.elements}});
  }
  for (auto& [group, bucket] : open) buckets.push_back(std::move(bucket));

  for (BucketLayout& bucket : buckets)
    bucket.num_elements = round_up(end_of_slots(bucket), rules.num_shards * rules.alignment);
  std::sort(buckets.begin(), buckets.end(), [](const BucketLayout& a, const BucketLayout& b) {
    return a.slots.back().parameter > b.slots.back().parameter;
  });
  return buckets;
}

std::vector<int64_t> bundles_of_blocks(const std::vector<int64_t>& elements, int64_t zero, double most_elements) {
  std::vector<int64_t> bundles(elements.size(), 0);
  double filled = 0;
  for (size_t block = elements.size(); block-- > 0 && zero >= 2;) {
    const auto own = static_cast<double>(elements[block]);
    const bool is_first = block + 1 == elements.size();
    const bool is_full = zero == 3 || filled + own > most_elements;
    bundles[block] = is_first ? 0 : bundles[block + 1] + (is_full ? 1 : 0);
    filled = is_first || !is_full ? filled + own : own;
  }
  return bundles;
}

}  // namespace weft
