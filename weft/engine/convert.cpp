#include "weft/engine/convert.h"

#include <algorithm>
#include <map>
#include <set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/text.h"
#include "weft/base/units.h"
#include "weft/checkpoint/export_checkpoint.h"
#include "weft/checkpoint/new_folder.h"
#include "weft/checkpoint/own_parts.h"
#include "weft/checkpoint/rank_file.h"
#include "weft/checkpoint/stored_weights.h"
#include "weft/comm/echo/echo_world.h"
#include "weft/engine/resumed_run.h"
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
  std::unique_ptr<Checkpoint> checkpoint;  ///< null: a Hugging Face folder
  std::unique_ptr<StoredWeights> stored;
  FillWeight fill;
};

/// What to do with a checkpoint that is good where another is not.
constexpr std::string_view kOtherSource = "give it with --from {}";

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
  if (!checkpoint) return with_good_checkpoint(std::move(checkpoint).error(), *found, kOtherSource);
  source.checkpoint = std::make_unique<Checkpoint>(*std::move(checkpoint));
  source.stored = std::make_unique<StoredWeights>(*source.checkpoint);
  source.model = source.checkpoint->plan.model;
  source.usual = source.checkpoint->plan.precision.master;
  source.fill = [stored = source.stored.get()](const WeightPiece& piece, const ElementRange& elements,
                                               const AdamWState& to) { return stored->fill(piece, elements, to); };
  const Json& run = source.checkpoint->run;
  if (run.contains("weights") && run["weights"].is_string()) source.companions = run["weights"].get<std::string>();
  if (source.companions.empty()) source.companions = text_folder_of(run);
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
    return with_good_checkpoint(*std::move(error), source.checkpoint->folder, kOtherSource);
  return std::nullopt;
}

int64_t bytes_in(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.is_regular_file(ignored)) bytes += static_cast<int64_t>(entry.file_size(ignored));
  return bytes;
}

std::function<void(int64_t, int64_t)> shown(const ConvertRequest& request) {
  if (!request.show) return {};
  return [show = request.show](int64_t done, int64_t all) {
    show(fmt::format("writing weights: {} of {}", format_bytes(static_cast<double>(done)),
                     format_bytes(static_cast<double>(all))));
  };
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
    const bool is_double = request.type == Precision::kFp64;
    const at::Tensor flat =
        at::empty({whole.num_elements()}, at::TensorOptions().dtype(is_double ? at::kDouble : at::kFloat));
    if (auto error = source.fill(whole, {0, whole.num_elements()}, {.master = flat})) return *std::move(error);
    const at::Tensor shaped = flat.view(found->shape);
    return request.type == Precision::kBf16 ? shaped.to(at::kBFloat16) : shaped;
  };
  if (auto error = write_adapter_folder(request.to, source.model, source.companions.string(), value)) return *error;
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
  if (!source.companions.empty() && fs::is_directory(source.companions, ignored)) {
    options.companions = source.companions;
    report.copied = companion_files(source.companions);
  } else if (request.say && !is_program) {
    request.say(source.companions.empty()
                    ? "note: the run began with fresh weights, so there is no tokenizer or processor to copy"
                    : fmt::format("note: {}, where the run began, is not there: copy tokenizer and processor yourself",
                                  source.companions.string()));
  }
  if (!source.model.config.contains("architectures") && request.say && !is_program)
    request.say(
        "note: the model's configuration names no architectures, by which vLLM finds its code: add them to "
        "config.json");
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

/// Types as they are stored, by the plan or as asked for.
WeightType stored_type(const at::Tensor& tensor, const std::optional<Precision>& type) {
  if (!type) return *weight_type(tensor.scalar_type());
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

/// A weight's own count where it differs from the checkpoint's, or -1.
int64_t updates_of_weight(const Source& source, const std::string& name) {
  for (const CheckpointFile& file : source.checkpoint->files) {
    for (const StoredPart& part : file.parts)
      if (part.piece.name == name && part.is_trained) return part.updates;
  }
  return 0;
}

Result<CheckpointFile> write_rank(const ConvertRequest& request, const Source& source, int64_t rank,
                                  const fs::path& folder) {
  std::vector<ParameterPtr> keeps;
  WEFT_TRY(const std::vector<OwnedPiece> pieces, pieces_of_rank(*request.plan, rank, keeps));
  const bool has_moments = source.checkpoint && !request.weights_only;
  RankContent content;
  std::map<std::string, int64_t> counts;
  for (const OwnedPiece& piece : pieces) {
    const std::string& name = piece.piece->name;
    StoredPart part{.piece = *piece.piece,
                    .elements = piece.elements,
                    .tensor = "",
                    .is_trained = has_moments && piece.state.moment1.defined()};
    if (part.is_trained) {
      if (!counts.contains(name)) counts[name] = updates_of_weight(source, name);
      part.updates = counts[name];
    }
    const WeightType value = stored_type(piece.state.master, request.type);
    content.add(std::move(part), value,
                piece.state.moment1.defined() ? stored_type(piece.state.moment1, request.type) : value);
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
    made.run["weights"] = fs::absolute(request.from).string();
  }
  WEFT_TRY(NewFolder folder, NewFolder::begin(request.to));
  for (int64_t rank = 0; rank < plan.world_size; ++rank) {
    if (request.show) request.show(fmt::format("writing rank {} of {}", rank + 1, plan.world_size));
    WEFT_TRY(CheckpointFile file, write_rank(request, source, rank, folder.hidden()));
    if (!file.parts.empty()) made.files.push_back(std::move(file));
  }
  if (auto error = write_checkpoint_json(folder.hidden(), made)) return *std::move(error);
  if (auto error = folder.finish()) return *std::move(error);
  ConvertReport report{
      .from = source.text,
      .to = fmt::format("a checkpoint of step {} for {}{}", made.step, counted(plan.world_size, "rank"),
                        source.checkpoint && !request.weights_only ? "" : ", without optimizer states"),
      .folder = request.to};
  WEFT_TRY(const WeightList list, list_weights(source.model));
  report.num_weights = std::ssize(list.weights);
  report.num_bytes = bytes_in(request.to);
  return report;
}

}  // namespace

Result<ConvertReport> convert(const ConvertRequest& request) {
  const at::NoGradGuard no_graph;
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
  return with_good_checkpoint(std::move(report).error(), source.checkpoint->folder, kOtherSource);
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
  description.text +=
      "tensors     not read: they are pickles, and reading one runs code from it. Convert it to a Hugging Face folder\n"
      "            with that system's own tool (docs/manual/import.md, Weights)\n";
  description.json = {{"kind", "foreign"},
                      {"form", is_cut ? "torch" : "distributed"},
                      {"folder", checkpoint.folder.string()},
                      {"iteration", checkpoint.iteration},
                      {"degrees", checkpoint.degrees},
                      {"missing", checkpoint.missing},
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
        text += fmt::format("  {} {} {}, {}\n", printable(entry.info.name), shape_text(entry.info.shape), type, name);
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
