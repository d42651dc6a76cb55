// Training steps of a model over two ranks, on demand: parallel_step.py starts this beside PyTorch's own distributed
// training and has the sides step in turn.
//   [scripts/mpirun -n 2] weft_parallel_step FOLDER dp|tp|sp|pp MICROBATCHES [LAYERS OF EACH STAGE ...]
// FOLDER holds a model as Hugging Face saves it and inputs.RANK.MICROBATCH.safetensors for every data-parallel rank.
// Ranks are threads, or processes under mpirun, of one intra-op thread each. Answers every line of standard input with
// one: milliseconds of the slower rank, processor time of both, loss, norm of the gradient, and the time of the
// actions on rank 0 by kind.
#include <cctype>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "bench/must.h"
#include "weft/base/check.h"
#include "weft/comm/run_ranks.h"
#include "weft/models/load_weights.h"
#include "weft/models/network.h"
#include "weft/models/tensor_file.h"
#include "weft/pipeline/training_rank.h"
#include "weft/spec/model_reader.h"
#include "weft/tensor/local_tensor.h"
#include "weft/tensor/rank_threads.h"

namespace {

using namespace weft;

constexpr double kLearningRate = 1e-3;
constexpr double kMaxNorm = 1;
constexpr int64_t kRanks = 2;

struct Case {
  std::filesystem::path folder;
  std::string form;
  int64_t microbatches = 1;
  std::vector<std::vector<int64_t>> layers;  ///< of the llm, by stage

  int64_t dp() const { return form == "dp" ? kRanks : 1; }
  int64_t pp() const { return form == "pp" ? kRanks : 1; }
  int64_t tp() const { return form == "tp" || form == "sp" ? kRanks : 1; }
};

Plan plan_of(const Case& given, const Model& model) {
  Plan plan;
  plan.model = model;
  plan.world_size = kRanks;
  plan.cluster.nodes = 1;
  plan.cluster.devices_per_node = plan.world_size;
  plan.workload.global_batch_samples = given.microbatches * given.dp();
  plan.schedule = {.name = "1f1b", .mbs = 1, .microbatches = given.microbatches};
  plan.precision = {.compute = Precision::kFp32, .master = Precision::kFp32, .reduce = Precision::kFp32};
  // PyTorch's DistributedDataParallel sends buckets of this size.
  plan.buckets_mb = 25;
  for (const Module& module : model.modules) {
    const bool is_llm = module.kind == ModuleKind::kLlm;
    const auto count = static_cast<int64_t>(module.layers.size());
    ModulePlan settings{.kind = module.kind,
                        .placement = is_llm ? ModulePlacement::kBase : ModulePlacement::kInline,
                        .ranks = {0, 1},
                        .axis_order = default_axis_order()};
    settings.degrees() = {
        .tp = given.tp(), .pp = given.pp(), .dp = given.dp(), .sequence_parallel = given.form == "sp"};
    settings.layers = std::vector<std::vector<int64_t>>(static_cast<size_t>(given.pp()), {0});
    settings.layers.front() = {count};
    if (is_llm && !given.layers.empty()) settings.layers = given.layers;
    settings.recompute.assign(settings.layers.size(), {{}});
    plan.modules.push_back(std::move(settings));
  }
  return plan;
}

/// What this rank holds of the folder's weights.
void load(const Case& given, TrainingRank& rank) {
  const at::NoGradGuard no_graph;
  WholeParameters maker(at::TensorOptions().dtype(at::kFloat));
  const Network network = must(Network::create(must(read_model_file(given.folder)), maker));
  const auto error = load_weights(must(WeightFolder::open(given.folder)), maker.all(), network.numbers().files);
  WEFT_CHECK(!error, "{}", error->message());
  const NamedWeights weights(maker.all());
  rank.gather_values();
  for (const ParameterPtr& parameter : rank.parameters()) {
    int64_t begin = 0;
    for (const WeightPiece& piece : parameter->spec.pieces) {
      const at::Tensor elements = parameter->value.detach().view({-1}).narrow(0, begin, piece.num_elements());
      begin += piece.num_elements();
      if (!piece.name.empty()) elements.copy_(held_part(piece, weights.value(piece.name)).reshape({-1}));
    }
  }
  rank.adopt_values();
}

Inputs read_inputs(const Case& given, const TrainingRank& rank, int64_t data_parallel_rank, int64_t microbatch) {
  const auto file = given.folder / fmt::format("inputs.{}.{}.safetensors", data_parallel_rank, microbatch);
  const RawInputs raw = must(raw_inputs(must(read_tensors(file))));
  return must(prepare_inputs(rank.numbers(), rank.vocabulary(), raw)).to(rank.options());
}

/// Of all threads of this process.
double processor_ms() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

double together(Group& everyone, double value, Reduction reduction) {
  const at::Tensor number = at::tensor(value, at::kDouble);
  everyone.all_reduce(buffer_of(number), reduction).wait();
  return number.item<double>();
}

std::string times_by_kind(const std::vector<TimelineEvent>& events) {
  std::map<std::string, double> sums;
  for (const TimelineEvent& event : events) {
    std::string kind = to_text(event.action);
    std::erase_if(kind, [](char c) { return std::isdigit(static_cast<unsigned char>(c)); });
    sums[kind] += event.end_ms - event.start_ms;
  }
  std::string text;
  for (const auto& [kind, ms] : sums) text += fmt::format(" {}={:.1f}", kind, ms);
  return text;
}

void run(World& world, const Case& given, const Plan& plan) {
  use_rank_threads(1);
  const auto rank = must(TrainingRank::create(world, plan, {.max_gradient_norm = kMaxNorm}));
  load(given, *rank);
  std::vector<Inputs> microbatches;
  int64_t num_targets = 0;
  for (int64_t d = 0; d < given.dp(); ++d) {
    for (int64_t m = 0; m < given.microbatches; ++m) {
      Inputs inputs = read_inputs(given, *rank, d, m);
      num_targets += inputs.num_targets();
      if (d == rank->data_parallel_rank()) microbatches.push_back(std::move(inputs));
    }
  }
  Group everyone = world.all();
  const bool is_process = world.backend_name() != "threads";
  while (true) {
    std::string line;
    const bool goes_on = world.rank() != 0 || static_cast<bool>(std::getline(std::cin, line));
    if (together(everyone, goes_on ? 0 : 1, Reduction::kMax) > 0) return;
    everyone.barrier().wait();
    const double processor_start = processor_ms();
    const auto start = std::chrono::steady_clock::now();
    const StepReport report = rank->step(microbatches, num_targets, kLearningRate);
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    const double slowest_ms = together(everyone, ms, Reduction::kMax);
    const double own_processor_ms = is_process || world.rank() == 0 ? processor_ms() - processor_start : 0;
    const double all_processor_ms = together(everyone, own_processor_ms, Reduction::kSum);
    if (world.rank() != 0) continue;
    fmt::print("{:.3f} {:.3f} {:.7f} {:.7f}{}\n", slowest_ms, all_processor_ms, report.loss, report.gradient_norm,
               times_by_kind(report.events));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const bool is_form =
      words.size() >= 3 && (words[1] == "dp" || words[1] == "tp" || words[1] == "sp" || words[1] == "pp");
  if (!is_form) return std::puts("usage: weft_parallel_step FOLDER dp|tp|sp|pp MICROBATCHES [LAYERS ...]"), 2;
  Case given{.folder = words[0], .form = words[1], .microbatches = std::stoll(words[2])};
  for (size_t i = 3; i < words.size(); ++i) given.layers.push_back({std::stoll(words[i])});
  const Plan plan = plan_of(given, must(read_model_file(given.folder)));
  const auto error =
      run_ranks({.size = kRanks, .mpi_library = WEFT_MPI_LIBRARY}, [&](World& world) { run(world, given, plan); });
  WEFT_CHECK(!error, "{}", error->message());
  return 0;
}
