#include "weft/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "weft/base/file.h"
#include "weft/base/text.h"
#include "weft/checkpoint/checkpoint_json.h"
#include "weft/checkpoint/stored_file.h"

namespace weft {
namespace {

constexpr std::string_view kStepPrefix = kCheckpointPrefix;
constexpr DocumentLimits kJsonLimits{.max_bytes = size_t{2} << 30, .max_values = 200'000'000};

std::optional<int64_t> step_in(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  int64_t step = 0;
  const auto [end, problem] = std::from_chars(name.data() + kStepPrefix.size(), name.data() + name.size(), step);
  // Only as it would be written, so that no two names are of one step.
  if (problem != std::errc() || step < 0 || checkpoint_name(step) != name) return std::nullopt;
  return step;
}

}  // namespace

std::string checkpoint_name(int64_t step) {
  return fmt::format("{}{:08}", kStepPrefix, step);
}

std::string checkpoint_file_name(int64_t rank) {
  return fmt::format("rank-{:05}.safetensors", rank);
}

Result<std::vector<int64_t>> list_checkpoints(const std::filesystem::path& checkpoints) {
  std::vector<int64_t> steps;
  std::error_code problem;
  std::filesystem::directory_iterator entry(checkpoints, problem);
  if (problem == std::errc::no_such_file_or_directory) return steps;
  for (; !problem && entry != std::filesystem::directory_iterator(); entry.increment(problem)) {
    if (const auto step = step_in(entry->path().filename().string())) steps.push_back(*step);
  }
  if (problem) {
    return Error{.source = checkpoints.string(),
                 .problem = "cannot be read: " + problem.message(),
                 .advice = "Give the folder that holds the step-… folders, and check its permissions."};
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<std::optional<std::filesystem::path>> newest_checkpoint(const std::filesystem::path& checkpoints) {
  WEFT_TRY(const std::vector<int64_t> steps, list_checkpoints(checkpoints));
  if (steps.empty()) return std::optional<std::filesystem::path>();
  return std::optional(checkpoints / checkpoint_name(steps.back()));
}

Result<Checkpoint> read_checkpoint(const std::filesystem::path& folder) {
  const std::filesystem::path json = folder / kCheckpointJsonName;
  std::error_code ignored;
  if (!std::filesystem::exists(json, ignored)) {
    return Error{.source = folder.string(),
                 .problem = fmt::format("is no checkpoint: there is no {} in it", kCheckpointJsonName),
                 .advice = "Give the path of a step-… folder."};
  }
  WEFT_TRY(const std::string text, read_file(json, kJsonLimits.max_bytes));
  WEFT_TRY(const Document document, parse_document(text, json.string(), Syntax::kJson, kJsonLimits));
  WEFT_TRY(Checkpoint checkpoint, checkpoint_from(document));
  if (auto error = check_seal(text, json.string())) return *std::move(error);
  checkpoint.folder = folder;
  for (const CheckpointFile& file : checkpoint.files) {
    const std::filesystem::path path = folder / checkpoint_file_name(file.rank);
    std::error_code problem;
    const uintmax_t size = std::filesystem::file_size(path, problem);
    const auto refuse = [&](std::string what) {
      return Error{.source = path.string(),
                   .problem = std::move(what),
                   .advice = "The checkpoint is damaged: copy it again, or use an older one."};
    };
    if (problem)
      return refuse(fmt::format("cannot be read, and {} names it: {}", kCheckpointJsonName, problem.message()));
    if (size != static_cast<uintmax_t>(file.num_bytes)) {
      return refuse(fmt::format("has {} bytes, but {} says {}", with_commas(static_cast<int64_t>(size)),
                                kCheckpointJsonName, with_commas(file.num_bytes)));
    }
  }
  return checkpoint;
}

std::optional<Error> verify_checkpoint(const Checkpoint& checkpoint) {
  for (const CheckpointFile& file : checkpoint.files) {
    auto opened = StoredFile::open(checkpoint.folder, file);
    if (!opened) return std::move(opened).error();
    if (auto error = opened->check_all()) return error;
  }
  return std::nullopt;
}

std::optional<std::filesystem::path> good_checkpoint_beside(const std::filesystem::path& folder) {
  const std::filesystem::path whole = folder.has_filename() ? folder : folder.parent_path();
  const std::filesystem::path around = whole.has_parent_path() ? whole.parent_path() : ".";
  const auto steps = list_checkpoints(around);
  if (!steps) return std::nullopt;
  for (auto step = steps->rbegin(); step != steps->rend(); ++step) {
    const std::filesystem::path other = around / checkpoint_name(*step);
    if (other.filename() == whole.filename()) continue;
    const auto read = read_checkpoint(other);
    if (read && !verify_checkpoint(*read)) return other;
  }
  return std::nullopt;
}

}  // namespace weft
