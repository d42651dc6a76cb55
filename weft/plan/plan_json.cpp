#include "weft/plan/plan_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/file_kind.h"
#include "weft/base/text.h"
#include "weft/plan/default_ulysses.h"
#include "weft/plan/mbs_scale.h"
#include "weft/plan/rank_set.h"
#include "weft/plan/recompute_json.h"
#include "weft/plan/train_rules.h"
#include "weft/program/module_kinds.h"
#include "weft/schedule/parse_rows.h"
#include "weft/spec/model_name.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

const std::array<std::string, 5> kPlacements = {"base", "inline", "colocated", "disjoint", "partial"};

constexpr IntegerRange kDegreeRange{1, kMostDevices};
constexpr IntegerRange kCountRange{0, 1'000'000'000};
/// Of what is predicted: anything that was written can be read.
constexpr NumberRange kFiniteRange{0, std::numeric_limits<double>::max()};

template <typename Enum, size_t N>
const std::string& name_in(const std::array<std::string, N>& names, Enum value) {
  return names[static_cast<size_t>(value)];
}

// Writing.

Json matrix_json(const std::vector<std::vector<int64_t>>& rows) {
  Json json = Json::array();
  for (const auto& row : rows) json.push_back(Json(row));
  return json;
}

Json module_json(const ModulePlan& m) {
  Json json = {{"placement", name_in(kPlacements, m.placement)},
               {"ranks", ranks_to_text(m.ranks)},
               {"axis_order", m.axis_order}};
  for (const DegreeName& degree : kDegreeNames) {
    if (!degree.is_of_llm_alone || !m.is_encoder()) json[degree.name] = m.*degree.value;
  }
  if (m.is_encoder() && m.placement != ModulePlacement::kInline) {
    json["mbs_scale"] = mbs_scale_to_json(m);
    json["form"] = name_of(m.form);
    json["live_macro_batches"] = m.live_macro_batches;
    Json actions = Json::object();
    for (const auto& [rank, row] : m.actions) actions[std::to_string(rank)] = row;
    json["actions"] = std::move(actions);
    json["recompute_from_inputs"] = m.recompute_from_inputs;
  }
  json["sequence_parallel"] = m.sequence_parallel;
  if (m.experts_over_tp) json["experts_over_tp"] = true;
  json["layers"] = matrix_json(m.layers);
  json["recompute"] = recompute_to_json(m);
  if (m.recompute_logits) json["recompute_logits"] = true;
  if (!m.strategy.is_empty()) json["strategy"] = to_json(m.strategy);
  json["zero"] = m.zero;
  json["zero_keep_gathered"] = m.zero_keep_gathered;
  return json;
}

Json schedule_json(const SchedulePlan& schedule) {
  Json json = {{"name", schedule.name}, {"mbs", schedule.mbs}, {"microbatches", schedule.microbatches}};
  if (schedule.rows) json["rows"] = to_texts(*schedule.rows);
  return json;
}

/// {"name": ..., "hash": ..., key: document}.
Json carried(const std::string& name, const char* key, const Json& document) {
  return {{"name", name}, {"hash", hash_of(document)}, {key, document}};
}

// Reading.

/// Takes a carried document out of the plan and checks its hash.
Document take_carried(Fields& plan, const char* what, const char* key, const std::string& source, std::string& name) {
  Fields fields = plan.object(what);
  name = fields.name("name");
  const std::string hash = fields.text("hash");
  const Json* raw = fields.raw(key);
  Document document{.source = fmt::format("{}: {}.{}", source, what, key),
                    .root = raw == nullptr ? Json::object() : *raw};
  if (raw == nullptr) {
    fields.complain(key, "is missing");
  } else if (const std::string actual = hash_of(document.root); !hash.empty() && actual != hash) {
    fields.complain("hash", fmt::format("is {}, but the {} below it has {}", in_quotes(hash), key, actual),
                    "It was changed after the plan was made: plan again, or set the hash to say that it is meant.");
  }
  fields.reject_unknown();
  return document;
}

std::vector<std::vector<int64_t>> read_layers(Fields& fields) {
  std::vector<std::vector<int64_t>> rows;
  const auto bad = [&](const std::string& path, const std::string& problem) {
    fields.findings().add(path, problem,
                          "Give a list per pipeline rank of block counts per chunk, like [[7, 7], [7, 7]].");
  };
  const std::string path = fields.path_of("layers");
  const Json* raw = fields.raw("layers");
  if (raw == nullptr) {
    bad(path, "is missing");
    return rows;
  }
  if (!raw->is_array()) {
    bad(path, fmt::format("is {}, a list of lists is needed", describe_value(*raw)));
    return rows;
  }
  for (const Json& row : *raw) {
    const std::string row_path = fmt::format("{}[{}]", path, rows.size());
    auto& chunks = rows.emplace_back();
    if (!row.is_array()) {
      bad(row_path, fmt::format("is {}, a list of whole numbers is needed", describe_value(row)));
      return rows;
    }
    for (const Json& count : row) {
      const bool is_count =
          count.is_number_integer() && count.get<int64_t>() >= 0 && count.get<int64_t>() <= kCountRange.max;
      if (!is_count) {
        bad(fmt::format("{}[{}]", row_path, chunks.size()),
            fmt::format("is {}, a whole number from 0 to {} is needed", describe_value(count), kCountRange.max));
      }
      chunks.push_back(is_count ? count.get<int64_t>() : 0);
    }
  }
  return rows;
}

/// More would only narrow a spread that is narrow already.
constexpr int64_t kMostBatches = 10'000;

/// A pipeline rank as it is written, and in no other way: so no two keys are the same rank.
std::optional<int64_t> parse_row(const std::string& key) {
  int64_t row = -1;
  std::from_chars(key.data(), key.data() + key.size(), row);
  if (row < 0 || row >= static_cast<int64_t>(kMostRows) || std::to_string(row) != key) return std::nullopt;
  return row;
}

std::map<int64_t, std::vector<std::string>> read_actions(Fields& fields) {
  std::map<int64_t, std::vector<std::string>> actions;
  const Json* raw = fields.raw("actions");
  if (raw == nullptr) return actions;
  if (!raw->is_object()) {
    fields.complain("actions", fmt::format("is {}, a mapping from pipeline ranks to lists of actions is needed",
                                           describe_value(*raw)));
    return actions;
  }
  // Values are taken as they come: looking their keys up again would take time with the square of their number.
  for (const auto& [key, value] : raw->items()) {
    const std::optional<int64_t> row = parse_row(key);
    if (!row) {
      fields.complain("actions", fmt::format("has the key {}, a pipeline rank from 0 to {} is needed, without leading "
                                             "zeros",
                                             in_quotes(key), kMostRows - 1));
      return actions;
    }
    const bool is_list =
        value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& word) { return word.is_string(); });
    if (!is_list) {
      fields.complain(fmt::format("actions.{}", key),
                      fmt::format("is {}, a list of texts is needed",
                                  value.is_array() ? "a list of other things" : describe_value(value)));
      return actions;
    }
    auto& words = actions[*row];
    for (const Json& word : value) words.push_back(word.get<std::string>());
  }
  return actions;
}

/// A cp_ulysses that nobody gave stays 0.
ModulePlan read_module(Fields fields, ModuleKind kind, int64_t version) {
  ModulePlan m{.kind = kind};
  m.placement = static_cast<ModulePlacement>(fields.choice("placement", kPlacements));
  const std::string text = fields.text("ranks");
  if (!text.empty()) {
    Result<std::vector<int64_t>> ranks = parse_ranks(text);
    if (ranks) {
      m.ranks = *std::move(ranks);
    } else {
      fields.complain("ranks", ranks.error().problem, ranks.error().advice);
    }
  }
  m.axis_order = fields.texts_or_empty("axis_order");
  for (const DegreeName& degree : kDegreeNames) {
    const bool is_ulysses = degree.value == &Degrees::cp_ulysses;
    m.*degree.value = is_ulysses || degree.is_of_llm_alone
                          ? fields.integer_or(degree.name, is_ulysses ? 0 : 1, kDegreeRange)
                          : fields.integer(degree.name, kDegreeRange);
  }
  read_mbs_scale(fields, version, m);
  m.form = static_cast<EncoderForm>(fields.choice_or("form", 0, encoder_form_names()));
  m.live_macro_batches = fields.integer_or("live_macro_batches", 0, kCountRange);
  m.actions = read_actions(fields);
  m.recompute_from_inputs = fields.flag_or("recompute_from_inputs", false);
  m.sequence_parallel = fields.flag_or("sequence_parallel", false);
  if (version >= 2) m.experts_over_tp = fields.flag_or("experts_over_tp", false);
  m.layers = read_layers(fields);
  read_recompute(fields, version, m);
  if (version >= 2 && !m.is_encoder()) m.recompute_logits = fields.flag_or("recompute_logits", false);
  if (version >= 2 && fields.has("strategy")) m.strategy = read_module_strategy(fields.object("strategy"));
  if (version >= 2) fields.raw("strategy");
  m.zero = fields.integer_or("zero", 0, {0, 3});
  m.zero_keep_gathered = fields.flag_or("zero_keep_gathered", false);
  fields.reject_unknown();
  return m;
}

Precision read_precision(Fields& fields, const char* key, Precision fallback) {
  return static_cast<Precision>(fields.choice_or(key, static_cast<size_t>(fallback), precision_names()));
}

SchedulePlan read_schedule(Fields fields, int64_t version) {
  SchedulePlan schedule{.name = fields.name("name"),
                        .mbs = fields.integer("mbs", kDegreeRange),
                        .microbatches = fields.integer("microbatches", kDegreeRange)};
  if (version >= 2 && fields.has("rows")) {
    Result<ExplicitRows> rows = parse_explicit_rows(fields.texts_or_empty("rows"));
    if (rows) {
      schedule.rows = *std::move(rows);
    } else {
      const Error& error = rows.error();
      fields.complain(error.field.empty() ? "rows" : error.field, error.problem, error.advice);
    }
  }
  if (version >= 2) fields.raw("rows");
  fields.reject_unknown();
  return schedule;
}

std::vector<double> read_peaks(Fields& predicted) {
  std::vector<double> peaks;
  const Json* raw = predicted.raw("peak_memory_gib");
  if (raw == nullptr) return peaks;
  if (!raw->is_array()) {
    predicted.complain("peak_memory_gib",
                       fmt::format("is {}, a list of numbers is needed, one a rank", describe_value(*raw)));
    return peaks;
  }
  for (const Json& gib : *raw) {
    const double value = gib.is_number() ? gib.get<double>() : -1;
    if (!(value >= kFiniteRange.min && value <= kFiniteRange.max)) {
      predicted.complain(fmt::format("peak_memory_gib[{}]", peaks.size()),
                         fmt::format("is {}, a number from {} to {} is needed", describe_value(gib), kFiniteRange.min,
                                     kFiniteRange.max));
      return peaks;
    }
    peaks.push_back(value);
  }
  return peaks;
}

void read_settings(Fields& fields, int64_t version, Plan& plan) {
  plan.schedule = read_schedule(fields.object("schedule"), version);
  plan.idle_ranks = fields.flag_or("idle_ranks", false);
  if (fields.has("batches")) plan.batches = fields.integer("batches", {0, kMostBatches});
  plan.batch_seed = fields.integer_or("batch_seed", 0, {0, INT64_MAX});
  if (fields.has("precision")) {
    Fields precision = fields.object("precision");
    plan.precision = {.compute = read_precision(precision, "compute", Precision::kBf16),
                      .master = read_precision(precision, "master", Precision::kFp32),
                      .reduce = read_precision(precision, "reduce", Precision::kFp32)};
    precision.reject_unknown();
  }
  plan.buckets_mb = fields.number_or("buckets_mb", 64, {0.001, 1e6});
  if (fields.has("overlap")) {
    Fields overlap = fields.object("overlap");
    plan.overlap_dp = overlap.flag_or("dp", true);
    plan.overlap_tp = overlap.flag_or("tp", false);
    overlap.reject_unknown();
  }
  plan.balance = static_cast<Balance>(fields.choice_or("balance", 0, balance_names()));
  if (fields.has("offload")) {
    Fields offload = fields.object("offload");
    plan.offload = {.optimizer = offload.number_or("optimizer", 0, {0, 1}),
                    .activations = offload.number_or("activations", 0, {0, 1})};
    offload.reject_unknown();
  }
  if (version >= 2) plan.trainable = read_train_rules(fields);
  if (fields.has("predicted")) {
    Fields predicted = fields.object("predicted");
    plan.predicted.step_time_ms = predicted.number_or("step_time_ms", 0, kFiniteRange);
    plan.predicted.bubble_fraction = predicted.number_or("bubble_fraction", 0, {0, 1});
    plan.predicted.throughput_samples_per_s = predicted.number_or("throughput_samples_per_s", 0, kFiniteRange);
    plan.predicted.peak_memory_gib = read_peaks(predicted);
    predicted.reject_unknown();
  }
}

}  // namespace

Result<Plan> read_plan(const Document& document, PlanNotes* notes) {
  if (auto error = find_wrong_kind(document, FileKind::kPlan)) return *std::move(error);
  Findings findings(document.source);
  Fields fields(document, findings);
  const int64_t version = fields.integer("weft_plan", {1, INT32_MAX});
  if (findings.first()) return *findings.first();
  if (version > kPlanVersion) {
    return Error{.source = document.source,
                 .field = "weft_plan",
                 .problem = fmt::format("is {}, but this program reads versions up to {}", version, kPlanVersion),
                 .advice = "Use a newer Weft, or make the plan again with this one."};
  }
  std::string model_name, cluster_name, workload_name;
  const Document model = take_carried(fields, "model", "config", document.source, model_name);
  if (const auto problem = find_bad_model_name(model_name))
    fields.complain("model.name", *problem, "Give the model another name.");
  const Document cluster = take_carried(fields, "cluster", "spec", document.source, cluster_name);
  const Document workload = take_carried(fields, "workload", "spec", document.source, workload_name);
  Plan plan;
  plan.world_size = fields.integer("world_size", {1, kMostDevices});
  Fields modules = fields.object("modules");
  for (const ModuleKind kind : kModuleKinds) {
    const std::string name(name_of(kind));
    if (modules.has(name)) plan.modules.push_back(read_module(modules.object(name), kind, version));
    modules.raw(name);
  }
  modules.reject_unknown();
  if (plan.find(ModuleKind::kLlm) == nullptr) modules.complain("llm", "is missing", "Every plan has an llm.");
  read_settings(fields, version, plan);
  for (const char* key : {"precision", "overlap", "offload", "predicted", "batches"}) fields.raw(key);
  fields.reject_unknown();
  if (findings.first()) return *findings.first();

  WEFT_TRY(plan.model, read_model(model, model_name));
  WEFT_TRY(plan.cluster, read_cluster(cluster, cluster_name));
  WEFT_TRY(plan.workload, read_workload(workload, workload_name));
  if (version == 1 && plan.overlap_tp) {
    plan.overlap_tp = false;
    if (notes != nullptr) {
      notes->push_back(fmt::format("{}: overlap.tp: is true in version 1, which nothing obeyed, and is read as false",
                                   document.source));
    }
  }
  if (auto error = apply_strategies(plan)) {
    error->source = document.source;
    return *std::move(error);
  }
  for (ModulePlan& module : plan.modules) {
    if (module.cp_ulysses == 0) module.cp_ulysses = default_ulysses(plan, module);
  }
  return plan;
}

Result<Plan> read_plan_file(const std::filesystem::path& path, PlanNotes* notes) {
  WEFT_TRY(const Document document, read_document(path, {.max_bytes = 64u << 20, .max_values = 5'000'000}));
  return read_plan(document, notes);
}

Json plan_to_json(const Plan& plan) {
  Json modules = Json::object();
  for (const ModulePlan& module : plan.modules) modules[std::string(name_of(module.kind))] = module_json(module);
  Json offload = Json::object();
  if (plan.offload.optimizer > 0) offload["optimizer"] = plan.offload.optimizer;
  if (plan.offload.activations > 0) offload["activations"] = plan.offload.activations;
  Json json = {{"weft_plan", kPlanVersion},
               {"model", carried(plan.model.name, "config", plan.model.config)},
               {"cluster", carried(plan.cluster.name, "spec", to_json(plan.cluster))},
               {"workload", carried(plan.workload.name, "spec", to_json(plan.workload))},
               {"world_size", plan.world_size},
               {"modules", modules},
               {"schedule", schedule_json(plan.schedule)},
               {"idle_ranks", plan.idle_ranks},
               {"batch_seed", plan.batch_seed},
               {"precision",
                {{"compute", name_of(plan.precision.compute)},
                 {"master", name_of(plan.precision.master)},
                 {"reduce", name_of(plan.precision.reduce)}}},
               {"buckets_mb", plan.buckets_mb},
               {"overlap", {{"dp", plan.overlap_dp}, {"tp", plan.overlap_tp}}},
               {"balance", name_of(plan.balance)},
               {"offload", offload},
               {"predicted",
                {{"step_time_ms", plan.predicted.step_time_ms},
                 {"bubble_fraction", plan.predicted.bubble_fraction},
                 {"peak_memory_gib", plan.predicted.peak_memory_gib},
                 {"throughput_samples_per_s", plan.predicted.throughput_samples_per_s}}}};
  if (plan.batches) json["batches"] = *plan.batches;
  for (const TrainRule& rule : plan.trainable)
    json["trainable"].push_back({{"weights", rule.weights}, {"train", rule.train}});
  return json;
}

std::string plan_to_text(const Plan& plan) {
  // Names that a caller gives can be of any bytes.
  return plan_to_json(plan).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace weft
