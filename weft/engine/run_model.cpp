#include "weft/engine/run_model.h"

#include "weft/checkpoint/export_checkpoint.h"
#include "weft/engine/run_folder.h"

namespace weft {
namespace {

/// A path of a document; empty where there is none.
std::filesystem::path path_in(const Json& json, const char* key) {
  if (!json.is_object() || !json.contains(key) || !json[key].is_string()) return {};
  return json[key].get<std::string>();
}

std::filesystem::path if_there(const std::filesystem::path& folder) {
  std::error_code ignored;
  return folder.is_absolute() && std::filesystem::is_directory(folder, ignored) ? folder : std::filesystem::path();
}

}  // namespace

std::filesystem::path weights_folder_of(const Json& run) {
  return path_in(run, "weights");
}

std::filesystem::path text_folder_of(const Json& run) {
  const std::filesystem::path of_data =
      run.is_object() && run.contains("data") ? if_there(path_in(run["data"], "model")) : "";
  return of_data.empty() ? if_there(weights_folder_of(run)) : of_data;
}

std::optional<Error> find_no_text(const Model& model, std::string source) {
  if (!model.numbers.program) return std::nullopt;
  return Error{.source = std::move(source),
               .field = "model_type",
               .problem = "is a program of its user, which writes no text",
               .advice = "weft train and weft eval run programs; predict continues texts with a language model."};
}

Result<std::filesystem::path> model_of_run(const std::filesystem::path& run_folder) {
  namespace fs = std::filesystem;
  WEFT_TRY(const std::optional<fs::path> newest, newest_checkpoint(RunFolder{run_folder}.checkpoints()));
  if (!newest) {
    std::error_code ignored;
    return Error{.source = run_folder.string(),
                 .problem = fs::is_directory(run_folder, ignored) ? "has no checkpoint" : "is no folder",
                 .advice = "Give the folder of a run that has saved checkpoints."};
  }
  const fs::path model = run_folder / "model" / newest->filename();
  std::error_code is_no_model, is_no_checkpoint;
  const auto written = fs::last_write_time(model / "config.json", is_no_model);
  const auto saved = fs::last_write_time(*newest / "checkpoint.json", is_no_checkpoint);
  // Older than its checkpoint: of a run that was in this folder before.
  if (!is_no_model && !is_no_checkpoint && written >= saved) return model;
  WEFT_TRY(const Checkpoint checkpoint, read_checkpoint(*newest));
  if (auto error = find_no_text(checkpoint.plan.model, newest->string())) return *std::move(error);
  std::error_code ignored;
  fs::remove_all(model, ignored);
  if (auto error = export_checkpoint(checkpoint, model, {.companions = text_folder_of(checkpoint.run)})) return *error;
  return model;
}

}  // namespace weft
