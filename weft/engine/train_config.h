#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/document.h"
#include "weft/data/conversations/data_settings.h"
#include "weft/data/named_samples.h"
#include "weft/layers/loss_settings.h"
#include "weft/optim/adamw.h"
#include "weft/optim/learning_rate.h"
#include "weft/optim/weight_rules.h"
#include "weft/plan/plan.h"

namespace weft {

/// A user's own samples, in place of synthetic ones.
struct TrainData {
  DataSettings settings;
  std::filesystem::path model;         ///< the folder with tokenizer, chat template and preprocessor settings
  std::vector<NamedFile> inputs = {};  ///< of a user's own program, in place of conversations and a model's folder
  bool are_named = false;              ///< `inputs` is there, though it may be empty
};

/// What a run adds to a plan: how long, how fast, from which weights, and what it leaves behind.
struct TrainConfig {
  std::string source;                ///< the file, for messages
  int64_t steps = 0;                 ///< 0 where epochs say how many, until with_steps has counted them
  double epochs = 0;                 ///< times that the data are gone through; 0: steps say how long
  uint64_t seed = 0;                 ///< of fresh weights and of samples
  std::string device;                ///< "cpu" or "cuda"
  bool is_deterministic = false;     ///< the same bits from the same start, also on a GPU
  int64_t threads_per_rank = 0;      ///< 0: the machine's cores shared out among its ranks
  std::filesystem::path weights;     ///< a Hugging Face folder to start from; empty: fresh weights
  std::filesystem::path adapter;     ///< a folder of adapters, as PEFT saves them, to start from; empty: fresh ones
  std::filesystem::path run_folder;  ///< empty: the caller chooses

  std::optional<TrainData> data;  ///< nothing: synthetic samples
  int64_t data_threads = 2;       ///< of each process, that prepare samples

  AdamWSettings adamw;
  std::vector<WeightRule> weight_rules;  ///< of learning rates and decay; later ones win
  double max_gradient_norm = 1;          ///< 0: gradients are not clipped
  LossSettings loss;
  LearningRate learning_rate;

  struct Checkpoints {
    int64_t interval_steps = 0;  ///< 0: none
    int64_t keep = 0;            ///< the newest so many; 0: all
    bool keep_best = false;      ///< and the one with the lowest loss of all evaluations
  };
  Checkpoints checkpoints;

  /// Of what, and how often, the loss is measured without training on it.
  struct Evaluation {
    enum class Split : uint8_t { kHeldOut, kTrained };

    int64_t interval_steps = 0;     ///< 0: never while training
    Split split = Split::kHeldOut;  ///< of the data that are trained on
    std::optional<TrainData> data;  ///< in place of them, every record once
    int64_t patience = 0;           ///< evaluations without a lower loss after which a run ends; 0: it does not
    double min_improvement = 0;     ///< by which a loss must be lower than the best to count as such
  };
  Evaluation evaluation;
  int64_t evaluation_batches = 8;  ///< at most; of data of their own all
  std::string on_metrics;          ///< a command that gets every line of metrics; empty: none
};

/// Unknown keys are rejected.
Result<TrainConfig> read_train_config(const Document& document);
Result<TrainConfig> read_train_config_file(const std::filesystem::path& path);
/// The inverse, but for the run folder, and for rules about what is trained, which a run's plan has.
Json to_json(const TrainConfig& config);

/// With as many steps as so many samples take, `batch` of them each.
Result<TrainConfig> with_steps(TrainConfig config, int64_t num_samples, int64_t batch);

}  // namespace weft
