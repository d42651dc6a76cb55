#pragma once

#include <optional>
#include <string_view>

namespace weft {

/// Arguments of Megatron-LM, and of MindSpeed for systems built on both, that are settings of a plan: exports write
/// them, imports read them. Without the dashes in front; YAML files have underscores for the others.
namespace megatron_key {

inline constexpr char kTp[] = "tensor-model-parallel-size";
inline constexpr char kSequenceParallel[] = "sequence-parallel";
inline constexpr char kTpOverlap[] = "tp-comm-overlap";
inline constexpr char kPp[] = "pipeline-model-parallel-size";
inline constexpr char kLayersPerChunk[] = "num-layers-per-virtual-pipeline-stage";
inline constexpr char kLayout[] = "pipeline-model-parallel-layout";
inline constexpr char kCp[] = "context-parallel-size";
inline constexpr char kCpKind[] = "cp-comm-type";
inline constexpr char kCpSizes[] = "hierarchical-context-parallel-sizes";
inline constexpr char kEp[] = "expert-model-parallel-size";
inline constexpr char kDispatcher[] = "moe-token-dispatcher-type";
inline constexpr char kExpertTp[] = "expert-tensor-parallel-size";
inline constexpr char kStagesInside[] = "use-tp-pp-dp-mapping";
inline constexpr char kMbs[] = "micro-batch-size";
inline constexpr char kBatch[] = "global-batch-size";
inline constexpr char kRecompute[] = "recompute-granularity";
inline constexpr char kRecomputeMethod[] = "recompute-method";
inline constexpr char kRecomputeLayers[] = "recompute-num-layers";
inline constexpr char kRecomputeModules[] = "recompute-modules";
inline constexpr char kDistributedOptimizer[] = "use-distributed-optimizer";
inline constexpr char kFsdp[] = "use-megatron-fsdp";
inline constexpr char kSharding[] = "data-parallel-sharding-strategy";
inline constexpr char kCheckpointFormat[] = "ckpt-format";
inline constexpr char kOverlapReduce[] = "overlap-grad-reduce";
inline constexpr char kOverlapGather[] = "overlap-param-gather";
inline constexpr char kBucket[] = "ddp-bucket-size";
inline constexpr char kFsdpBucket[] = "suggested-communication-unit-size";
inline constexpr char kBf16[] = "bf16";
inline constexpr char kFp16[] = "fp16";
inline constexpr char kReduceFp32[] = "accumulate-allreduce-grads-in-fp32";
inline constexpr char kReduceBf16[] = "grad-reduce-in-bf16";
// MindSpeed's.
inline constexpr char kCpAlgorithm[] = "context-parallel-algo";
inline constexpr char kUlysses[] = "ulysses-degree-in-cp";
inline constexpr char kTpOverlapAscend[] = "use-ascend-mc2";
inline constexpr char kHetero[] = "hetero-parallel";
inline constexpr char kHeteroScale[] = "hetero-encoder-mbs-scale";

}  // namespace megatron_key

/// Why an argument that is no setting of plan, model or training may be left out; nothing where it is not known, so
/// that it may change what runs.
std::optional<std::string_view> harmless_megatron_key(std::string_view key);

}  // namespace weft
