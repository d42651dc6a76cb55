#include "weft/engine/run_start.h"

#include <fmt/format.h>

#include "weft/base/output_path.h"
#include "weft/checkpoint/agreement.h"
#include "weft/plan/plan_json.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

/// What rank 0 has decided, on all ranks.
std::string broadcast_text(Group& group, std::string text) {
  auto length = static_cast<int64_t>(text.size());
  group.broadcast(Buffer{.data = &length, .count = 1, .type = DataType::kInt64}, 0).wait();
  text.resize(static_cast<size_t>(length));
  if (length > 0) group.broadcast(Buffer{.data = text.data(), .count = length, .type = DataType::kUint8}, 0).wait();
  return text;
}

/// Of two names of one folder.
bool is_same(const fs::path& a, const fs::path& b) {
  return fs::weakly_canonical(a) == fs::weakly_canonical(b);
}

/// The folder of the run that a checkpoint is of; empty where it lies alone.
fs::path run_of(const fs::path& checkpoint) {
  const fs::path parent = fs::weakly_canonical(checkpoint).parent_path();
  return parent.filename() == "checkpoints" ? parent.parent_path() : fs::path();
}

/// What rank 0 finds.
struct Found {
  fs::path folder;
  fs::path checkpoint;
  bool is_own = false;
};

Result<Found> look_for_new(const Plan& plan, const fs::path& folder) {
  Found found{.folder = folder.empty() ? new_run_folder(plan.model.name) : folder};
  if (auto error = check_no_run(RunFolder{found.folder})) return *error;
  return found;
}

Result<Found> look_for_old(const TrainConfig& config, const TrainOptions& options) {
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

}  // namespace

Result<fs::path> find_checkpoint(const fs::path& given) {
  std::error_code ignored;
  if (fs::exists(given / "checkpoint.json", ignored)) return given;
  WEFT_TRY(const std::optional<fs::path> newest, newest_checkpoint(RunFolder{given}.checkpoints()));
  if (newest) return *newest;
  return Error{.source = given.string(),
               .problem = fs::is_directory(given, ignored) ? "has no checkpoint" : "is no folder",
               .advice = "Give the folder of a run that has saved checkpoints, or one of these."};
}

Result<Checkpoint> read_checkpoint_on_ranks(World& world, const fs::path& given) {
  std::string path;
  const auto look = [&]() -> std::optional<Error> {
    if (world.rank() != 0) return std::nullopt;
    const auto found = find_checkpoint(given);
    if (!found) return found.error();
    path = found->string();
    return std::nullopt;
  };
  if (auto error = first_error(world.all(), look())) return *error;
  auto read = read_checkpoint(broadcast_text(world.all(), path));
  if (auto error = first_error(world.all(), read ? std::nullopt : std::optional(read.error()))) return *error;
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
    if (auto error = find_bad_output({{"--trace", trace}})) return error;
    return check_can_write({found.folder});
  };
  if (auto error = first_error(world.all(), look())) return *error;
  RunStart start{.folder = {broadcast_text(world.all(), found.folder.string())}};
  start.is_own = !broadcast_text(world.all(), found.is_own ? "own" : "").empty();
  const std::string checkpoint = broadcast_text(world.all(), found.checkpoint.string());
  if (!checkpoint.empty()) {
    WEFT_TRY(start.checkpoint, read_checkpoint_on_ranks(world, checkpoint));
  }
  return start;
}

std::optional<Error> open_run(World& world, const RunStart& start, const Plan& plan, const TrainConfig& config) {
  const auto open = [&]() -> std::optional<Error> {
    if (world.rank() != 0) return std::nullopt;
    if (start.is_own) {
      if (auto error = rewind_metrics(start.folder, start.checkpoint ? start.checkpoint->step : 0)) return error;
    }
    return begin_run(start.folder, plan_to_text(plan), to_json(config).dump(2) + "\n");
  };
  return first_error(world.all(), open());
}

}  // namespace weft
