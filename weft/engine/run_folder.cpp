#include "weft/engine/run_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

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

std::filesystem::path new_run_folder(const std::string& model_name) {
  const std::filesystem::path runs = "runs";
  std::error_code ignored;
  std::filesystem::path path = runs / model_name;
  for (int number = 2; std::filesystem::exists(path, ignored); ++number)
    path = runs / fmt::format("{}-{}", model_name, number);
  return path;
}

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

std::optional<Error> check_can_write(const RunFolder& folder) {
  namespace fs = std::filesystem;
  // What is made is taken away again, from the inside out.
  std::vector<fs::path> made;
  std::error_code failure;
  std::vector<fs::path> missing;
  for (fs::path path = fs::absolute(folder.path).lexically_normal(); !fs::exists(path, failure) && !failure;
       path = path.parent_path())
    missing.push_back(path);
  std::optional<Error> error;
  for (auto path = missing.rbegin(); path != missing.rend() && !error; ++path) {
    if (path->filename().empty()) continue;  // a final slash
    if (fs::create_directory(*path, failure)) made.push_back(*path);
    if (failure) error = file_error(folder.path, "made", failure.message());
  }
  if (failure && !error) error = file_error(folder.path, "made", failure.message());
  if (!error && !fs::is_directory(folder.path, failure))
    error = file_error(folder.path, "made", "there is something of that name that is not a folder");
  std::string probe = (folder.path / ".weft_XXXXXX").string();
  if (!error) {
    const int descriptor = mkstemp(probe.data());
    if (descriptor < 0) error = file_error(folder.path, "written to", std::strerror(errno));
    if (descriptor >= 0) close(descriptor);
    fs::remove(probe, failure);
  }
  for (auto path = made.rbegin(); path != made.rend(); ++path) fs::remove(*path, failure);
  if (error) error->kind = ErrorKind::kInput;
  return error;
}

std::optional<Error> begin_run(const RunFolder& folder, const std::string& plan_text, const std::string& config_text) {
  std::error_code failure;
  std::filesystem::create_directories(folder.path, failure);
  if (failure) return file_error(folder.path, "made", failure.message());
  if (auto error = write_file(folder.plan(), plan_text)) return error;
  return write_file(folder.config(), config_text);
}

std::optional<Error> rewind_metrics(const RunFolder& folder, int64_t step) {
  std::ifstream file(folder.metrics());
  if (!file) return std::nullopt;
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    // A line that a killed run has not finished, or that is of no step before the checkpoint.
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    if (json["step"].get<int64_t>() <= step) kept += line + "\n";
  }
  if (auto error = write_file(folder.metrics(), kept)) return error;
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
