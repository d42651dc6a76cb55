#pragma once

#include <optional>
#include <string_view>

namespace weft {

/// Keys of a MindFormers YAML file that are settings of a plan, by their path: exports write them, imports read them.
namespace mindformers_key {

inline constexpr char kUseParallel[] = "use_parallel";
inline constexpr char kMode[] = "parallel.parallel_mode";
inline constexpr char kDp[] = "parallel_config.data_parallel";
inline constexpr char kTp[] = "parallel_config.model_parallel";
inline constexpr char kCp[] = "parallel_config.context_parallel";
inline constexpr char kCpAlgorithm[] = "parallel_config.context_parallel_algo";
inline constexpr char kUlysses[] = "parallel_config.ulysses_degree_in_cp";
inline constexpr char kEp[] = "parallel_config.expert_parallel";
inline constexpr char kPp[] = "parallel_config.pipeline_stage";
inline constexpr char kMicrobatches[] = "parallel_config.micro_batch_num";
inline constexpr char kSequenceParallel[] = "parallel_config.use_seq_parallel";
inline constexpr char kRecompute[] = "recompute_config.recompute";
inline constexpr char kSelectRecompute[] = "recompute_config.select_recompute";
inline constexpr char kZero[] = "parallel.enable_parallel_optimizer";
inline constexpr char kZeroLevel[] = "parallel.parallel_optimizer_config.optimizer_level";
inline constexpr char kReduceFp32[] = "parallel.gradient_fp32_sync";
inline constexpr char kFusion[] = "parallel.comm_fusion";
inline constexpr char kInterleave[] = "parallel.pipeline_config.pipeline_interleave";
inline constexpr char kScheduler[] = "parallel.pipeline_config.pipeline_scheduler";
inline constexpr char kBatch[] = "runner_config.batch_size";
inline constexpr char kAccumulation[] = "runner_config.gradient_accumulation_steps";
inline constexpr char kModel[] = "model.model_config.";
inline constexpr char kOffset[] = "model.model_config.offset";
inline constexpr char kVpp[] = "model.model_config.pp_interleave_num";
inline constexpr char kDispatcher[] = "model.model_config.moe_token_dispatcher_type";
inline constexpr char kComputeType[] = "model.model_config.compute_dtype";
inline constexpr char kParameterType[] = "model.model_config.param_init_type";
inline constexpr char kParameterTypeNew[] = "model.model_config.params_dtype";
inline constexpr char kSequence[] = "model.model_config.seq_length";

}  // namespace mindformers_key

/// Why a key that is no setting of plan, model or training may be left out; nothing where it is not known.
std::optional<std::string_view> harmless_mindformers_key(std::string_view key);

}  // namespace weft
