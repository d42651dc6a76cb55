#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "weft/base/result.h"
#include "weft/engine/plan_switches.h"
#include "weft/engine/predict_request.h"
#include "weft/engine/train_config.h"
#include "weft/engine/train_request.h"
#include "weft/plan/plan.h"

namespace weft {

/// How a run is started, and who hears of it.
struct TrainOptions {
  std::filesystem::path run_folder;  ///< empty: the configuration's, else a new one in runs/
  bool resumes = false;
  std::filesystem::path resume_from;  ///< a run's folder, or one of its checkpoints; empty: the run folder
  std::filesystem::path trace;        ///< where the last step's timeline goes; empty: nowhere
  SampleCosts costs;                  ///< by which samples are reassigned; for plans whose `balance` is not none
  std::vector<RankNeed> memory;       ///< by rank, compared with what there is before anything is made; may be empty
  const std::atomic<bool>* stop = nullptr;  ///< once true on rank 0, the run ends after the step that is under way
  std::function<void(const StepMetrics& metrics, int64_t num_steps)> on_step;  ///< on rank 0
  std::function<void(const std::string&)> say;                                 ///< a line, on rank 0
  std::function<void(const std::string&)> show;                                ///< what is under way, on rank 0
};

struct EvalOptions {
  std::vector<RankNeed> memory;  ///< as for training
  std::function<void(const std::string&)> say;
  std::function<void(const std::string&)> show;
};

/// Trains, fine-tunes and evaluates a model by a plan, and predicts with it. Ranks are threads of this process, or
/// processes where a launcher started several; each of these makes a Trainer of its own and calls it alike. Only the
/// process of rank 0 gets reports. With MPI a process can call one of the functions that use ranks, once.
///
/// A plan comes from a file, from the search, or from settings in code (make_plan):
///
///   Trainer trainer(*make_plan(model, cluster, workload, {.data_parallel = 2, .pipeline_stage = 2}), config);
///   trainer.train();
class Trainer {
 public:
  /// The plan must be legal.
  Trainer(Plan plan, TrainConfig config) : plan_(std::move(plan)), config_(std::move(config)) {}

  /// With fresh weights, those of the configuration, or where a run ended.
  Result<std::optional<TrainReport>> train(const TrainOptions& options = {});
  /// Has a run of train() go on by another plan of the same model for as many ranks, from the next step on and without
  /// touching a disk. It may be called from on_step, in the process of rank 0, or from another thread there; a run with
  /// `balance` needs costs for the new plan, and several processes cannot have them. The error says why not.
  std::optional<Error> switch_plan(Plan plan, SampleCosts costs = {});

  /// The same from the weights of a Hugging Face folder.
  Result<std::optional<TrainReport>> finetune(const std::filesystem::path& weights, const TrainOptions& options = {});
  /// The loss of a checkpoint (a run's folder, or a checkpoint's) or, where none is given, of the configuration's
  /// weights, over samples that training does not see.
  Result<std::optional<EvalReport>> evaluate(const std::filesystem::path& checkpoint = {},
                                             const EvalOptions& options = {});
  /// Continues prompts with the newest weights of a run's folder. They are written into its folder `model` first, as
  /// a Hugging Face model, where that is not done yet. On one process.
  Result<PredictReport> predict(const std::filesystem::path& run_folder, PredictRequest request);

 private:
  Plan plan_;
  TrainConfig config_;
  std::shared_ptr<PlanSwitches> switches_ = std::make_shared<PlanSwitches>();
};

/// What the verbs ask.
Result<std::optional<TrainReport>> train(const TrainRequest& request);
Result<std::optional<EvalReport>> evaluate(const EvalRequest& request);

}  // namespace weft
