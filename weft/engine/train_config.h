#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "weft/base/document.h"
#include "weft/data/conversations/data_settings.h"
#include "weft/optim/adamw.h"
#include "weft/optim/learning_rate.h"

namespace weft {

/// A user's own samples, in place of synthetic ones.
struct TrainData {
  DataSettings settings;
  std::filesystem::path model;  ///< the folder with tokenizer, chat template and preprocessor settings
};

/// What a run adds to a plan: how long, how fast, from which weights, and what it leaves behind.
struct TrainConfig {
  std::string source;  ///< the file, for messages
  int64_t steps = 0;
  uint64_t seed = 0;                 ///< of fresh weights and of samples
  std::string device;                ///< "cpu" or "cuda"
  int64_t threads_per_rank = 0;      ///< 0: the machine's cores shared out among its ranks
  std::filesystem::path weights;     ///< a Hugging Face folder to start from; empty: fresh weights
  std::filesystem::path run_folder;  ///< empty: the caller chooses

  std::optional<TrainData> data;  ///< nothing: synthetic samples
  int64_t data_threads = 2;       ///< of each process, that prepare samples

  AdamWSettings adamw;
  double max_gradient_norm = 1;  ///< 0: gradients are not clipped
  LearningRate learning_rate;

  struct Checkpoints {
    int64_t interval_steps = 0;  ///< 0: none
    int64_t keep = 0;            ///< the newest so many; 0: all
  };
  Checkpoints checkpoints;
  int64_t evaluation_batches = 8;
};

/// Unknown keys are rejected.
Result<TrainConfig> read_train_config(const Document& document);
Result<TrainConfig> read_train_config_file(const std::filesystem::path& path);
/// The inverse, but for the run folder.
Json to_json(const TrainConfig& config);

}  // namespace weft
