#include "weft/exchange/megatron_arguments.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/exchange/megatron_keys.h"
#include "weft/meaning/weight_copies.h"

namespace weft {
namespace {

constexpr double kBytesPerMb = 1e6;

int64_t most_in_full(const std::vector<std::vector<int64_t>>& full) {
  int64_t most = 0;
  for (const auto& row : full) {
    for (const int64_t count : row) most = std::max(most, count);
  }
  return most;
}

bool has_selective(const ModulePlan& module) {
  for (const auto& row : module.recompute) {
    for (const Recompute& chunk : row) {
      if (chunk.count(BlockRecompute::kAttention) > 0) return true;
    }
  }
  return false;
}

}  // namespace

std::string ArgumentLine::text() const {
  std::string line;
  for (const Argument& argument : arguments_) {
    line += fmt::format("{}--{}", line.empty() ? "" : " ", argument.key);
    if (argument.value.empty()) continue;
    // For a shell, to which stars, bars and brackets mean something.
    const bool is_special = argument.value.find_first_of("|*()") != std::string::npos;
    line += is_special ? fmt::format(" \"{}\"", argument.value) : " " + argument.value;
  }
  return line + "\n";
}

std::optional<MegatronRecompute> megatron_recompute(const ModulePlan& module, Refusals& refusals) {
  const bool is_selective = has_selective(module);
  const std::vector<std::vector<int64_t>> full = full_recompute(module);
  if (!is_selective) refuse_scattered(module, refusals);
  const int64_t most = most_in_full(full);
  for (size_t rank = 0; rank < module.layers.size(); ++rank) {
    for (size_t chunk = 0; chunk < module.layers[rank].size(); ++chunk) {
      const int64_t layers = module.layers[rank][chunk];
      const std::string field = fmt::format("recompute[{}][{}]", rank, chunk);
      if (is_selective) {
        const Recompute& here = module.recompute[rank][chunk];
        const int64_t attention = here.count(BlockRecompute::kAttention);
        if (attention == layers) continue;
        refusals.add(module, field,
                     fmt::format("has full {} and attention {} of {} blocks, but {} recomputes attention in all blocks "
                                 "of a module or in none, and not beside whole blocks",
                                 here.count(BlockRecompute::kFull), attention, layers, refusals.system()));
        return std::nullopt;
      }
      if (full[rank][chunk] == std::min(most, layers)) continue;
      refusals.add(module, field,
                   fmt::format("has full {} of {} blocks where another stage has {}, but {} recomputes one number of "
                               "blocks in every stage (all of a stage that has fewer)",
                               full[rank][chunk], layers, most, refusals.system()));
      return std::nullopt;
    }
  }
  if (is_selective) return MegatronRecompute{.kind = MegatronRecompute::Kind::kSelective};
  if (most > 0) return MegatronRecompute{.kind = MegatronRecompute::Kind::kBlock, .num_layers = most};
  return MegatronRecompute{};
}

void add_precision(const PrecisionPlan& precision, ArgumentLine& line, Refusals& refusals) {
  const std::string& system = refusals.system();
  if (precision.compute == Precision::kFp64)
    refusals.add("precision.compute", fmt::format("is fp64, but {} trains in bf16, fp16 or fp32", system));
  if (precision.master != Precision::kFp32) {
    refusals.add("precision.master",
                 fmt::format("is {}, but {} keeps the optimizer's weights in fp32", name_of(precision.master), system));
  }
  if (precision.compute == Precision::kBf16) line.add(megatron_key::kBf16);
  if (precision.compute == Precision::kFp16) line.add(megatron_key::kFp16);
  const bool is_half = precision.compute == Precision::kBf16 || precision.compute == Precision::kFp16;
  if (precision.reduce == Precision::kFp32) {
    if (is_half) line.add(megatron_key::kReduceFp32);
  } else if (precision.reduce != precision.compute) {
    refusals.add("precision.reduce",
                 fmt::format("is {}, but {} reduces gradients in fp32 or in the precision of compute, {}",
                             name_of(precision.reduce), system, name_of(precision.compute)));
  } else if (precision.reduce == Precision::kBf16) {
    line.add(megatron_key::kReduceBf16);
  }
}

int64_t bucket_elements(const Plan& plan) {
  return std::max<int64_t>(1, std::llround(plan.buckets_mb * kBytesPerMb / num_bytes(plan.precision.reduce)));
}

double bucket_mb(int64_t elements, Precision reduce) {
  return static_cast<double>(elements) * num_bytes(reduce) / kBytesPerMb;
}

void add_mindspeed_context(const ModulePlan& module, ArgumentLine& line) {
  if (module.cp_ulysses == 1) return line.add(megatron_key::kCpAlgorithm, "megatron_cp_algo");
  if (module.cp_ulysses == module.cp) return line.add(megatron_key::kCpAlgorithm, "ulysses_cp_algo");
  line.add(megatron_key::kCpAlgorithm, "hybrid_cp_algo");
  line.add(megatron_key::kUlysses, module.cp_ulysses);
}

void add_data_parallel(const Plan& plan, ArgumentLine& line) {
  const ModulePlan& llm = plan.llm();
  if (llm.zero == 1) line.add(megatron_key::kDistributedOptimizer);
  const bool has_replicas = std::any_of(plan.modules.begin(), plan.modules.end(),
                                        [](const ModulePlan& module) { return num_weight_copies(module) > 1; });
  if (!plan.overlap_dp || !has_replicas) return;
  line.add(megatron_key::kOverlapReduce);
  if (llm.zero == 1) line.add(megatron_key::kOverlapGather);
  line.add(megatron_key::kBucket, bucket_elements(plan));
}

}  // namespace weft
