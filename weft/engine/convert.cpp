#include "weft/engine/convert.h"

#include <algorithm>
#include <map>
#include <set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/paths.h"
#include "weft/base/text.h"
#include "weft/base/units.h"
#include "weft/base/utf8.h"
#include "weft/checkpoint/export_checkpoint.h"
#include "weft/checkpoint/new_folder.h"
#include "weft/checkpoint/own_parts.h"
#include "weft/checkpoint/rank_file.h"
#include "weft/checkpoint/stored_weights.h"
#include "weft/comm/echo/echo_world.h"
#include "weft/engine/resumed_run.h"
#include "weft/engine/run_claim.h"
#include "weft/engine/run_folder.h"
#include "weft/engine/run_model.h"
#include "weft/engine/run_start.h"
#include "weft/engine/same_model.h"
#include "weft/models/adapter_files.h"
#include "weft/models/tensor_type.h"
#include "weft/models/weight_list.h"
#include "weft/pipeline/training_rank.h"
#include "weft/spec/model_reader.h"
#include "weft/tensor/local_tensor.h"
#include "weft/weights/foreign_checkpoint.h"
#include "weft/weights/weight_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

/// Where weights come from.
struct Source {
  std::string text;
  Model model;
  Precision usual = Precision::kFp32;      ///< type where the configuration names none
  fs::path companions;                     ///< the folder with what goes with the weights; empty: there is none
  fs::path began_with;                     ///< what a run calls the folder of its first weights
  std::unique_ptr<Checkpoint> checkpoint;  ///< null: a Hugging Face folder
  std::unique_ptr<StoredWeights> stored;
  FillWeight fill;
};

fs::path without_final_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

/// The folder of the run among whose checkpoints a path lies; empty where it lies elsewhere.
fs::path run_around(const fs::path& path) {
  std::error_code ignored;
  for (fs::path inner = without_links(without_final_slash(path)); inner.has_relative_path();
       inner = inner.parent_path()) {
    const fs::path run = run_of(inner);
    if (run.empty()) continue;
    for (const fs::path& file : {RunFolder{run}.plan(), RunFolder{run}.metrics(), claim_file(run)})
      if (fs::exists(file, ignored)) return run;
  }
  return {};
}

/// The run whose folder of checkpoints is written into, which nobody else may write to meanwhile: a run removes what it
/// takes for left over there.
Result<std::optional<RunClaim>> hold_run_around(const ConvertRequest& request) {
  const fs::path run = run_around(request.to);
  if (run.empty()) return std::optional<RunClaim>();
  const std::string name = without_final_slash(request.to).filename().string();
  if (!request.plan && name.starts_with(kCheckpointPrefix)) {
    return Error{.source = "--to",
                 .problem = fmt::format("is {} in a run's folder of checkpoints, but {} folder is written",
                                        in_quotes(name), request.adapter_only ? "an adapter" : "a Hugging Face"),
                 .advice = "Give --plan for a checkpoint, or write elsewhere."};
  }
  auto claim = RunClaim::take(run);
  if (claim) return std::optional(*std::move(claim));
  Error error = std::move(claim).error();
  error.advice =
      "Give a folder outside of that run's checkpoints (weft train --resume takes one from anywhere), or wait until "
      "the run has ended.";
  return error;
}

Result<Source> open_source(const fs::path& folder) {
  Source source;
  if (is_model_folder(folder)) {
    WEFT_TRY(source.model, read_model_file(folder));
    WEFT_TRY(source.fill, fill_from_folder(folder, source.model));
    source.companions = folder;
    source.text = fmt::format("a Hugging Face folder of {}", source.model.name);
    return source;
  }
  std::error_code ignored;
  if (fs::exists(folder / "adapter_config.json", ignored)) {
    return Error{
        .source = folder.string(),
        .problem = "holds adapters alone, without the weights of their model",
        .advice = "Give the run that trained them. To train on, name the folder as adapter: in the configuration."};
  }
  WEFT_TRY(const std::optional<ForeignCheckpoint> foreign, find_foreign_checkpoint(folder));
  if (foreign) {
    return Error{.source = folder.string(),
                 .problem =
                     "is a checkpoint of Megatron-LM or MindSpeed, whose tensors are pickles, and these are not "
                     "read: reading one runs code from it",
                 .advice =
                     "Convert it to a Hugging Face folder with that system's own tool (docs/manual/import.md, "
                     "Weights). 'weft convert --describe' says what it was cut for."};
  }
  const auto found = find_checkpoint(folder);
  if (!found) {
    Error error = found.error();
    error.source = folder.string();
    error.problem = "holds neither a run's checkpoints, nor a checkpoint, nor a Hugging Face model";
    if (!fs::is_directory(folder, ignored))
      error.problem = fs::exists(folder, ignored) ? "is no folder" : "does not exist";
    error.advice =
        "Give the folder of a run, one of its checkpoints, or a folder with config.json and model.safetensors.";
    return error;
  }
  auto checkpoint = read_checkpoint(*found);
  if (!checkpoint) return with_good_checkpoint(std::move(checkpoint).error(), *found, kWayToConvert);
  source.checkpoint = std::make_unique<Checkpoint>(*std::move(checkpoint));
  source.stored = std::make_unique<StoredWeights>(*source.checkpoint);
  source.model = source.checkpoint->plan.model;
  source.usual = source.checkpoint->plan.precision.master;
  source.fill = [stored = source.stored.get()](const WeightPiece& piece, const ElementRange& elements,
                                               const AdamWState& to) { return stored->fill(piece, elements, to); };
  const Json& run = source.checkpoint->run;
  source.began_with = weights_folder_of(run);
  source.companions = source.began_with.is_absolute() ? source.began_with : text_folder_of(run);
  source.text = fmt::format("a checkpoint of step {} of {}, of {}", source.checkpoint->step, source.model.name,
                            counted(source.checkpoint->plan.world_size, "rank"));
  return source;
}

/// A weight that the model does not have would be left out without a word.
std::optional<Error> check_no_weight_too_many(const Source& source) {
  if (!source.checkpoint) return std::nullopt;  // folders are checked when they are opened
  const auto list = list_weights(source.model);
  if (!list) return list.error();
  std::set<std::string_view> known;
  for (const NamedShape& weight : list->weights) known.insert(weight.name);
  for (const std::string& name : source.stored->index().names()) {
    if (!known.contains(name)) return refuse_unknown_weight(source.stored->index(), name);
  }
  return std::nullopt;
}

/// Every byte, also of what a conversion does not use.
std::optional<Error> verify_source(const Source& source, const fs::path& folder) {
  if (!source.checkpoint) {
    return Error{
        .source = "--verify",
        .problem = fmt::format("is given, but {} is a Hugging Face folder, which has no checksums", folder.string()),
        .advice = "Leave it out: sizes and headers are checked always."};
  }
  if (auto error = verify_checkpoint(*source.checkpoint))
    return with_good_checkpoint(*std::move(error), source.checkpoint->folder, kWayToConvert);
  return std::nullopt;
}

int64_t bytes_in(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code ignored;
  for (const fs::path& path : paths_in(folder, ignored))
    if (fs::is_regular_file(path, ignored)) bytes += static_cast<int64_t>(fs::file_size(path, ignored));
  return bytes;
}

std::function<void(int64_t, int64_t)> shown(const ConvertRequest& request) {
  if (!request.show) return {};
  return [show = request.show](int64_t done, int64_t all) {
    show(fmt::format("writing weights: {} of {}", format_bytes(static_cast<double>(done)),
                     format_bytes(static_cast<double>(all))));
  };
}

/// What is asked for, or what is usual.
WeightType type_as_asked(WeightType usual, const std::optional<Precision>& type) {
  if (!type) return usual;
  switch (*type) {
    case Precision::kFp64:
      return WeightType::kF64;
    case Precision::kBf16:
      return WeightType::kBf16;
    case Precision::kFp16:
      return WeightType::kF16;
    default:
      return WeightType::kF32;
  }
}

Result<ConvertReport> to_adapter_folder(const ConvertRequest& request, const Source& source) {
  if (!has_adapters(source.model)) {
    return Error{.source = request.from.string(),
                 .problem = "has no adapters: all of its weights were trained",
                 .advice = "Leave --adapter out for a Hugging Face folder."};
  }
  WEFT_TRY(const WeightList list, list_weights(source.model));
  const auto value = [&](const std::string& name) -> Result<at::Tensor> {
    const auto found = std::find_if(list.weights.begin(), list.weights.end(),
                                    [&](const NamedShape& weight) { return weight.name == name; });
    const WeightPiece whole = whole_weight(name, found->shape);
    const at::ScalarType type = *tensor_type(type_as_asked(WeightType::kF32, request.type));
    const at::Tensor flat = at::empty({whole.num_elements()}, at::TensorOptions().dtype(type));
    if (auto error = source.fill(whole, {0, whole.num_elements()}, {.master = flat})) return *std::move(error);
    return flat.view(found->shape);
  };
  WEFT_TRY(NewFolder folder, NewFolder::begin(request.to));
  if (auto error = write_adapter_folder(folder.hidden(), source.model, source.companions.string(), value))
    return *error;
  if (auto error = folder.finish()) return *std::move(error);
  ConvertReport report{.from = source.text, .to = "adapters for PEFT", .folder = request.to};
  report.num_weights = 2 * std::ssize(adapter_scales(source.model));
  report.num_bytes = bytes_in(request.to);
  return report;
}

Result<ConvertReport> to_model_folder(const ConvertRequest& request, const Source& source) {
  // No other program has code for a user's own, and it has no text files.
  const bool is_program = source.model.numbers.program.has_value();
  ConvertReport report{
      .from = source.text, .to = is_program ? "weights of a program" : "a Hugging Face folder", .folder = request.to};
  ExportOptions options{.type = request.type, .progress = shown(request)};
  constexpr double kGib = 1024.0 * 1024 * 1024;
  if (request.max_file_gib) options.max_file_bytes = static_cast<int64_t>(*request.max_file_gib * kGib);
  std::error_code ignored;
  const auto note = [&](const std::string& text) {
    if (request.say && !is_program) request.say("note: " + text);
  };
  if (!source.companions.empty() && fs::is_directory(source.companions, ignored)) {
    options.companions = source.companions;
    report.copied = companion_files(source.companions);
    if (const std::vector<std::string> code = code_files(source.companions); !code.empty())
      note(fmt::format("{} in {} {} not copied: where transformers is to trust the model's own code, copy {} yourself",
                       fmt::join(code, ", "), source.companions.string(), code.size() == 1 ? "is" : "are",
                       code.size() == 1 ? "it" : "them"));
  } else if (!source.companions.empty()) {
    note(fmt::format("{}, where the run began, is not there: copy tokenizer and processor yourself",
                     source.companions.string()));
  } else if (!source.began_with.empty()) {
    note(
        fmt::format("the run began with {}, and its record does not say in which folder that is: copy tokenizer and "
                    "processor yourself",
                    in_quotes(source.began_with.string())));
  } else {
    note("the run began with fresh weights, so there is no tokenizer or processor to copy");
  }
  if (!source.model.config.contains("architectures"))
    note("the model's configuration names no architectures, by which vLLM finds its code: add them to config.json");
  if (auto error = export_weights(source.fill, source.model, source.usual, request.to, options)) return *error;
  WEFT_TRY(const WeightList list, list_weights(source.model));
  report.num_weights = std::ssize(list.weights);
  report.num_bytes = bytes_in(request.to);
  return report;
}

/// What a rank of a plan would write, without having any of it: its tensors have sizes and types alone.
Result<std::vector<OwnedPiece>> pieces_of_rank(const Plan& plan, int64_t rank, std::vector<ParameterPtr>& keeps) {
  EchoWorld echo(rank, plan.world_size);
  WEFT_TRY(const std::unique_ptr<TrainingRank> made,
           TrainingRank::create(echo.world(), plan, {.seed = std::nullopt, .device = at::kMeta}));
  keeps = made->parameters();
  std::vector<OwnedPiece> pieces;
  for (const StageOptimizer* optimizer : made->optimizers()) {
    for (OwnedPiece& piece : pieces_to_write(*optimizer)) pieces.push_back(std::move(piece));
  }
  return pieces;
}

/// Of the weights that have moments: their own count of updates where it differs from the checkpoint's, or -1.
std::map<std::string, int64_t> trained_weights(const Source& source) {
  std::map<std::string, int64_t> updates;
  if (!source.checkpoint) return updates;
  for (const CheckpointFile& file : source.checkpoint->files) {
    for (const StoredPart& part : file.parts)
      if (part.is_trained) updates.emplace(part.piece.name, part.updates);
  }
  return updates;
}

/// `trained` are the weights whose moments are written, where the plan trains them, too.
Result<CheckpointFile> write_rank(const ConvertRequest& request, const Source& source,
                                  const std::map<std::string, int64_t>& trained, int64_t rank, const fs::path& folder) {
  std::vector<ParameterPtr> keeps;
  WEFT_TRY(const std::vector<OwnedPiece> pieces, pieces_of_rank(*request.plan, rank, keeps));
  RankContent content;
  for (const OwnedPiece& piece : pieces) {
    const auto updates = trained.find(piece.piece->name);
    const bool has_moments = updates != trained.end() && piece.state.moment1.defined();
    StoredPart part{.piece = *piece.piece, .elements = piece.elements, .tensor = "", .is_trained = has_moments};
    if (has_moments) part.updates = updates->second;
    const auto type_of = [&](const at::Tensor& held) {
      return type_as_asked(*weight_type(held.scalar_type()), request.type);
    };
    const WeightType value = type_of(piece.state.master);
    content.add(std::move(part), value, has_moments ? type_of(piece.state.moment1) : value);
  }
  if (content.parts.empty()) return CheckpointFile{.rank = rank};
  std::map<std::string, const StoredPart*> parts;
  for (const StoredPart& part : content.parts) {
    for (const char* what : {kValueName, kMoment1Name, kMoment2Name}) parts[part.tensor + what] = &part;
  }
  at::Tensor kept;  // its bytes are being written
  const auto bytes = [&](const WeightInfo& info) -> Result<std::span<const std::byte>> {
    const StoredPart& part = *parts.at(info.name);
    kept = at::Tensor();
    kept = at::empty({part.elements.size()}, at::TensorOptions().dtype(*tensor_type(info.type)));
    AdamWState to;
    (info.name.ends_with(kMoment1Name)   ? to.moment1
     : info.name.ends_with(kMoment2Name) ? to.moment2
                                         : to.master) = kept;
    if (auto error = source.fill(part.piece, part.elements, to)) return *std::move(error);
    return std::span(static_cast<const std::byte*>(kept.data_ptr()), kept.nbytes());
  };
  return write_rank_file(folder, rank, content, kChunkBytes, bytes);
}

/// A run takes a checkpoint for what its name says.
std::optional<Error> find_other_step(const fs::path& to, int64_t step) {
  const fs::path folder = without_final_slash(to);
  const std::string name = folder.filename().string();
  if (run_around(folder).empty() || !name.starts_with(kCheckpointPrefix) || name == checkpoint_name(step))
    return std::nullopt;
  return Error{.source = "--to",
               .problem = fmt::format("is {} in a run's folder of checkpoints, but what is converted is of step {}",
                                      in_quotes(name), step),
               .advice = fmt::format("Name it {}, or write elsewhere.", checkpoint_name(step))};
}

Result<ConvertReport> to_checkpoint(const ConvertRequest& request, const Source& source) {
  const Plan& plan = *request.plan;
  if (auto error = source.checkpoint ? check_same_model(source.model, source.checkpoint->folder.string(), plan.model)
                                     : check_same_model(request.from, plan.model))
    return *std::move(error);
  Checkpoint made{.folder = {}, .plan = plan, .run = Json::object(), .files = {}};
  made.first_batch_samples = plan.workload.global_batch_samples;
  if (source.checkpoint) {
    made.step = source.checkpoint->step;
    made.updates = source.checkpoint->updates;
    made.samples = source.checkpoint->samples;
    made.first_batch_samples = source.checkpoint->first_batch_samples;
    made.run = source.checkpoint->run;
  } else {
    const std::string from = without_final_slash(whole_path(request.from)).string();
    if (!is_valid_utf8(from)) {
      return Error{.source = request.from.string(),
                   .problem = fmt::format("is {}, which is not UTF-8: a checkpoint could not name it", in_quotes(from)),
                   .advice = "Rename the folder."};
    }
    made.run["weights"] = from;
  }
  if (auto error = find_other_step(request.to, made.step)) return *std::move(error);
  std::map<std::string, int64_t> trained;
  if (!request.weights_only) trained = trained_weights(source);
  if (source.checkpoint && !request.weights_only && trained.empty() && request.say)
    request.say("note: the source has no optimizer states, so there are none to write: all moments begin anew");
  WEFT_TRY(NewFolder folder, NewFolder::begin(request.to));
  for (int64_t rank = 0; rank < plan.world_size; ++rank) {
    if (request.show) request.show(fmt::format("writing rank {} of {}", rank + 1, plan.world_size));
    WEFT_TRY(CheckpointFile file, write_rank(request, source, trained, rank, folder.hidden()));
    if (!file.parts.empty()) made.files.push_back(std::move(file));
  }
  if (auto error = write_checkpoint_json(folder.hidden(), made)) return *std::move(error);
  if (auto error = folder.finish()) return *std::move(error);
  ConvertReport report{
      .from = source.text,
      .to = fmt::format("a checkpoint of step {} for {}{}", made.step, counted(plan.world_size, "rank"),
                        trained.empty() ? ", without optimizer states" : ""),
      .folder = request.to};
  WEFT_TRY(const WeightList list, list_weights(source.model));
  report.num_weights = std::ssize(list.weights);
  report.num_bytes = bytes_in(request.to);
  return report;
}

}  // namespace

Result<ConvertReport> convert(const ConvertRequest& request) {
  const at::NoGradGuard no_graph;
  WEFT_TRY(const std::optional<RunClaim> held, hold_run_around(request));
  WEFT_TRY(const Source source, open_source(request.from));
  if (auto error = check_no_weight_too_many(source)) return *std::move(error);
  if (request.verify) {
    if (auto error = verify_source(source, request.from)) return *std::move(error);
  }
  auto report = request.plan           ? to_checkpoint(request, source)
                : request.adapter_only ? to_adapter_folder(request, source)
                                       : to_model_folder(request, source);
  if (report || !source.checkpoint || !report.error().source.starts_with(source.checkpoint->folder.string()))
    return report;
  return with_good_checkpoint(std::move(report).error(), source.checkpoint->folder, kWayToConvert);
}

namespace {

/// What the names inside another system's checkpoint say.
FolderDescription describe_foreign(const ForeignCheckpoint& checkpoint) {
  const bool is_cut = checkpoint.form == ForeignCheckpoint::Form::kTorch;
  FolderDescription description{
      .text =
          fmt::format("a checkpoint of Megatron-LM or MindSpeed, iteration {}, {}\n", printable(checkpoint.iteration),
                      is_cut ? "cut for " + degrees_text(checkpoint)
                             : "in files of torch.distributed.checkpoint, which fit any degrees")};
  description.text += fmt::format("folder      {}\n", checkpoint.folder.string());
  description.text += fmt::format("files       {} in {}\n", format_bytes(static_cast<double>(checkpoint.num_bytes)),
                                  counted(checkpoint.num_files, "file"));
  for (const std::string& name : checkpoint.missing) description.text += fmt::format("missing     {}\n", name);
  if (const int64_t others = checkpoint.num_missing - std::ssize(checkpoint.missing); others > 0)
    description.text += fmt::format("            and {} more\n", with_commas(others));
  description.text +=
      "tensors     not read: they are pickles, and reading one runs code from it. Convert it to a Hugging Face folder\n"
      "            with that system's own tool (docs/manual/import.md, Weights)\n";
  description.json = {{"kind", "foreign"},
                      {"form", is_cut ? "torch" : "distributed"},
                      {"folder", checkpoint.folder.string()},
                      {"iteration", checkpoint.iteration},
                      {"degrees", checkpoint.degrees},
                      {"missing", checkpoint.missing},
                      {"num_missing", checkpoint.num_missing},
                      {"files", checkpoint.num_files},
                      {"bytes", checkpoint.num_bytes}};
  return description;
}

}  // namespace

Result<FolderDescription> describe_folder(const fs::path& folder, bool verify) {
  WEFT_TRY(const std::optional<ForeignCheckpoint> foreign, find_foreign_checkpoint(folder));
  if (foreign && !verify) return describe_foreign(*foreign);
  WEFT_TRY(const Source source, open_source(folder));
  if (verify) {
    if (auto error = verify_source(source, folder)) return *std::move(error);
  }
  FolderDescription description{.text = source.text + "\n"};
  std::string& text = description.text;
  Json& json = description.json;
  json = {{"kind", source.checkpoint ? "checkpoint" : "model"}, {"model", source.model.name}};
  Json listed = Json::array();
  if (!source.checkpoint) {
    WEFT_TRY(const WeightFolder weights, WeightFolder::open(folder));
    text +=
        fmt::format("weights     {}, {} in {}\n", counted(weights.num_weights(), "tensor"),
                    format_bytes(static_cast<double>(bytes_in(folder))), counted(std::ssize(weights.files()), "file"));
    for (const SafetensorsFile& file : weights.files()) {
      for (const WeightEntry& entry : file.entries()) {
        const std::string name = file.path().filename().string(), type(name_of(entry.info.type));
        text += fmt::format("  {} {} {}, {}\n", printable(entry.info.name), shape_text(entry.info.shape), type,
                            printable(name));
        listed.push_back({{"name", entry.info.name}, {"shape", entry.info.shape}, {"type", type}, {"file", name}});
      }
    }
    json["weights"] = std::move(listed);
    return description;
  }
  const Checkpoint& checkpoint = *source.checkpoint;
  json["folder"] = checkpoint.folder.string();
  json["step"] = checkpoint.step;
  json["samples"] = checkpoint.samples;
  json["updates"] = checkpoint.updates;
  json["world_size"] = checkpoint.plan.world_size;
  if (verify) json["verified"] = true;
  text += fmt::format("folder      {}\n", checkpoint.folder.string());
  if (verify) text += "verified    every byte is as it was written\n";
  text += fmt::format("trained     {}, {}, {} of the optimizer\n", counted(checkpoint.step, "step"),
                      counted(checkpoint.samples, "sample"), counted(checkpoint.updates, "update"));
  struct Weight {
    std::vector<int64_t> shape;
    bool is_trained = false;
    int64_t updates = 0;
    int64_t num_parts = 0;
  };
  std::map<std::string, Weight> weights;
  int64_t bytes = 0;
  for (const CheckpointFile& file : checkpoint.files) {
    bytes += file.num_bytes;
    for (const StoredPart& part : file.parts) {
      Weight& weight = weights[part.piece.name];
      weight.shape = part.piece.shape;
      weight.is_trained = part.is_trained;
      weight.updates = part.updates >= 0 ? part.updates : checkpoint.updates;
      ++weight.num_parts;
    }
  }
  text += fmt::format("files       {} in {}\n", format_bytes(static_cast<double>(bytes)),
                      counted(std::ssize(checkpoint.files), "file"));
  for (const CheckpointFile& file : checkpoint.files)
    text += fmt::format("  {} {}, {}\n", checkpoint_file_name(file.rank),
                        format_bytes(static_cast<double>(file.num_bytes)), counted(std::ssize(file.parts), "part"));
  text += fmt::format("weights     {}\n", std::ssize(weights));
  for (const auto& [name, weight] : weights) {
    text += fmt::format("  {} {}, {}, {}\n", printable(name), shape_text(weight.shape),
                        weight.is_trained ? "moments of " + counted(weight.updates, "update") : "no moments",
                        counted(weight.num_parts, "part"));
    listed.push_back({{"name", name},
                      {"shape", weight.shape},
                      {"updates", weight.is_trained ? Json(weight.updates) : Json()},
                      {"parts", weight.num_parts}});
  }
  json["weights"] = std::move(listed);
  return description;
}

}  // namespace weft
