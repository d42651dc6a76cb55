#include "weft/exchange/export.h"

#include <filesystem>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/base/output_path.h"
#include "weft/cli/exported_text.h"
#include "weft/cli/json_output.h"
#include "weft/cli/legal_plan.h"
#include "weft/cli/verbs.h"

namespace weft {
namespace {

struct ExportOptions {
  std::string plan;
  std::string to;
  std::optional<std::string> out;
  bool json = false;
};

Result<Target> target_of(const ExportOptions& options) {
  Result<Target> target = parse_target(options.to);
  if (target) return target;
  Error error = target.error();
  error.source = "--to";
  return error;
}

Result<std::vector<ExportedFile>> exported(const ExportOptions& options, Target target) {
  WEFT_TRY(const Plan plan, read_noted_plan(options.plan));
  Result<std::vector<ExportedFile>> files = export_plan(plan, target);
  if (files) return files;
  Error error = files.error();
  error.source = options.plan;
  return error;
}

/// A single file goes to the path itself, unless that is a folder; several go into a folder, which is made.
Result<std::string> written(const std::vector<ExportedFile>& files, const std::filesystem::path& out) {
  std::error_code ignored;
  const bool is_folder = files.size() > 1 || !out.has_filename() || std::filesystem::is_directory(out, ignored);
  if (is_folder) {
    std::error_code failure;
    std::filesystem::create_directories(out, failure);
    if (failure) {
      return Error{.source = "--out",
                   .problem = fmt::format("{} cannot be made a folder: {}", out.string(), failure.message()),
                   .advice = "Give a folder that can be written to."};
    }
  }
  for (const ExportedFile& file : files) {
    const std::optional<std::string> path = (is_folder ? out / file.name : out).string();
    if (auto error = find_bad_output({{"--out", path}})) return *std::move(error);
  }
  std::string text;
  for (const ExportedFile& file : files) {
    const std::filesystem::path path = is_folder ? out / file.name : out;
    if (auto error = write_file(path, file.text)) return *error;
    text += fmt::format("wrote {}\n", path.string());
  }
  return text;
}

Result<std::string> run_export(const ExportOptions& options) {
  WEFT_TRY(const Target target, target_of(options));
  WEFT_TRY(const std::vector<ExportedFile> files, exported(options, target));
  std::string text = shown(files);
  if (options.out && options.out->empty()) return *find_bad_output({{"--out", options.out}});
  if (options.out) {
    WEFT_TRY(text, written(files, *options.out));
  }
  if (!options.json) return text;
  Json json = {{"target", name_of(target)}, {"files", Json::array()}};
  for (const ExportedFile& file : files) json["files"].push_back({{"name", file.name}, {"text", file.text}});
  return json_output(json);
}

}  // namespace

void add_export(Verbs& verbs) {
  auto options = std::make_shared<ExportOptions>();
  Verb& verb =
      verbs.emplace_back(Verb{.name = "export", .summary = "Write a plan as the settings of another training system"});
  verb.option("--plan", options->plan, "The plan document").named("FILE").required();
  verb.option("--to", options->to, "megatron, mindspeed-mm, mindformers, mindspeed-rl or torchtitan")
      .named("SYSTEM")
      .required();
  verb.option("--out", options->out,
              "Write there instead of to standard output: a file, or a folder where there are several")
      .named("PATH");
  verb.option("--json", options->json, "Print one JSON object with the name and text of every file");
  verb.footer =
      "What the system cannot express is refused with the reason; nothing is left out unseen.\n"
      "Examples:\n"
      "  weft export --plan plan.json --to megatron\n"
      "  weft export --plan plan.json --to mindspeed-mm --out settings/\n"
      "  weft export --plan plan.json --to mindformers --out parallel.yaml";
  verb.run = [options] { return run_export(*options); };
}

}  // namespace weft
