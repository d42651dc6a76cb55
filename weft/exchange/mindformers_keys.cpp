#include "weft/exchange/mindformers_keys.h"

#include "weft/base/pattern.h"
#include "weft/exchange/shell_condition.h"

namespace weft {
namespace {

struct HarmlessEntry {
  std::string_view pattern;
  std::string_view why;
};

constexpr std::string_view kOfData = "names data of that system; data of weft train has a file of its own";
constexpr std::string_view kOfWeights = "is about that system's weights and checkpoints";
constexpr std::string_view kOfGeneration = "is about generation or evaluation, which is no part of a training step";
constexpr std::string_view kOfMachine = "is about MindSpore's compiler and devices";
constexpr std::string_view kOfWatching = "says what is watched or logged";
constexpr std::string_view kOfModel = "describes a layer, and the model says it";

constexpr HarmlessEntry kHarmlessEntries[] = {
    {"parallel.gradients_mean",
     "divides gradients by the number of ranks. The loss here is one sum over all tokens of a step, so nothing is to "
     "be "
     "averaged: with true, and as many tokens on every rank, the numbers are the same"},
    {"parallel.enable_alltoall", "changes layouts by all-to-all where it can; what is sent here follows from the plan"},
    {"parallel.full_batch", "whether every rank reads the whole batch: what is trained is the same"},
    {"parallel.full_batch_is_in_data_parallel",
     "whether every rank reads the whole batch: what is trained is the same"},
    {"parallel.dataset_strategy", "how ranks cut the batch they read: what is trained is the same"},
    {"parallel.search_mode", "is for parallel_mode 2"},
    {"parallel.strategy_ckpt_*", kOfWeights},
    {"parallel.only_trainable_params", kOfWeights},
    {"parallel.parallel_optimizer_config.optimizer_weight_shard_size",
     "bounds how many ranks divide a weight; all do here"},
    {"parallel.enable_parallel_*", "is about how layouts are found"},
    {"parallel.loss_repeated_mean", "divides a loss that several ranks hold alike"},
    {"parallel.device_num", "follows from the degrees"},
    {"parallel.pipeline_stages", "is parallel_config.pipeline_stage"},
    {"parallel.auto_*", kOfMachine},
    {"parallel.group_ckpt_save_file", kOfWeights},
    {"parallel.all_reduce_fusion_config", "is how messages are joined"},
    {"parallel_config.vocab_emb_dp",
     "true: every tensor-parallel rank holds the whole embedding. Here it is cut along the vocabulary, which takes "
     "less "
     "memory; the numbers are the same"},
    {"parallel_config.gradient_aggregation_group",
     "is how many groups gradients are joined in; buckets_mb says it here"},
    {"parallel_config.optimizer_shard", "has no effect; enable_parallel_optimizer says it"},
    {"parallel_config.mem_coeff", "is for the search of MindSpore"},
    {"parallel_config.seq_split_num", "is off where it is 1"},
    {"auto_trans_ckpt", kOfWeights},
    {"load_*", kOfWeights},
    {"src_strategy*", kOfWeights},
    {"only_save_strategy", kOfWeights},
    {"resume_*", kOfWeights},
    {"remove_redundancy", kOfWeights},
    {"output_dir", kOfWeights},
    {"ignore_data_skip", kOfData},
    {"data_skip_steps", kOfData},
    {"data_size", kOfData},
    {"run_mode", "train, or another run of the same model"},
    {"use_legacy", "chooses between two implementations of the same layers"},
    {"trainer.*", "names a recipe of that system"},
    {"train_dataset*", kOfData},
    {"eval_*", kOfGeneration},
    {"do_eval", kOfGeneration},
    {"swap_config.*", kOfMachine},
    {"processor.*", kOfData},
    {"metric.*", kOfWatching},
    {"monitor_config.*", kOfWatching},
    {"profile*", kOfWatching},
    {"init_start_profile", kOfWatching},
    {"with_stack", kOfWatching},
    {"tensorboard.*", kOfWatching},
    {"print_separate_loss", kOfWatching},
    {"auto_tune", kOfWatching},
    {"filepath_prefix", kOfWatching},
    {"autotune_per_step", kOfWatching},
    {"context.*", kOfMachine},
    {"enable_mindio_ttp_save_ckpt", kOfWeights},
    {"remote_save_url", kOfWeights},
    {"layer_scale", "is off where it is false"},
    {"layer_decay", "is for layer_scale, which is off"},
    {"lr_scale", "is off where it is false"},
    {"lr_scale_factor", "is for lr_scale, which is off"},
    {"lr_schedule.warmup_epochs", "counts epochs of data; warmup_ratio or warmup_steps says it here"},
    {"lr_schedule.warmup_lr_init", "is where warming up begins; 0 here"},
    {"runner_config.sink_*", kOfMachine},
    {"runner_config.image_size", kOfData},
    {"runner_config.num_classes", kOfData},
    {"runner_wrapper.*", "scales the loss of fp16 and takes it back"},
    {"model.arch.*", kOfModel},
    {"model.model_config.*", kOfModel},
    {"moe_config.*", "is for models with experts; the model says it"},
    {"infer*", kOfGeneration},
    {"predict*", kOfGeneration},
    {"adapter_id", kOfGeneration},
    {"swap*", kOfMachine},
};

}  // namespace

std::optional<std::string_view> harmless_mindformers_key(std::string_view key) {
  for (const HarmlessEntry& entry : kHarmlessEntries) {
    if (fits_pattern(key, entry.pattern)) return entry.why;
  }
  return std::nullopt;
}

}  // namespace weft
