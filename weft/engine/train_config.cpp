#include "weft/engine/train_config.h"

#include <array>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/file_kind.h"

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

std::span<const std::string> data_names() {
  static const std::array<std::string, 1> names = {"synthetic"};
  return names;
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
  fields.choice_or("data", 0, data_names());
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
               {"data", "synthetic"},
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
