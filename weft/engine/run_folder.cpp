#include "weft/engine/run_folder.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/file.h"

namespace weft {
namespace {

Error file_error(const std::filesystem::path& path, const char* what, const std::string& reason) {
  return {.kind = ErrorKind::kJob,
          .source = path.string(),
          .problem = fmt::format("cannot be {}: {}", what, reason),
          .advice = "Choose another run folder, or make room and give permission there."};
}

}  // namespace

std::optional<Error> check_no_run(const RunFolder& folder) {
  std::error_code ignored;
  for (const std::filesystem::path& left : {folder.metrics(), folder.checkpoints()}) {
    if (!std::filesystem::exists(left, ignored)) continue;
    return Error{.source = folder.path.string(),
                 .problem = fmt::format("holds a run already: there is {}", left.filename().string()),
                 .advice = "Use --resume to go on with it, or choose another run folder."};
  }
  return std::nullopt;
}

std::optional<Error> begin_run(const RunFolder& folder, const std::string& plan_text, const std::string& config_text) {
  std::error_code failure;
  std::filesystem::create_directories(folder.path, failure);
  if (failure) return file_error(folder.path, "made", failure.message());
  if (auto error = write_file(folder.plan(), plan_text)) return error;
  return write_file(folder.config(), config_text);
}

namespace {

/// Of lines with a step each.
std::optional<Error> rewind_lines(const std::filesystem::path& path, int64_t step) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    // A line that a killed run has not finished, or that is of no step before the checkpoint.
    if (json.is_object() && json.contains("step") && whole_number(json["step"], {0, step})) kept += line + "\n";
  }
  return write_file(path, kept);
}

}  // namespace

std::optional<Error> link_best(const RunFolder& folder, const std::filesystem::path& checkpoint) {
  namespace fs = std::filesystem;
  // A new link takes the old one's place at once, so that there is always one.
  const fs::path fresh = folder.path / ".best";
  std::error_code failure;
  fs::remove(fresh, failure);
  fs::create_directory_symlink(fs::path("checkpoints") / checkpoint.filename(), fresh, failure);
  if (!failure) fs::rename(fresh, folder.best(), failure);
  if (!failure) return std::nullopt;
  return file_error(folder.best(), "made a link", failure.message());
}

std::optional<Error> rewind_metrics(const RunFolder& folder, int64_t step) {
  for (const std::filesystem::path& lines : {folder.metrics(), folder.skipped(), folder.evaluations()}) {
    if (auto error = rewind_lines(lines, step)) return error;
  }
  const std::filesystem::path steps = folder.steps();
  std::ifstream records(steps, std::ios::binary);
  if (!records) return std::nullopt;
  const std::string text{std::istreambuf_iterator<char>(records), {}};
  return write_file(steps, rewound(text, step));
}

Result<LineFile> LineFile::open(const std::filesystem::path& path) {
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) return file_error(path, "written", std::strerror(errno));
  return LineFile(path, file);
}

std::optional<Error> LineFile::append(const std::string& line) {
  const bool is_written =
      std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() && std::fflush(file_.get()) == 0;
  if (is_written) return std::nullopt;
  return file_error(path_, "written", std::strerror(errno));
}

}  // namespace weft
