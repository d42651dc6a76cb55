#include "weft/search/drawn_loads.h"

#include <algorithm>

#include "weft/meaning/batch_order.h"

namespace weft {
namespace {

constexpr std::array kKinds = {ModuleKind::kVision, ModuleKind::kAudio, ModuleKind::kLlm};

size_t at(ModuleKind kind) {
  return static_cast<size_t>(kind);
}

/// Bits of the modules that lie in a plan's pipeline.
unsigned modules_inside(const Plan& plan) {
  unsigned inside = 0;
  for (const ModulePlan& module : plan.modules) inside |= module.is_in_pipeline() ? 1u << at(module.kind) : 0u;
  return inside;
}

}  // namespace

DrawnLoads::DrawnLoads(const Plan& problem, DrawnSamples& samples, int64_t batches, bool may_reassign)
    : may_reassign_(may_reassign) {
  for (const Module& module : problem.model.modules)
    parameters_[at(module.kind)] = static_cast<double>(num_parameters(module));
  std::array<std::map<double, double>, 3> counts;  // by length
  std::array<double, 3> with_rows{};
  for (int64_t b = 0; b < batches; ++b) {
    Batch& batch = batches_.emplace_back();
    for (const SampleLoad& sample : samples.batch(b)) {
      for (const ModuleKind kind : kKinds) {
        const double tokens = num_tokens(sample.of(kind));
        batch.of[at(kind)].push_back(tokens);
        batch.total[at(kind)] += tokens;
        with_rows[at(kind)] += tokens > 0 ? 1 : 0;
        for (const Segment& segment : sample.of(kind)) counts[at(kind)][segment.length] += segment.count;
      }
    }
  }
  const auto num_samples = static_cast<double>(batches * problem.workload.global_batch_samples);
  const auto mean_of = [&](ModuleKind kind) {
    Segments segments;
    for (const auto& [length, count] : counts[at(kind)]) segments.push_back({length, count / num_samples});
    return segments;
  };
  for (const ModuleKind kind : kKinds) {
    if (with_rows[at(kind)] > 0) share_[at(kind)] = with_rows[at(kind)] / num_samples;
  }
  mean_ = {
      .vision = mean_of(ModuleKind::kVision), .audio = mean_of(ModuleKind::kAudio), .llm = mean_of(ModuleKind::kLlm)};
}

double DrawnLoads::factor(const Plan& plan, const ModulePlan& module) {
  if (is_even_) return 1;
  const bool is_inside = module.is_in_pipeline();
  if (is_inside && may_reassign_) return 1;
  const int64_t at_once = plan.schedule.mbs * (is_inside ? 1 : module.mbs_scale);
  const std::tuple key(module.kind, module.dp, at_once, is_inside ? modules_inside(plan) : 0u);
  if (const auto found = factors_.find(key); found != factors_.end()) return found->second;
  const double factor = is_inside ? pipeline_factor(plan, module.kind) : beside_factor(module.kind, module.dp, at_once);
  return factors_.emplace(key, factor).first->second;
}

/// Each macro batch waits for its busiest rank. Whoever takes which sample, that rank takes no less than the mean, nor
/// than the largest sample; and the largest samples of macro batches are least in sum where large samples are together.
double DrawnLoads::beside_factor(ModuleKind kind, int64_t data_parallel, int64_t at_once) const {
  const auto macro = static_cast<size_t>(data_parallel * at_once);
  const auto ranks = static_cast<double>(data_parallel);
  double busiest = 0, total = 0;
  for (const Batch& batch : batches_) {
    const Tokens& tokens = batch.of[at(kind)];
    total += batch.total[at(kind)];
    double largest = 0;
    if (may_reassign_) {
      Tokens sorted = tokens;
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      for (size_t first = 0; first < sorted.size(); first += macro) largest += sorted[first];
    } else {
      for (size_t first = 0; first < tokens.size(); first += macro) {
        double most = 0;
        for (size_t own = first; own < std::min(first + macro, tokens.size()); own += static_cast<size_t>(at_once)) {
          double sum = 0;
          for (size_t i = own; i < std::min(own + static_cast<size_t>(at_once), tokens.size()); ++i) sum += tokens[i];
          most = std::max(most, sum);
        }
        largest += most;
      }
    }
    busiest += std::max(largest, batch.total[at(kind)] / ranks);
  }
  return total > 0 ? busiest * ranks / total : 1;
}

/// The replica with most work in the pipeline, of samples in their order.
double DrawnLoads::pipeline_factor(const Plan& plan, ModuleKind kind) const {
  const BatchOrder order{
      .data_parallel = plan.llm().dp, .microbatches = plan.schedule.microbatches, .mbs = plan.schedule.mbs};
  const unsigned inside = modules_inside(plan);
  double busiest = 0, total = 0;
  for (const Batch& batch : batches_) {
    double most_work = -1, tokens_of_most = 0;
    for (int64_t rank = 0; rank < order.data_parallel; ++rank) {
      double work = 0, tokens = 0;
      for (int64_t microbatch = 0; microbatch < order.microbatches; ++microbatch) {
        for (int64_t place = 0; place < order.mbs; ++place) {
          const auto sample = static_cast<size_t>(order.index(rank, microbatch, place));
          tokens += batch.of[at(kind)][sample];
          for (const ModuleKind other : kKinds) {
            if ((inside >> at(other) & 1u) != 0) work += batch.of[at(other)][sample] * parameters_[at(other)];
          }
        }
      }
      if (work <= most_work) continue;
      most_work = work;
      tokens_of_most = tokens;
    }
    busiest += tokens_of_most;
    total += batch.total[at(kind)];
  }
  return total > 0 ? busiest * static_cast<double>(order.data_parallel) / total : 1;
}

}  // namespace weft
