#include "weft/engine/train_config.h"

#include <array>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/file_kind.h"
#include "weft/base/text.h"

namespace weft {
namespace {

constexpr IntegerRange kSteps{1, 1'000'000'000};
constexpr IntegerRange kCounts{0, 1'000'000'000};
constexpr NumberRange kRates{0, 1e6};
constexpr NumberRange kFractions{0, 1};

std::span<const std::string> device_names() {
  static const std::array<std::string, 2> names = {"cpu", "cuda"};
  return names;
}

std::span<const std::string> schedule_names() {
  static const std::array<std::string, 3> names = {"constant", "linear", "cosine"};
  return names;
}

constexpr const char* kSynthetic = "synthetic";

Result<DataSettings> read_settings(const Json& given, const std::string& source) {
  if (given.is_string()) return read_data_settings_file(given.get<std::string>());
  auto settings = read_data_settings({.source = source, .root = given}, "");
  if (settings) return settings;
  Error error = std::move(settings).error();
  error.field = error.field.empty() ? "data" : "data." + error.field;
  return error;
}

/// `data`: synthetic, a file, or a mapping with the file as its `settings` or with these settings themselves.
Result<std::optional<TrainData>> read_data(const Json* given, const TrainConfig& config) {
  if (given == nullptr || *given == kSynthetic) return std::optional<TrainData>();
  const auto wrong = [&](std::string field, std::string problem, std::string advice) {
    return Error{
        .source = config.source, .field = std::move(field), .problem = std::move(problem), .advice = std::move(advice)};
  };
  if (!given->is_string() && !given->is_object()) {
    return wrong("data", fmt::format("is {}, synthetic, a file or a mapping is needed", describe_value(*given)),
                 "Give a file of conversations, or of data settings.");
  }
  TrainData data{.settings = {}, .model = config.weights};
  Json settings = *given;
  if (settings.is_object() && settings.contains("model")) {
    if (!settings["model"].is_string())
      return wrong("data.model", fmt::format("is {}, a folder is needed", describe_value(settings["model"])),
                   "Give the model's folder.");
    data.model = settings["model"].get<std::string>();
    settings.erase("model");
  }
  if (settings.is_object() && settings.contains("settings")) {
    if (!settings["settings"].is_string() || settings.size() > 1) {
      return wrong("data.settings", "is to be a file, with nothing but model beside it",
                   "Give a file, or its settings here.");
    }
    settings = Json(settings["settings"]);
  }
  WEFT_TRY(data.settings, read_settings(settings, config.source));
  if (std::error_code ignored; data.model.empty() || !std::filesystem::is_directory(data.model, ignored)) {
    return wrong("data.model",
                 data.model.empty() ? "is missing, and so is weights: nothing says which tokenizer to use"
                                    : fmt::format("is {}, a folder is needed", in_quotes(data.model.string())),
                 "Give the folder with the model's tokenizer.json, chat template and preprocessor_config.json.");
  }
  return std::optional(std::move(data));
}

/// For who reads it in another folder.
std::string absolute_text(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  return (path.empty() ? fs::current_path() : fs::absolute(path)).lexically_normal().string();
}

Json to_json(const TrainData& data) {
  Json json = to_json(data.settings);
  json["model"] = absolute_text(data.model);
  for (Json& set : json["sets"]) {
    for (const char* key : {"file", "folder"}) set[key] = absolute_text(set[key].get<std::string>());
  }
  return json;
}

void read_optimizer(Fields fields, TrainConfig& config) {
  const AdamWSettings usual;
  config.learning_rate.peak = fields.number("learning_rate", kRates);
  // A moment that never changes or never remembers is no average.
  config.adamw.beta1 = fields.number_or("beta1", usual.beta1, {0, 0.999999});
  config.adamw.beta2 = fields.number_or("beta2", usual.beta2, {0, 0.999999999});
  config.adamw.epsilon = fields.number_or("epsilon", usual.epsilon, {1e-300, 1});
  config.adamw.weight_decay = fields.number_or("weight_decay", usual.weight_decay, {0, 1e3});
  config.max_gradient_norm = fields.number_or("max_gradient_norm", config.max_gradient_norm, {0, 1e30});
  fields.reject_unknown();
}

void read_schedule(Fields fields, TrainConfig& config) {
  LearningRate& rate = config.learning_rate;
  rate.kind =
      static_cast<LearningRate::Kind>(fields.choice_or("kind", static_cast<size_t>(rate.kind), schedule_names()));
  rate.warmup_steps = fields.integer_or("warmup_steps", rate.warmup_steps, kCounts);
  rate.end_fraction = fields.number_or("end_fraction", rate.end_fraction, kFractions);
  fields.reject_unknown();
}

void read_checkpoints(Fields fields, TrainConfig& config) {
  config.checkpoints.interval_steps = fields.integer("interval_steps", kSteps);
  config.checkpoints.keep = fields.integer_or("keep", 0, kCounts);
  fields.reject_unknown();
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
  config.steps = fields.integer("steps", kSteps);
  config.seed = static_cast<uint64_t>(fields.integer_or("seed", 0, {0, INT64_MAX}));
  config.device = device_names()[fields.choice_or("device", 0, device_names())];
  config.threads_per_rank = fields.integer_or("threads_per_rank", 0, {1, 1024});
  config.weights = fields.text_or("weights", "");
  config.run_folder = fields.text_or("run_folder", "");
  const Json* data = fields.raw("data");
  config.data_threads = fields.integer_or("data_threads", config.data_threads, {1, 256});
  read_optimizer(fields.object("optimizer"), config);
  config.learning_rate.total_steps = config.steps;
  config.learning_rate.end_fraction = 0.1;
  if (fields.has("learning_rate_schedule")) read_schedule(fields.object("learning_rate_schedule"), config);
  if (fields.has("checkpoints")) read_checkpoints(fields.object("checkpoints"), config);
  config.evaluation_batches = fields.integer_or("evaluation_batches", config.evaluation_batches, {1, 1'000'000});
  for (const char* key : {"learning_rate_schedule", "checkpoints"}) fields.raw(key);
  if (config.learning_rate.warmup_steps >= config.steps && config.learning_rate.warmup_steps > 0) {
    fields.complain("learning_rate_schedule",
                    fmt::format("has {} warmup_steps, but the run has only {} steps", config.learning_rate.warmup_steps,
                                config.steps),
                    "Warm up for fewer steps.");
  }
  fields.reject_unknown();
  if (findings.first()) return *findings.first();
  WEFT_TRY(config.data, read_data(data, config));
  return config;
}

Result<TrainConfig> read_train_config_file(const std::filesystem::path& path) {
  WEFT_TRY(const Document document, read_document(path));
  return read_train_config(document);
}

Json to_json(const TrainConfig& config) {
  const LearningRate& rate = config.learning_rate;
  Json json = {{"steps", config.steps},
               {"seed", config.seed},
               {"weights", config.weights.string()},
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
  if (config.threads_per_rank > 0) json["threads_per_rank"] = config.threads_per_rank;
  if (config.checkpoints.interval_steps > 0) {
    json["checkpoints"] = {{"interval_steps", config.checkpoints.interval_steps}, {"keep", config.checkpoints.keep}};
  }
  return json;
}

}  // namespace weft
