#include "weft/engine/train_config.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/file_kind.h"
#include "weft/base/paths.h"
#include "weft/base/text.h"
#include "weft/base/utf8.h"
#include "weft/data/conversations/conversation_sets.h"
#include "weft/meaning/training_ranges.h"

namespace weft {
namespace {

constexpr IntegerRange kWarmupRange{0, kStepRange.max};
constexpr NumberRange kFractions{0, 1};

std::span<const std::string> device_names() {
  static const std::array<std::string, 2> names = {"cpu", "cuda"};
  return names;
}

std::span<const std::string> schedule_names() {
  static const std::array<std::string, 3> names = {"constant", "linear", "cosine"};
  return names;
}

std::span<const std::string> split_names() {
  static const std::array<std::string, 2> names = {"held_out", "trained"};
  return names;
}

constexpr const char* kSynthetic = "synthetic";

Result<DataSettings> read_settings(const Json& given, const std::string& source, const std::string& path) {
  if (given.is_string()) return read_data_settings_file(given.get<std::string>());
  auto settings = read_data_settings({.source = source, .root = given}, "");
  if (settings) return settings;
  Error error = std::move(settings).error();
  error.field = error.field.empty() ? path : path + "." + error.field;
  return error;
}

/// `inputs` of data: for each input of a program a file or folder, or a mapping with the tensor's name in it, too.
Result<std::optional<TrainData>> read_inputs(const Json& given, const std::string& path, const TrainConfig& config) {
  Findings findings(config.source);
  const Document document{.source = config.source, .root = given};  // fields refer to it
  Fields fields(document, findings);
  TrainData data{.settings = {.source = config.source}, .model = {}, .are_named = true};
  data.settings.held_out_share = fields.number_or("held_out_share", 0, {0, 0.999});
  const Json* inputs = fields.raw("inputs");
  fields.reject_unknown();
  const auto wrong = [&](const std::string& field, std::string problem) {
    return Error{.source = config.source,
                 .field = fmt::format("{}.{}", path, field),
                 .problem = std::move(problem),
                 .advice = "Give a safetensors file or a folder of them, or {file: train.safetensors, tensor: ids}."};
  };
  if (findings.first()) {
    Error error = *findings.first();
    error.field = path + "." + error.field;
    return error;
  }
  if (!inputs->is_object())
    return wrong("inputs",
                 fmt::format("is {}, a mapping with the program's inputs is needed", describe_value(*inputs)));
  for (const auto& [name, file] : inputs->items()) {
    NamedFile own{.input = name, .path = {}, .tensor = name};
    const std::string field = "inputs." + name;
    const bool is_mapping = file.is_object() && file.contains("file") && file["file"].is_string();
    if (!file.is_string() && !is_mapping)
      return wrong(field, fmt::format("is {}, a file is needed", describe_value(file)));
    own.path = (is_mapping ? file["file"] : file).get<std::string>();
    if (is_mapping) {
      for (const auto& [key, value] : file.items()) {
        if (key == "file") continue;
        if (key != "tensor" || !value.is_string())
          return wrong(field, fmt::format("has {}, which is unknown", in_quotes(key)));
        own.tensor = value.get<std::string>();
      }
    }
    data.inputs.push_back(std::move(own));
  }
  return std::optional(std::move(data));
}

/// `data`: synthetic, a file, or a mapping with the file as its `settings` or with these settings themselves. `usual`
/// is the model's folder where none is named.
Result<std::optional<TrainData>> read_data(const Json* given, const std::string& path, const TrainConfig& config,
                                           const std::filesystem::path& usual) {
  if (given == nullptr || *given == kSynthetic) return std::optional<TrainData>();
  const auto wrong = [&](std::string field, std::string problem, std::string advice) {
    return Error{
        .source = config.source, .field = std::move(field), .problem = std::move(problem), .advice = std::move(advice)};
  };
  if (!given->is_string() && !given->is_object()) {
    return wrong(path, fmt::format("is {}, synthetic, a file or a mapping is needed", describe_value(*given)),
                 "Give a file of conversations, or of data settings.");
  }
  if (given->is_object() && given->contains("inputs")) return read_inputs(*given, path, config);
  TrainData data{.settings = {}, .model = usual};
  Json settings = *given;
  if (settings.is_object() && settings.contains("model")) {
    if (!settings["model"].is_string())
      return wrong(path + ".model", fmt::format("is {}, a folder is needed", describe_value(settings["model"])),
                   "Give the model's folder.");
    data.model = settings["model"].get<std::string>();
    settings.erase("model");
  }
  if (settings.is_object() && settings.contains("settings")) {
    if (!settings["settings"].is_string() || settings.size() > 1) {
      return wrong(path + ".settings", "is to be a file, with nothing but model beside it",
                   "Give a file, or its settings here.");
    }
    settings = Json(settings["settings"]);
  }
  WEFT_TRY(data.settings, read_settings(settings, config.source, path));
  if (std::error_code ignored; data.model.empty() || !std::filesystem::is_directory(data.model, ignored)) {
    return wrong(path + ".model",
                 data.model.empty() ? "is missing, and so is weights: nothing says which tokenizer to use"
                                    : fmt::format("is {}, a folder is needed", in_quotes(data.model.string())),
                 "Give the folder with the model's tokenizer.json, chat template and preprocessor_config.json.");
  }
  return std::optional(std::move(data));
}

/// For who reads it in another folder.
std::string absolute_text(const std::filesystem::path& path) {
  const std::filesystem::path whole = whole_path(path.empty() ? "." : path);
  return (whole.has_filename() ? whole : whole.parent_path()).string();
}

Json to_json(const TrainData& data) {
  if (!data.inputs.empty()) {
    Json json = {{"held_out_share", data.settings.held_out_share}};
    for (const NamedFile& file : data.inputs)
      json["inputs"][file.input] = {{"file", absolute_text(file.path)}, {"tensor", file.tensor}};
    return json;
  }
  Json json = to_json(data.settings);
  json["model"] = absolute_text(data.model);
  for (Json& set : json["sets"]) {
    for (const char* key : {"file", "folder"}) set[key] = absolute_text(set[key].get<std::string>());
  }
  return json;
}

void read_optimizer(Fields fields, TrainConfig& config) {
  const AdamWSettings usual;
  config.learning_rate.peak = fields.number("learning_rate", kLearningRateRange);
  config.adamw.beta1 = fields.number_or("beta1", usual.beta1, kBeta1Range);
  config.adamw.beta2 = fields.number_or("beta2", usual.beta2, kBeta2Range);
  config.adamw.epsilon = fields.number_or("epsilon", usual.epsilon, kEpsilonRange);
  config.adamw.weight_decay = fields.number_or("weight_decay", usual.weight_decay, kWeightDecayRange);
  config.max_gradient_norm = fields.number_or("max_gradient_norm", config.max_gradient_norm, kGradientNormRange);
  if (fields.has("rules")) {
    for (Fields& given : fields.objects("rules")) {
      WeightRule rule{.weights = given.text("weights"), .learning_rate = {}, .weight_decay = {}};
      if (given.has("learning_rate")) rule.learning_rate = given.number("learning_rate", kLearningRateRange);
      if (given.has("weight_decay")) rule.weight_decay = given.number("weight_decay", kWeightDecayRange);
      if (rule == WeightRule{.weights = rule.weights, .learning_rate = {}, .weight_decay = {}})
        given.complain("weights", "has neither a learning_rate nor a weight_decay beside it", "Give one of them.");
      if (rule.learning_rate && config.learning_rate.peak == 0)
        given.complain("learning_rate", "follows the schedule of optimizer.learning_rate, which is 0",
                       "Give that above 0, and rules for the weights that are to have none.");
      given.reject_unknown();
      config.weight_rules.push_back(std::move(rule));
    }
  }
  fields.raw("rules");
  fields.reject_unknown();
}

void read_loss(Fields fields, TrainConfig& config) {
  config.loss.label_smoothing = fields.number_or("label_smoothing", 0, {0, 0.999});
  config.loss.z_loss = fields.number_or("z_loss", 0, {0, 1e3});
  fields.reject_unknown();
}

/// `data` are read when the rest is known to be right.
void read_evaluation(Fields fields, TrainConfig& config) {
  TrainConfig::Evaluation& evaluation = config.evaluation;
  evaluation.interval_steps = fields.integer_or("interval_steps", 0, kStepRange);
  evaluation.split = static_cast<TrainConfig::Evaluation::Split>(fields.choice_or("split", 0, split_names()));
  evaluation.patience = fields.integer_or("patience", 0, kStepRange);
  evaluation.min_improvement = fields.number_or("min_improvement", 0, {0, 1e6});
  if (fields.has("data") && fields.has("split"))
    fields.complain("split", "is of the data that are trained on, but there are data beside it", "Give one of them.");
  if (evaluation.patience > 0 && evaluation.interval_steps == 0)
    fields.complain("patience", "counts evaluations, but there are none while training", "Give interval_steps.");
  if (evaluation.min_improvement > 0 && evaluation.interval_steps == 0)
    fields.complain("min_improvement", "compares evaluations, but there are none while training",
                    "Give interval_steps.");
  fields.raw("data");
  fields.reject_unknown();
}

void read_schedule(Fields fields, TrainConfig& config) {
  LearningRate& rate = config.learning_rate;
  rate.kind =
      static_cast<LearningRate::Kind>(fields.choice_or("kind", static_cast<size_t>(rate.kind), schedule_names()));
  rate.warmup_steps = fields.integer_or("warmup_steps", rate.warmup_steps, kWarmupRange);
  rate.end_fraction = fields.number_or("end_fraction", rate.end_fraction, kFractions);
  fields.reject_unknown();
}

void read_checkpoints(Fields fields, TrainConfig& config) {
  config.checkpoints.interval_steps = fields.integer("interval_steps", kStepRange);
  config.checkpoints.keep = fields.integer_or("keep", 0, kKeptRange);
  config.checkpoints.keep_best = fields.flag_or("keep_best", false);
  if (config.checkpoints.keep_best && config.evaluation.interval_steps == 0)
    fields.complain("keep_best", "is true, but nothing says which checkpoint is the best: there is no evaluation",
                    "Add one: 'evaluation: {interval_steps: 100}'.");
  fields.reject_unknown();
}

/// How long a run is: steps, or epochs of data that end.
void read_length(Fields& fields, TrainConfig& config) {
  if (fields.has("epochs") && fields.has("steps"))
    fields.complain("epochs", "and steps are both given", "Give one of them.");
  if (!fields.has("epochs")) {
    config.steps = fields.integer("steps", kStepRange);
    return;
  }
  config.epochs = fields.number("epochs", {1e-6, 1e6});
  const Json* data = fields.raw("data");
  if (data == nullptr || *data == kSynthetic)
    fields.complain("epochs", "are of data that end, but synthetic samples do not", "Give steps, or data.");
}

std::optional<Error> find_long_warmup(const TrainConfig& config) {
  const int64_t warmup = config.learning_rate.warmup_steps;
  if (warmup == 0 || config.steps == 0 || warmup < config.steps) return std::nullopt;
  return Error{.source = config.source,
               .field = "learning_rate_schedule",
               .problem = fmt::format("has {} warmup_steps, but the run has only {} steps", warmup, config.steps),
               .advice = "Warm up for fewer steps."};
}

std::optional<Error> find_nothing_held_out(const TrainConfig& config) {
  const TrainConfig::Evaluation& evaluation = config.evaluation;
  if (evaluation.interval_steps == 0 || evaluation.data || !config.data) return std::nullopt;
  if (evaluation.split == TrainConfig::Evaluation::Split::kTrained || config.data->settings.held_out_share > 0)
    return std::nullopt;
  return Error{.source = config.source,
               .field = "evaluation.split",
               .problem = "is held_out, but the data hold no sample out",
               .advice = "Give them a held_out_share, like 0.01, or give evaluation.data, or split: trained."};
}

/// The first text that a run could not write down: relative paths get the folder in front in which the run began.
std::optional<Error> find_path_not_utf8(const Json& json, const std::string& field, const TrainConfig& config) {
  if (json.is_string()) {
    const auto& text = json.get_ref<const std::string&>();
    if (is_valid_utf8(text)) return std::nullopt;
    return Error{.source = config.source,
                 .field = field,
                 .problem = fmt::format("is {}, which is not UTF-8: a run could not write it down", in_quotes(text)),
                 .advice = "Rename the folder."};
  }
  if (!json.is_structured()) return std::nullopt;
  for (const auto& [key, value] : json.items()) {
    const std::string inner = json.is_array() ? fmt::format("{}[{}]", field, key)
                              : field.empty() ? key
                                              : field + "." + key;
    if (auto error = find_path_not_utf8(value, inner, config)) return error;
  }
  return std::nullopt;
}

}  // namespace

Result<TrainConfig> read_train_config(const Document& document) {
  if (auto error = find_wrong_kind(document, FileKind::kTraining)) return *std::move(error);
  Findings findings(document.source);
  Fields fields(document, findings);
  if (document.root.is_object() && !fields.has("optimizer")) {
    fields.complain("optimizer", "is missing, a mapping with a learning_rate is needed",
                    "Add it: 'optimizer: {learning_rate: 1.0e-4}'.");
  }
  TrainConfig config{.source = document.source};
  read_length(fields, config);
  config.seed = static_cast<uint64_t>(fields.integer_or("seed", 0, {0, INT64_MAX}));
  config.device = device_names()[fields.choice_or("device", 0, device_names())];
  config.is_deterministic = fields.flag_or("deterministic", false);
  config.threads_per_rank = fields.integer_or("threads_per_rank", 0, {1, 1024});
  config.weights = fields.text_or("weights", "");
  config.adapter = fields.text_or("adapter", "");
  config.run_folder = fields.text_or("run_folder", "");
  const Json* data = fields.raw("data");
  config.data_threads = fields.integer_or("data_threads", config.data_threads, {1, 256});
  read_optimizer(fields.object("optimizer"), config);
  config.learning_rate.total_steps = config.steps;
  config.learning_rate.end_fraction = 0.1;
  if (fields.has("learning_rate_schedule")) read_schedule(fields.object("learning_rate_schedule"), config);
  if (fields.has("loss")) read_loss(fields.object("loss"), config);
  const Json* evaluated = nullptr;
  if (fields.has("evaluation")) {
    read_evaluation(fields.object("evaluation"), config);
    const Json& section = *fields.raw("evaluation");
    if (section.is_object() && section.contains("data")) evaluated = &section["data"];
  }
  if (fields.has("checkpoints")) read_checkpoints(fields.object("checkpoints"), config);
  config.on_metrics = fields.text_or("on_metrics", "");
  config.evaluation_batches = fields.integer_or("evaluation_batches", config.evaluation_batches, {1, 1'000'000});
  // What is trained is the plan's to say, with these rules added before it is checked.
  for (const char* key : {"learning_rate_schedule", "checkpoints", "evaluation", "loss", "trainable"}) fields.raw(key);
  fields.reject_unknown();
  if (findings.first()) return *findings.first();
  if (auto error = find_long_warmup(config)) return *std::move(error);
  WEFT_TRY(config.data, read_data(data, "data", config, config.weights));
  WEFT_TRY(config.evaluation.data,
           read_data(evaluated, "evaluation.data", config, config.data ? config.data->model : config.weights));
  if (auto error = find_nothing_held_out(config)) return *std::move(error);
  if (auto error = find_path_not_utf8(to_json(config), "", config)) return *std::move(error);
  return config;
}

Result<TrainConfig> with_steps(TrainConfig config, int64_t num_samples, int64_t batch) {
  config.steps = std::max<int64_t>(1, (num_samples + batch - 1) / batch);
  config.learning_rate.total_steps = config.steps;
  if (auto error = find_long_warmup(config)) return *std::move(error);
  return config;
}

Result<TrainConfig> read_train_config_file(const std::filesystem::path& path) {
  WEFT_TRY(const Document document, read_document(path));
  return read_train_config(document);
}

Json to_json(const TrainConfig& config) {
  const LearningRate& rate = config.learning_rate;
  Json json = {{"seed", config.seed},
               {"weights", config.weights.empty() ? "" : absolute_text(config.weights)},
               {"data", config.data ? to_json(*config.data) : Json(kSynthetic)},
               {"data_threads", config.data_threads},
               {"optimizer",
                {{"learning_rate", rate.peak},
                 {"beta1", config.adamw.beta1},
                 {"beta2", config.adamw.beta2},
                 {"epsilon", config.adamw.epsilon},
                 {"weight_decay", config.adamw.weight_decay},
                 {"max_gradient_norm", config.max_gradient_norm}}},
               {"learning_rate_schedule",
                {{"kind", schedule_names()[static_cast<size_t>(rate.kind)]},
                 {"warmup_steps", rate.warmup_steps},
                 {"end_fraction", rate.end_fraction}}},
               {"evaluation_batches", config.evaluation_batches},
               {"device", config.device}};
  json[config.epochs > 0 ? "epochs" : "steps"] = config.epochs > 0 ? Json(config.epochs) : Json(config.steps);
  for (const WeightRule& rule : config.weight_rules) {
    Json& given = json["optimizer"]["rules"].emplace_back(Json{{"weights", rule.weights}});
    if (rule.learning_rate) given["learning_rate"] = *rule.learning_rate;
    if (rule.weight_decay) given["weight_decay"] = *rule.weight_decay;
  }
  if (config.is_deterministic) json["deterministic"] = true;
  if (!config.loss.is_plain())
    json["loss"] = {{"label_smoothing", config.loss.label_smoothing}, {"z_loss", config.loss.z_loss}};
  if (const auto& evaluation = config.evaluation; evaluation.interval_steps > 0 || evaluation.data ||
                                                  evaluation.split != TrainConfig::Evaluation::Split::kHeldOut) {
    Json& section = json["evaluation"];
    if (evaluation.interval_steps > 0) {
      section["interval_steps"] = evaluation.interval_steps;
      section["min_improvement"] = evaluation.min_improvement;
    }
    if (evaluation.patience > 0) section["patience"] = evaluation.patience;
    if (evaluation.data) section["data"] = to_json(*evaluation.data);
    if (!evaluation.data) section["split"] = split_names()[static_cast<size_t>(evaluation.split)];
  }
  if (!config.adapter.empty()) json["adapter"] = absolute_text(config.adapter);
  if (!config.on_metrics.empty()) json["on_metrics"] = config.on_metrics;
  if (config.threads_per_rank > 0) json["threads_per_rank"] = config.threads_per_rank;
  if (config.checkpoints.interval_steps > 0) {
    json["checkpoints"] = {{"interval_steps", config.checkpoints.interval_steps}, {"keep", config.checkpoints.keep}};
    if (config.checkpoints.keep_best) json["checkpoints"]["keep_best"] = true;
  }
  return json;
}

}  // namespace weft
