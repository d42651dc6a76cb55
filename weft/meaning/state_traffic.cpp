#include "weft/meaning/state_traffic.h"

#include <map>
#include <set>

#include "weft/meaning/weight_order.h"

namespace weft {
namespace {

int64_t bytes_of(Precision precision) {
  return static_cast<int64_t>(num_bytes(precision));
}

/// How often buckets of each kind are gathered as microbatches go through a stage whose values come and go.
std::map<int64_t, int64_t> num_gathers(const StageContent& stage, const StageBuckets& buckets,
                                       const StagePasses& passes) {
  std::set<int64_t> here;
  std::map<int64_t, int64_t> gathers;
  const auto follow = [&](int64_t times) {
    return [&, times](WeightStep step, size_t block) {
      for (const int64_t kind : buckets.kinds[block]) {
        if (step == WeightStep::kRelease) here.erase(kind);
        const bool gathers_values = step == WeightStep::kGather || step == WeightStep::kStartGather;
        if (gathers_values && here.insert(kind).second) gathers[kind] += times;
      }
    };
  };
  WeightOrder order = weight_order(stage.blocks());
  for (size_t block = 0; block < order.num_blocks(); ++block) {
    order.before_forward(block, follow(passes.forwards));
    order.after_forward(block, follow(passes.forwards));
  }
  order.begin_backward();
  order.end_backward(follow(passes.backwards));
  return gathers;
}

}  // namespace

void add_bucket_traffic(const StageContent& stage, const StageBuckets& buckets, const RankGroup& group,
                        const PrecisionPlan& precision, const StagePasses& passes, TrafficWriter& writer) {
  const ZeroRules& rules = buckets.rules;
  std::map<int64_t, int64_t> gathers;
  if (rules.releases_values) gathers = num_gathers(stage, buckets, passes);
  for (const BucketLayout& bucket : buckets.layouts) {
    if (bucket.num_elements == 0) continue;
    const Traffic gather = gather_traffic(bucket.num_elements, group.size());
    if (const auto found = gathers.find(bucket.kind); found != gathers.end())
      writer.add(group, OperationKind::kAllGather, gather, bytes_of(precision.compute), found->second);
    if (!bucket.is_trained) continue;
    if (rules.returns_values) writer.add(group, OperationKind::kAllGather, gather, bytes_of(precision.compute));
    if (!rules.divides_states) {
      writer.all_reduce(group, bucket.num_elements, bytes_of(precision.reduce));
    } else {
      writer.add(group, OperationKind::kReduceScatter, scatter_traffic(bucket.num_elements, group.size()),
                 bytes_of(precision.reduce), rules.scatters_gradients ? passes.backwards : 1);
    }
  }
}

void add_copy_traffic(const StageContent& stage, const StageBuckets& buckets, const RankGroup& tensor,
                      const RankGroup& keys, const PrecisionPlan& precision, const StagePasses& passes,
                      TrafficWriter& writer) {
  std::vector<int64_t> whole(stage.blocks().size()), same_keys(whole.size());
  for (const StageWeight& weight : stage.weights()) {
    if (!weight.is_trained) continue;
    if (weight.weight.is_whole && (weight.weight.sees_divided || weight.has_divided_rows))
      whole[weight.block] += weight.weight.elements;
    same_keys[weight.block] += weight.weight.same_keys;
  }
  // Complete gradients of a block go on, with every microbatch where they are scattered.
  const int64_t times = buckets.rules.scatters_gradients ? passes.backwards : 1;
  for (size_t block = 0; block < whole.size(); ++block) {
    if (whole[block] > 0) writer.all_reduce(tensor, whole[block], bytes_of(precision.reduce), times);
    if (same_keys[block] > 0) writer.all_reduce(keys, same_keys[block], bytes_of(precision.reduce), times);
  }
}

void add_table_traffic(const StageBuckets& buckets, const RankGroup& ends, const PrecisionPlan& precision,
                       TrafficWriter& writer) {
  if (!buckets.table) return;
  const int64_t all = buckets.layouts[*buckets.table].num_elements;
  writer.all_reduce(ends, buckets.rules.divides_states ? all / buckets.num_ranks : all,
                    bytes_of(buckets.rules.gradient_sums(precision.reduce, precision.master)));
}

}  // namespace weft
