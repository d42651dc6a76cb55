#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "weft/base/result.h"
#include "weft/record/run_record.h"
#include "weft/schedule/step_metrics.h"

namespace weft {

/// Where a run leaves what it did: the plan and the configuration it ran with, a line of metrics for each step,
/// some steps as a whole, and checkpoints.
struct RunFolder {
  std::filesystem::path path;

  std::filesystem::path plan() const { return path / "plan.json"; }
  std::filesystem::path config() const { return path / "config.json"; }
  std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
  std::filesystem::path steps() const { return path / kRunRecordName; }
  /// A line for each record that could not be used, of steps in which there were some.
  std::filesystem::path skipped() const { return path / "skipped.jsonl"; }
  std::filesystem::path checkpoints() const { return path / "checkpoints"; }
  /// A line for each evaluation.
  std::filesystem::path evaluations() const { return path / "evaluations.jsonl"; }
  /// Metrics for TensorBoard.
  std::filesystem::path events() const { return path / "tensorboard"; }
  /// A link to the checkpoint with the lowest loss.
  std::filesystem::path best() const { return path / "best"; }
};

/// An error where the folder holds a run already.
std::optional<Error> check_no_run(const RunFolder& folder);

/// Makes the folder if it is not there, and writes down what the run is.
std::optional<Error> begin_run(const RunFolder& folder, const std::string& plan_text, const std::string& config_text);

/// Makes `best` a link to a checkpoint of the run.
std::optional<Error> link_best(const RunFolder& folder, const std::filesystem::path& checkpoint);

/// Removes the metrics and records of steps after `step`, which will be done again.
std::optional<Error> rewind_metrics(const RunFolder& folder, int64_t step);

/// Appends lines to a file; each is on disk's side of the program when it returns.
class LineFile {
 public:
  static Result<LineFile> open(const std::filesystem::path& path);
  /// A line with its end.
  std::optional<Error> append(const std::string& line);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  LineFile(std::filesystem::path path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace weft
