#include "weft/engine/run_preface.h"

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/text.h"
#include "weft/layers/own_kernels.h"
#include "weft/spec/model.h"

namespace weft {
namespace {

std::string weights_text(const TrainConfig& config, const std::string& checkpoint) {
  if (!checkpoint.empty()) return fmt::format("from {}", checkpoint);
  if (!config.weights.empty()) return fmt::format("from {}", config.weights.string());
  return fmt::format("fresh, of seed {}", config.seed);
}

std::string data_text(const Plan& plan, const TrainConfig& config) {
  const int64_t count = plan.workload.global_batch_samples;
  if (!config.data) return fmt::format("data: {} a step", counted(count, "synthetic sample"));
  if (!config.data->inputs.empty())
    return fmt::format("data: {} a step, of {}", counted(count, "sample"),
                       counted(std::ssize(config.data->inputs), "named tensor"));
  const DataSettings& settings = config.data->settings;
  const std::string where =
      settings.files.size() == 1 ? settings.files.front().file.string() : counted(std::ssize(settings.files), "set");
  return fmt::format("data: {} a step of {}, prepared by {}", counted(count, settings.packs ? "packed row" : "sample"),
                     where, counted(config.data_threads, "thread"));
}

}  // namespace

std::vector<std::string> RunPreface::lines(const std::string& checkpoint) const {
  const bool is_threads = launch.kind == Launch::Kind::kThreads;
  const std::string how = is_threads ? " in this process" : plan.world_size == 1 ? " process" : " processes";
  const std::string where = config.device != "cpu"
                                ? ", on GPUs"
                                : fmt::format(", {}{}, on {}", counted(share.threads_per_rank, "thread"),
                                              plan.world_size == 1 ? "" : " each", counted(share.cores, "core"));
  std::vector<std::string> lines = {fmt::format("model: {}, {} parameters in {}, weights {}", plan.model.name,
                                                with_commas(num_parameters(plan.model)),
                                                name_of(plan.precision.compute), weights_text(config, checkpoint)),
                                    fmt::format("ranks: {}{}{}", plan.world_size, how, where), data_text(plan, config)};
  if (config.data) {
    for (const std::string& note : config.data->settings.notes) lines.push_back("note: " + note);
  }
  for (const std::string& note : notes_of(share, config)) lines.push_back("note: " + note);
  if (config.device == "cuda") {
    if (const auto missing = missing_kernels(at::Device(at::kCUDA, 0)))
      lines.push_back("note: LibTorch's kernels are used, which are slower than own ones: " + missing->message());
  }
  return lines;
}

}  // namespace weft
