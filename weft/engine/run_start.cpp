#include "weft/engine/run_start.h"

#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "weft/base/output_path.h"
#include "weft/base/paths.h"
#include "weft/checkpoint/agreement.h"
#include "weft/engine/resumed_run.h"
#include "weft/plan/plan_json.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

/// Of two names of one folder.
bool is_same(const fs::path& a, const fs::path& b) {
  return without_links(a) == without_links(b);
}

/// What rank 0 finds.
struct Found {
  fs::path folder;
  fs::path checkpoint;
  bool is_own = false;
  std::shared_ptr<RunClaim> claim;
};

std::optional<Error> claim_folder(Found& found) {
  auto claim = RunClaim::take(found.folder);
  if (!claim) return std::move(claim).error();
  found.claim = std::make_shared<RunClaim>(*std::move(claim));
  return std::nullopt;
}

Result<Found> look_for_new(const Plan& plan, const fs::path& folder) {
  Found found{.folder = folder};
  if (folder.empty()) {
    WEFT_TRY(RunClaim claim, RunClaim::take_new(plan.model.name));
    found.folder = claim.folder();
    found.claim = std::make_shared<RunClaim>(std::move(claim));
    return found;
  }
  // What holds a run is refused for that, whether it is still running or not.
  if (auto error = check_no_run(RunFolder{folder})) return *error;
  if (auto error = claim_folder(found)) return *error;
  if (auto error = check_no_run(RunFolder{folder})) return *error;
  return found;
}

Result<Found> find_old(const TrainConfig& config, const TrainOptions& options) {
  const fs::path usual = options.run_folder.empty() ? config.run_folder : options.run_folder;
  const fs::path from = options.resume_from.empty() ? usual : options.resume_from;
  if (from.empty()) {
    return Error{.source = "--resume",
                 .problem = "has no folder to go on from",
                 .advice = "Give it a run's folder, or give run_folder in the configuration."};
  }
  Found found;
  std::error_code ignored;
  const bool is_run = fs::exists(RunFolder{from}.metrics(), ignored) || fs::exists(RunFolder{from}.plan(), ignored);
  WEFT_TRY(const std::optional<fs::path> newest, newest_checkpoint(RunFolder{from}.checkpoints()));
  if (!newest && is_run && !fs::exists(from / "checkpoint.json", ignored)) {
    // It ended before its first checkpoint: from the beginning.
    found.folder = from;
  } else {
    WEFT_TRY(found.checkpoint, find_checkpoint(from));
    found.folder = run_of(found.checkpoint);
  }
  found.is_own = options.run_folder.empty() || is_same(options.run_folder, found.folder);
  if (!found.is_own) {
    found.folder = options.run_folder;
    if (auto error = check_no_run(RunFolder{found.folder})) return *error;
  } else if (found.folder.empty()) {
    return Error{.source = found.checkpoint.string(),
                 .problem = "lies alone, not in a run's folder \"checkpoints\"",
                 .advice = "Say with --run where the run is to go on."};
  } else if (!found.checkpoint.empty()) {
    WEFT_TRY(const std::optional<fs::path> last, newest_checkpoint(RunFolder{found.folder}.checkpoints()));
    if (last && !is_same(*last, found.checkpoint)) {
      return Error{
          .source = found.checkpoint.string(),
          .problem = fmt::format("is not the newest of its run, which has {} as well", last->filename().string()),
          .advice =
              "Say with --run where the other history is to be written, or take the newer checkpoints "
              "away."};
    }
  }
  return found;
}

Result<Found> look_for_old(const TrainConfig& config, const TrainOptions& options) {
  WEFT_TRY(Found found, find_old(config, options));
  if (auto error = claim_folder(found)) return *error;
  // Once more, now that nobody else writes there.
  WEFT_TRY(Found settled, find_old(config, options));
  settled.claim = std::move(found.claim);
  return settled;
}

/// Whether every rank sees the folder that rank 0 has claimed.
std::optional<Error> check_shared(World& world, const RunStart& start) {
  const std::string text = broadcast_text(world.all(), start.claim ? start.claim->text() : "");
  std::optional<Error> error;
  // Other hosts may learn of a new file a little later.
  constexpr int kTries = 50;
  for (int tries = 0; tries < kTries && read_claim(start.folder.path) != text; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  if (read_claim(start.folder.path) != text) {
    error = Error{.source = start.folder.path.string(),
                  .problem = fmt::format("is not on a file system that all ranks share: rank {} does not see what rank "
                                         "0 has written there, and checkpoints are to be saved",
                                         world.rank()),
                  .advice = "Give a run folder on a shared file system, or leave checkpoints out."};
  }
  return first_error(world.all(), error);
}

}  // namespace

fs::path run_of(const fs::path& checkpoint) {
  const fs::path parent = without_links(checkpoint).parent_path();
  return parent.filename() == "checkpoints" ? parent.parent_path() : fs::path();
}

bool is_model_folder(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "config.json", ignored) && (fs::exists(folder / "model.safetensors", ignored) ||
                                                         fs::exists(folder / "model.safetensors.index.json", ignored));
}

Result<fs::path> find_checkpoint(const fs::path& given) {
  std::error_code ignored;
  if (fs::exists(given / "checkpoint.json", ignored)) return given;
  // One that was copied half is told as what it is.
  if (given.filename().string().starts_with(kCheckpointPrefix) && fs::is_directory(given, ignored)) return given;
  WEFT_TRY(const std::optional<fs::path> newest, newest_checkpoint(RunFolder{given}.checkpoints()));
  if (newest) return *newest;
  if (is_model_folder(given)) {
    return Error{.source = given.string(),
                 .problem = "is a Hugging Face folder, not a run: there is nothing to go on with",
                 .advice = "To begin with its weights, name it as weights: in the configuration."};
  }
  return Error{.source = given.string(),
               .problem = fs::is_directory(given, ignored) ? "has no checkpoint" : "is no folder",
               .advice = "Give the folder of a run that has saved checkpoints, or one of these."};
}

Result<Checkpoint> read_checkpoint_on_ranks(World& world, const fs::path& given, std::string_view way) {
  std::string path;
  const auto look = [&]() -> std::optional<Error> {
    if (world.rank() != 0) return std::nullopt;
    const auto found = find_checkpoint(given);
    if (!found) return found.error();
    path = found->string();
    return std::nullopt;
  };
  if (auto error = first_error(world.all(), look())) return *error;
  const fs::path folder = broadcast_text(world.all(), path);
  auto read = read_checkpoint(folder);
  if (const auto error = first_error(world.all(), read ? std::nullopt : std::optional(read.error())))
    return with_good_checkpoint(world.all(), *error, folder, way);
  return read;
}

Result<RunStart> find_start(World& world, const Plan& plan, const TrainConfig& config, const TrainOptions& options) {
  Found found;
  const auto look = [&]() -> std::optional<Error> {
    if (world.rank() != 0) return std::nullopt;
    auto looked = options.resumes
                      ? look_for_old(config, options)
                      : look_for_new(plan, options.run_folder.empty() ? config.run_folder : options.run_folder);
    if (!looked) return looked.error();
    found = *std::move(looked);
    const std::optional<std::string> trace =
        options.trace.empty() ? std::nullopt : std::optional(options.trace.string());
    return find_bad_output({{"--trace", trace}});
  };
  if (auto error = first_error(world.all(), look())) return *error;
  RunStart start{.folder = {broadcast_text(world.all(), found.folder.string())}};
  start.is_own = !broadcast_text(world.all(), found.is_own ? "own" : "").empty();
  start.claim = std::move(found.claim);
  if (config.checkpoints.interval_steps > 0) {
    if (auto error = check_shared(world, start)) return *error;
  }
  const std::string checkpoint = broadcast_text(world.all(), found.checkpoint.string());
  if (!checkpoint.empty()) {
    WEFT_TRY(start.checkpoint, read_checkpoint_on_ranks(world, checkpoint, kWayToResume));
  }
  return start;
}

std::optional<Error> open_run(World& world, const RunStart& start, const Plan& plan, const TrainConfig& config) {
  const auto open = [&]() -> std::optional<Error> {
    if (world.rank() != 0) return std::nullopt;
    if (start.is_own) {
      if (auto error = rewind_metrics(start.folder, start.checkpoint ? start.checkpoint->step : 0)) return error;
    }
    if (auto error = begin_run(start.folder, plan_to_text(plan), to_json(config).dump(2) + "\n")) return error;
    start.claim->keep();
    return std::nullopt;
  };
  return first_error(world.all(), open());
}

}  // namespace weft
