#include "weft/optim/bucket_layout.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <c10/core/ScalarType.h>

#include "weft/base/check.h"

namespace weft {
namespace {

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

std::vector<BucketLayout> lay_out_buckets(const std::vector<StageParameter>& parameters, const BucketOptions& options) {
  WEFT_CHECK(options.num_shards > 0 && options.alignment > 0 && options.max_bytes >= 0,
             "buckets of {} bytes, {} shards, aligned to {}", options.max_bytes, options.num_shards, options.alignment);
  const int64_t max_elements = options.max_bytes / static_cast<int64_t>(c10::elementSize(options.gradient_type));

  std::vector<BucketLayout> buckets;
  std::map<std::tuple<int64_t, bool, bool>, BucketLayout> open;
  for (size_t i = parameters.size(); i-- > 0;) {
    const Parameter& parameter = *parameters[i].parameter;
    const bool is_trained = parameter.is_trainable();
    const bool has_decay = is_trained && options.has_decay(parameter);
    BucketLayout& bucket = open[{parameters[i].kind, is_trained, has_decay}];
    const int64_t size = parameter.value.numel();
    int64_t begin = bucket.slots.empty() ? 0 : round_up(end_of_slots(bucket), options.alignment);
    if (!bucket.slots.empty() && begin + size > max_elements) {
      buckets.push_back(std::move(bucket));
      bucket = {};
      begin = 0;
    }
    bucket.kind = parameters[i].kind;
    bucket.is_trained = is_trained;
    bucket.has_decay = has_decay;
    bucket.slots.push_back({.parameter = i, .elements = {begin, begin + size}});
  }
  for (auto& [group, bucket] : open) buckets.push_back(std::move(bucket));

  for (BucketLayout& bucket : buckets)
    bucket.num_elements = round_up(end_of_slots(bucket), options.num_shards * options.alignment);
  std::sort(buckets.begin(), buckets.end(), [](const BucketLayout& a, const BucketLayout& b) {
    return a.slots.back().parameter > b.slots.back().parameter;
  });
  return buckets;
}

}  // namespace weft
