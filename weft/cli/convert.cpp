#include <memory>
#include <optional>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/base/units.h"
#include "weft/cli/json_output.h"
#include "weft/cli/legal_plan.h"
#include "weft/cli/runtime_loader.h"
#include "weft/cli/terminal_line.h"
#include "weft/cli/verbs.h"
#include "weft/spec/precision.h"

namespace weft {
namespace {

struct ConvertVerbOptions {
  std::optional<std::string> from, to, plan, dtype, describe;
  double shard_gib = 0;
  bool weights_only = false;
  bool adapter_only = false;
  bool verify = false;
  bool json = false;
};

Result<Precision> type_named(const std::string& name) {
  for (const Precision precision : {Precision::kFp64, Precision::kFp32, Precision::kBf16, Precision::kFp16})
    if (name == name_of(precision)) return precision;
  return Error{.source = "--dtype",
               .problem = fmt::format("is {}, bf16, fp16, fp32 or fp64 is needed", in_quotes(name)),
               .advice = "Give one of them, or leave it out."};
}

Error missing(const char* flag, const char* what) {
  return {.source = flag, .problem = "is missing", .advice = fmt::format("Give {}, or --describe DIR.", what)};
}

std::string to_text(const ConvertReport& report) {
  std::string text =
      fmt::format("from        {}\nto          {}, {}\n", report.from, report.to, report.folder.string());
  text += fmt::format("weights     {}, {}\n", report.num_weights, format_bytes(static_cast<double>(report.num_bytes)));
  if (!report.copied.empty()) text += fmt::format("copied      {}\n", fmt::join(report.copied, ", "));
  return text;
}

/// Options that say nothing of what is made.
std::optional<Error> find_unused(const ConvertVerbOptions& options) {
  if (options.adapter_only && options.plan) {
    return Error{.source = "--adapter",
                 .problem = "writes adapters for PEFT, but --plan asks for a checkpoint",
                 .advice = "Give one of them."};
  }
  if (options.weights_only && !options.plan) {
    return Error{.source = "--weights-only",
                 .problem = "is about checkpoints, and without --plan a Hugging Face folder is written",
                 .advice = "Leave it out: such a folder has no optimizer states."};
  }
  if (options.shard_gib > 0 && (options.plan || options.adapter_only)) {
    return Error{
        .source = "--shard-size",
        .problem = fmt::format("is about the files of a Hugging Face folder, but {}",
                               options.plan ? "with --plan a checkpoint is written, which has a file for each rank"
                                            : "--adapter writes adapters, which are one file"),
        .advice = "Leave it out."};
  }
  return std::nullopt;
}

Result<std::string> run_convert(const ConvertVerbOptions& options) {
  for (const auto& [flag, folder] :
       {std::pair{"--from", &options.from}, {"--to", &options.to}, {"--describe", &options.describe}}) {
    if (*folder && (*folder)->empty())
      return Error{.source = flag, .problem = "is empty, a folder is needed", .advice = "Give its path."};
  }
  if (options.describe) {
    if (options.from || options.to || options.plan || options.dtype || options.shard_gib > 0 || options.weights_only ||
        options.adapter_only)
      return Error{.source = "--describe",
                   .problem = "is given together with what is to be converted",
                   .advice = "Give it alone."};
    WEFT_TRY(const RuntimeApi* runtime, load_runtime());
    WEFT_TRY(const FolderDescription description, runtime->describe_folder(*options.describe, options.verify));
    if (!options.json) return description.text;
    return json_output(description.json);
  }
  if (!options.from) return missing("--from", "the folder that is converted");
  if (!options.to) return missing("--to", "the folder that is to be made");
  ConvertRequest request{.from = *options.from,
                         .to = *options.to,
                         .adapter_only = options.adapter_only,
                         .verify = options.verify,
                         .weights_only = options.weights_only};
  if (auto error = find_unused(options)) return *std::move(error);
  if (options.plan) {
    WEFT_TRY(request.plan, read_legal_plan(*options.plan));
  }
  if (options.dtype) {
    WEFT_TRY(request.type, type_named(*options.dtype));
  }
  if (options.shard_gib > 0) request.max_file_gib = options.shard_gib;
  request.say = say;
  request.show = show_progress;
  WEFT_TRY(const RuntimeApi* runtime, load_runtime());
  Result<ConvertReport> report = runtime->convert(request);
  show_progress("");
  if (!report) {
    Error error = std::move(report).error();
    if (error.source.empty() && options.plan) error.source = *options.plan;
    return error;
  }
  if (!options.json) return to_text(*report);
  const Json json = {
      {"from", report->from},           {"to", report->to},           {"folder", report->folder.string()},
      {"weights", report->num_weights}, {"bytes", report->num_bytes}, {"copied", report->copied}};
  return json_output(json);
}

}  // namespace

void add_convert(Verbs& verbs) {
  auto options = std::make_shared<ConvertVerbOptions>();
  Verb& verb = verbs.emplace_back(
      Verb{.name = "convert",
           .summary = "Turn checkpoints into Hugging Face folders, and either into checkpoints of a plan"});
  verb.option("--from", options->from, "A run's folder, a checkpoint, or a Hugging Face folder").named("DIR");
  verb.option("--to", options->to, "The folder that is to be made").named("DIR");
  verb.option("--plan", options->plan, "Write a checkpoint of this plan (default: a Hugging Face folder)")
      .named("FILE");
  verb.option("--dtype", options->dtype,
              "bf16, fp16, fp32 or fp64 (default: the model's configuration's; of checkpoints the plan's)")
      .named("T");
  verb.option("--shard-size", options->shard_gib, "The most that a file of a Hugging Face folder holds (default: 5 GB)")
      .named("GIB")
      .within(1e-6, 1e6);
  verb.option("--weights-only", options->weights_only, "Leave the optimizer's states out of a checkpoint");
  verb.option("--adapter", options->adapter_only,
              "Write the run's adapters alone, as PEFT loads them (default: they are merged into the weights)");
  verb.option("--describe", options->describe, "List what such a folder holds").named("DIR");
  verb.option("--verify", options->verify, "Check every byte of a checkpoint first (default: the bytes that are used)");
  verb.option("--json", options->json, "Print one JSON object");
  verb.footer =
      "Examples:\n"
      "  weft convert --from run --to model\n"
      "  weft convert --from run --to adapter --adapter\n"
      "  weft convert --from model --to checkpoint --plan plan.json\n"
      "  weft convert --describe run --verify";
  verb.run = [options] { return run_convert(*options); };
}

}  // namespace weft
