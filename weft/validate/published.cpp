#include "weft/validate/published.h"

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/units.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

constexpr IntegerRange kCountRange{1, 1 << 26};
constexpr NumberRange kSecondsRange{1e-6, 1e6};
constexpr NumberRange kGibRange{0, 1e6};

void read_model_settings(Fields& fields, const TrainingRun& common, Published& published) {
  TrainingRun run = common;
  const std::string name = fields.text("name");
  run.hidden_size = fields.integer("hidden_size", kCountRange);
  run.num_heads = fields.integer("num_heads", kCountRange);
  run.num_layers = fields.integer("num_layers", kCountRange);
  run.tp = fields.integer("tp", kCountRange);
  run.pp = fields.integer("pp", kCountRange);
  run.vpp = fields.integer_or("vpp", 1, kCountRange);
  run.num_devices = fields.integer("num_gpus", kCountRange);
  run.global_batch = fields.integer("global_batch", kCountRange);
  run.micro_batch = fields.integer("micro_batch", kCountRange);
  run.name = name + ", full recomputation";
  run.measured_ms = 1e3 * fields.number("seconds_full_recompute", kSecondsRange);
  published.runs.push_back(run);
  TrainingRun selective = run;
  selective.name = name + ", sequence parallel, selective";
  selective.recompute = Recomputation::kSelective;
  selective.sequence_parallel = true;
  selective.measured_ms = 1e3 * fields.number("seconds_selective_sequence_parallel", kSecondsRange);
  published.runs.push_back(selective);
  published.memory.push_back(
      {.name = name,
       .run = run,
       .layer_gib = fields.number("layer_gib", kGibRange),
       .layer_gib_selective_sequence_parallel = fields.number("layer_gib_selective_sequence_parallel", kGibRange),
       .state_gib = fields.number("state_gib", kGibRange)});
  fields.reject_unknown();
}

/// Activations of the layers on the first pipeline rank at its peak, without norms' statistics, embedding and head.
double layer_activations_gib(PlanSimulator& simulator, const Plan& plan, const Schedule& schedule) {
  const PlanCosts& costs = simulator.price(plan);
  const BlockMemory& layer = costs.modules.front()->distinct_layers.front().memory;
  std::vector<StageMemory> stages(costs.stages.size());
  for (const StagePart& part : costs.parts) {
    const auto selective = static_cast<double>(count_of(part.recompute, BlockRecompute::kAttention));
    const double rest = static_cast<double>(part.num_layers) - selective;
    stages[static_cast<size_t>(part.stage)].activation_bytes = selective * layer.saved_selective + rest * layer.saved -
                                                               static_cast<double>(part.num_layers) * layer.statistics;
  }
  return peak_memory_bytes(schedule, stages).front() / kGiB;
}

struct PredictedMemory {
  double layer_gib = 0;
  double full_gib = 0;
  double state_gib = 0;
};

Result<PredictedMemory> predict(const TrainingRun& run, const Cluster& cluster) {
  WEFT_TRY(const Plan plan, plan_of(run, cluster));
  WEFT_TRY(const Schedule schedule, playable_schedule(plan));
  WEFT_TRY(PlanSimulator simulator, PlanSimulator::create(plan));
  PredictedMemory prediction{.layer_gib = layer_activations_gib(simulator, plan, schedule)};
  for (const MemorySplit& row : simulator.run_mean(plan, schedule).memory)
    prediction.full_gib = std::max(prediction.full_gib, row.total() / kGiB);
  // Products with weights alone: no biases, norms or embeddings.
  const PlanCosts& costs = simulator.price(plan);
  const BlockSetting& setting = costs.modules.front()->setting;
  double elements = 0;
  for (const Op& op : plan.model.modules.front().distinct_layers.front().ops) {
    if (const auto* matmul = std::get_if<Matmul>(&op.shape)) {
      const LocalMatmul local = local_matmul(*matmul, op.split(), setting.share());
      elements += static_cast<double>(local.in * local.out);
    }
  }
  const double layers = static_cast<double>(run.num_layers) / static_cast<double>(run.pp);
  const double bytes =
      num_bytes(plan.precision.compute) + num_bytes(plan.precision.reduce) + optimizer_bytes(plan.precision);
  prediction.state_gib = elements * layers * bytes / kGiB;
  return prediction;
}

}  // namespace

Result<Published> read_published(const std::filesystem::path& path) {
  WEFT_TRY(const Document document, read_document(path));
  Findings findings(document.source);
  Fields fields(document, findings);
  Published published{.source = fields.text("source"), .cluster = fields.text("cluster")};
  const TrainingRun common{.source = document.source,
                           .sequence_length = fields.integer("sequence_length", kCountRange),
                           .vocabulary = fields.integer("vocab_size", kCountRange)};
  const Json* models = fields.raw("models");
  if (models == nullptr || !models->is_array() || models->empty()) {
    fields.complain("models", "must be a list of at least one model");
  } else {
    for (size_t i = 0; i < models->size(); ++i) {
      const Document one{.source = fmt::format("{}: models[{}]", document.source, i), .root = (*models)[i]};
      Findings own(one.source);
      Fields model(one, own);
      read_model_settings(model, common, published);
      if (own.first()) return *own.first();
    }
  }
  fields.reject_unknown();
  if (findings.first()) return *findings.first();
  return published;
}

Result<MatchingMemory> matching_memory(const PublishedMemory& published, const Cluster& cluster) {
  TrainingRun plain = published.run;
  plain.recompute = Recomputation::kNone;
  TrainingRun selective = published.run;
  selective.recompute = Recomputation::kSelective;
  selective.sequence_parallel = true;
  WEFT_TRY(const PredictedMemory without, predict(plain, cluster));
  WEFT_TRY(const PredictedMemory with, predict(selective, cluster));
  return MatchingMemory{.layer_gib = without.layer_gib,
                        .layer_gib_selective_sequence_parallel = with.layer_gib,
                        .state_gib = without.state_gib,
                        .full_prediction_gib = without.full_gib,
                        .full_prediction_gib_selective_sequence_parallel = with.full_gib};
}

}  // namespace weft
