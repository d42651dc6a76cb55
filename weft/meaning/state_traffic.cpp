#include "weft/meaning/state_traffic.h"

#include <map>
#include <set>

namespace weft {
namespace {

int64_t bytes_of(Precision precision) {
  return static_cast<int64_t>(num_bytes(precision));
}

/// How often buckets of each kind are gathered as microbatches go through a stage whose values come and go: those of a
/// block are there while it runs, and those of the next are on their way.
class GatherWalk {
 public:
  GatherWalk(const StageContent& stage, const StageBuckets& buckets) : stage_(stage), buckets_(buckets) {}

  void forward(int64_t times) {
    for (size_t block = 0; block < num_blocks(); ++block) {
      want(block, times);
      if (block + 1 < num_blocks()) want(block + 1, times);
      release(block);
    }
  }
  void backward(int64_t times) {
    for (size_t block = num_blocks(); block-- > 0;) {
      if (!has_backward(block)) continue;
      want(block, times);
      if (block > 0 && has_backward(block - 1)) want(block - 1, times);
      release(block);
    }
  }
  const std::map<int64_t, int64_t>& gathers() const { return gathers_; }

 private:
  size_t num_blocks() const { return stage_.blocks().size(); }
  bool has_backward(size_t block) const { return stage_.blocks()[block].has_backward; }
  void want(size_t block, int64_t times) {
    for (const int64_t kind : buckets_.kinds[block]) {
      if (here_.insert(kind).second) gathers_[kind] += times;
    }
  }
  void release(size_t block) {
    for (const int64_t kind : buckets_.kinds[block]) here_.erase(kind);
  }

  const StageContent& stage_;
  const StageBuckets& buckets_;
  std::set<int64_t> here_;
  std::map<int64_t, int64_t> gathers_;
};

}  // namespace

void add_bucket_traffic(const StageContent& stage, const StageBuckets& buckets, const RankGroup& group,
                        const PrecisionPlan& precision, const StagePasses& passes, TrafficWriter& writer) {
  const ZeroRules& rules = buckets.rules;
  GatherWalk walk(stage, buckets);
  if (rules.releases_values) {
    walk.forward(passes.forwards);
    walk.backward(passes.backwards);
  }
  for (const BucketLayout& bucket : buckets.layouts) {
    if (bucket.num_elements == 0) continue;
    const Traffic gather = gather_traffic(bucket.num_elements, group.size());
    const auto gathers = walk.gathers().find(bucket.kind);
    if (gathers != walk.gathers().end())
      writer.add(group, OperationKind::kAllGather, gather, bytes_of(precision.compute), gathers->second);
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
