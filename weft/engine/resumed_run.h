#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/checkpoint/checkpoint.h"
#include "weft/engine/train_config.h"

namespace weft {

/// Whether a checkpoint can go on with this plan and configuration: they must be of the same model and make the same
/// samples in the same order. The error names what is not so.
std::optional<Error> check_resumed(const Checkpoint& checkpoint, const Plan& plan, const TrainConfig& config);

/// Of the same model, which is enough to evaluate it.
std::optional<Error> check_model_of(const Checkpoint& checkpoint, const Plan& plan);

/// Whether a plan makes the samples of a run's plan, of which `run` is a text. Those of files do not depend on it.
std::optional<Error> check_samples_of(const Plan& before, const Plan& now, const TrainConfig& config,
                                      const std::string& run);

/// What to do with a checkpoint that is good where another is not, whose folder takes the place of "{}".
inline constexpr std::string_view kWayToResume = "go on from it with --resume {} and another --run";
inline constexpr std::string_view kWayToEvaluate = "give it with --checkpoint {}";
inline constexpr std::string_view kWayToConvert = "give it with --from {}";

/// An error of reading a checkpoint, which all ranks have alike: where the checkpoint is damaged it then says which
/// other one of its run is good, and the `way` to take it. All ranks call it.
Error with_good_checkpoint(Group& everyone, Error error, const std::filesystem::path& folder, std::string_view way);
/// The same on one process.
Error with_good_checkpoint(Error error, const std::filesystem::path& folder, std::string_view way);

/// What is different from here on, as texts: "modules.llm.tp 2 instead of 1". Of the plan, what decides where weights
/// lie or how numbers are computed; of the configuration, keys that changed, came or went.
std::vector<std::string> changes_of_plan(const Plan& before, const Plan& now);
std::vector<std::string> changes_of_config(Json before, const Json& now);

}  // namespace weft
