#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/engine/run_folder.h"

namespace weft {

/// Numbers over steps as TensorBoard reads them: records with checksums around serialised events, a file for each
/// process that wrote some.
class EventFile {
 public:
  /// Makes a new file in a folder. Events of steps after `first_step`, which files of earlier processes may have, no
  /// longer count.
  static Result<EventFile> create(const std::filesystem::path& folder, int64_t first_step);

  using Scalars = std::vector<std::pair<std::string, double>>;
  std::optional<Error> add(int64_t step, const Scalars& scalars);

 private:
  explicit EventFile(LineFile file) : file_(std::move(file)) {}

  LineFile file_;
};

/// One record: its length and its bytes, each with a checksum behind it.
std::string event_record(const std::string& bytes);

/// What is drawn of a step.
EventFile::Scalars scalars_of(const StepMetrics& metrics);

}  // namespace weft
