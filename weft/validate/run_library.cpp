#include "weft/validate/run_library.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/paths.h"
#include "weft/base/product.h"
#include "weft/base/text.h"
#include "weft/spec/cluster.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

constexpr IntegerRange kRunCountRange{1, 1 << 26};
constexpr NumberRange kStepSecondsRange{1e-6, 1e6};
constexpr NumberRange kTokensRange{1e-3, 1e9};
constexpr NumberRange kBucketsRange{1e-3, 1e6};

const std::vector<std::string>& recomputation_names() {
  static const std::vector<std::string> names = {"none", "selective", "half", "full"};
  return names;
}

/// Models of a table: named in the scenarios, or given in the table as a configuration.
class TableModels {
 public:
  TableModels(const Scenarios& scenarios, const Json* configs, std::string source)
      : scenarios_(scenarios), configs_(configs), source_(std::move(source)) {}

  Result<Model> find(const std::string& name) const {
    if (configs_ != nullptr && configs_->contains(name))
      return read_model({.source = fmt::format("{}: models.{}", source_, name), .root = (*configs_)[name]}, name);
    return scenarios_.model(name);
  }

 private:
  const Scenarios& scenarios_;
  const Json* configs_;
  std::string source_;
};

Result<TrainingRun> read_run(const Document& document, const TableModels& models) {
  Findings findings(document.source);
  Fields fields(document, findings);
  TrainingRun run{.name = fields.text("name"), .source = document.source};
  const std::string model = fields.text("model");
  run.sequence_length = fields.integer("sequence_length", kRunCountRange);
  run.num_devices = fields.integer("num_gpus", {1, kMostDevices});
  run.global_batch = fields.integer("global_batch", kRunCountRange);
  run.micro_batch = fields.integer("micro_batch", kRunCountRange);
  run.tp = fields.integer_or("tp", 1, kRunCountRange);
  run.cp = fields.integer_or("cp", 1, kRunCountRange);
  run.ep = fields.integer_or("ep", 1, kRunCountRange);
  run.pp = fields.integer_or("pp", 1, kRunCountRange);
  run.vpp = fields.integer_or("vpp", 1, kRunCountRange);
  run.zero = fields.integer_or("zero", 0, {0, 3});
  run.sequence_parallel = fields.flag_or("sequence_parallel", false);
  run.overlaps_dp = fields.flag_or("overlap", false);
  run.overlaps_tp = fields.flag_or("overlap_tp", true);
  run.buckets_mb = fields.number_or("buckets_mb", run.buckets_mb, kBucketsRange);
  run.fused_attention = fields.flag_or("fused_attention", true);
  run.patches_per_image = fields.integer_or("patches_per_image", 0, {0, 1 << 26});
  run.recompute = static_cast<Recomputation>(fields.choice("recompute", recomputation_names()));
  const bool has_seconds = fields.has("step_seconds"), has_tokens = fields.has("tokens_per_s");
  if (has_seconds == has_tokens)
    fields.complain("step_seconds", "and tokens_per_s: exactly one of them is needed", "Give what was published.");
  const double seconds = has_seconds ? fields.number("step_seconds", kStepSecondsRange) : 0;
  const double tokens_per_s = has_tokens ? fields.number("tokens_per_s", kTokensRange) : 0;
  fields.raw("step_seconds");
  fields.raw("tokens_per_s");
  fields.reject_unknown();
  if (findings.first()) return *findings.first();
  run.dp = std::max<int64_t>(1, run.num_devices / product_of({run.tp, run.cp, run.pp}));
  const double tokens_a_device = static_cast<double>(run.global_batch) * static_cast<double>(run.sequence_length) /
                                 static_cast<double>(run.num_devices);
  run.measured_ms = 1e3 * (has_seconds ? seconds : tokens_a_device / tokens_per_s);
  WEFT_TRY(run.model, models.find(model));
  return run;
}

/// What the nodes were joined by, where that is not the cluster's.
struct Network {
  Link card;
  int64_t cards_per_node = 0;
};

Network read_network(Fields fields) {
  Network network{.card = {.bandwidth_gb_per_s = fields.number("bandwidth_gb_per_s", {1e-3, 1e6}),
                           .latency_us = fields.number("latency_us", {0, 1e6})},
                  .cards_per_node = fields.integer("cards_per_node", {1, 1024})};
  fields.reject_unknown();
  return network;
}

Result<PublishedTable> read_table(const std::filesystem::path& path, const Scenarios& scenarios,
                                  const std::map<std::string, Software>& software) {
  WEFT_TRY(const Document document, read_document(path));
  Findings findings(document.source);
  Fields fields(document, findings);
  PublishedTable table{.source = fields.text("source"), .url = fields.text_or("url", "")};
  table.not_alike = fields.text("not_alike");
  const std::string cluster = fields.text("cluster");
  table.hardware = fields.text_or("hardware", "");
  table.software = fields.text("software");
  if (!software.contains(table.software)) {
    std::vector<std::string> known;
    for (const auto& [name, ignored] : software) known.push_back(name);
    fields.complain("software", fmt::format("is {}, which software.yaml has not; it has {}", in_quotes(table.software),
                                            joined_or(known)));
  }
  std::optional<Network> network;
  if (fields.has("between_nodes")) network = read_network(fields.object("between_nodes"));
  fields.raw("between_nodes");
  const Json* common = fields.raw("common");
  if (common != nullptr && !common->is_object())
    fields.complain("common", fmt::format("is {}, a mapping of fields is needed", describe_value(*common)));
  const TableModels models(scenarios, fields.raw("models"), document.source);
  const Json* runs = fields.raw("runs");
  if (runs == nullptr || !runs->is_array() || runs->empty())
    fields.complain("runs", "must be a list of at least one run");
  fields.reject_unknown();
  if (findings.first()) return *findings.first();
  WEFT_TRY(table.cluster, scenarios.cluster(cluster));
  if (network) {
    table.cluster.between_nodes = network->card;
    table.cluster.cards_per_node = network->cards_per_node;
  }
  for (size_t i = 0; i < runs->size(); ++i) {
    Document one{.source = fmt::format("{}: runs[{}]", document.source, i),
                 .root = common == nullptr ? Json::object() : *common};
    if ((*runs)[i].is_object()) one.root.update((*runs)[i]);
    WEFT_TRY(TrainingRun run, read_run(one, models));
    table.models.push_back(run.model->name);
    table.runs.push_back(std::move(run));
  }
  return table;
}

}  // namespace

std::span<const EfficiencyField> software_fields() {
  static const std::vector<EfficiencyField> fields = [] {
    std::vector<EfficiencyField> found;
    for (const EfficiencyField& field : efficiency_fields()) {
      for (const auto value :
           {&Efficiency::passes_per_operator, &Efficiency::kernel_us, &Efficiency::host_us_per_kernel,
            &Efficiency::fused_attention, &Efficiency::update, &Efficiency::action_us, &Efficiency::overlap}) {
        if (field.value == value) found.push_back(field);
      }
    }
    return found;
  }();
  return fields;
}

Result<Software> Software::read(const Document& document) {
  Findings findings(document.source);
  Fields fields(document, findings);
  Software software;
  software.is_fused_ = fields.flag_or("fused", false);
  software.plans_memory_ = fields.flag_or("plans_memory", false);
  for (const EfficiencyField& field : software_fields()) {
    if (fields.has(field.name)) software.set(field.value, fields.number(field.name, field.range));
    fields.raw(field.name);
  }
  fields.reject_unknown();
  if (findings.first()) return *findings.first();
  return software;
}

Efficiency Software::applied_to(Efficiency efficiency) const {
  for (const auto& [field, value] : values_) efficiency.*field = value;
  return efficiency;
}

bool Software::has(double Efficiency::*field) const {
  return std::any_of(values_.begin(), values_.end(), [&](const auto& value) { return value.first == field; });
}

void Software::set(double Efficiency::*field, double value) {
  for (auto& [known, old] : values_) {
    if (known == field) {
      old = value;
      return;
    }
  }
  values_.emplace_back(field, value);
}

Result<RunLibrary> read_run_library(const Scenarios& scenarios) {
  const std::filesystem::path folder = scenarios.root() / "validation";
  RunLibrary library;
  WEFT_TRY(const Document software, read_document(folder / "software.yaml"));
  for (const auto& [name, values] : software.root.items()) {
    WEFT_TRY(library.software[name], Software::read({.source = software.source + ": " + name, .root = values}));
  }
  std::vector<std::filesystem::path> files;
  std::error_code ignored;
  for (const std::filesystem::path& path : paths_in(folder / "runs", ignored)) {
    if (path.extension() == ".yaml") files.push_back(path);
  }
  for (const std::filesystem::path& file : files) {
    WEFT_TRY(PublishedTable table, read_table(file, scenarios, library.software));
    library.tables.push_back(std::move(table));
  }
  return library;
}

}  // namespace weft
