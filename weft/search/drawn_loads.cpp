#include "weft/search/drawn_loads.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "weft/meaning/batch_order.h"
#include "weft/meaning/macro_batch.h"
#include "weft/program/module_kinds.h"

namespace weft {
namespace {

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

DrawnLoads::Load& DrawnLoads::Load::operator+=(const Load& other) {
  rows += other.rows;
  pairs += other.pairs;
  return *this;
}

DrawnLoads::Load DrawnLoads::sum_of(const Loads& loads, size_t begin, size_t end) {
  Load sum;
  for (size_t i = begin; i < std::min(end, loads.size()); ++i) sum += loads[i];
  return sum;
}

DrawnLoads::DrawnLoads(const Plan& problem, DrawnSamples& samples, int64_t batches, bool may_reassign)
    : batches_(static_cast<size_t>(batches)), may_reassign_(may_reassign) {
  const auto num_samples = static_cast<double>(batches * problem.workload.global_batch_samples);
  for (const ModuleKind kind : kModuleKinds) {
    std::map<double, double> counts;  // by length
    Load total;
    double with_rows = 0;
    for (int64_t b = 0; b < batches; ++b) {
      for (const SampleLoad& sample : samples.batch(b)) {
        Load load;
        for (const Segment& segment : sample.of(kind)) {
          counts[segment.length] += segment.count;
          load += {.rows = segment.count * segment.length, .pairs = segment.count * segment.length * segment.length};
        }
        with_rows += load.rows > 0 ? 1 : 0;
        total += load;
        batches_[static_cast<size_t>(b)][at(kind)].push_back(load);
      }
    }
    if (with_rows == 0) continue;
    share_[at(kind)] = with_rows / num_samples;
    for (Batch& batch : batches_) {
      for (Load& load : batch[at(kind)])
        load = {.rows = load.rows * num_samples / total.rows, .pairs = load.pairs * num_samples / total.pairs};
    }
    Segments& mean = kind == ModuleKind::kVision ? mean_.vision : kind == ModuleKind::kAudio ? mean_.audio : mean_.llm;
    for (const auto& [length, count] : counts) mean.push_back({length, count / num_samples});
  }
}

double DrawnLoads::factor(const Plan& plan, const ModulePlan& module) {
  if (is_even_) return 1;
  const bool is_inside = module.is_in_pipeline();
  if (is_inside && may_reassign_) return 1;
  const int64_t at_once = samples_at_once(plan, module);
  const std::tuple key(module.dp, at_once, is_inside ? modules_inside(plan) : 1u << at(module.kind));
  if (const auto found = factors_.find(key); found != factors_.end()) return found->second;
  const double factor = is_inside ? pipeline_factor(plan) : beside_factor(module.kind, module.dp, at_once);
  return factors_.emplace(key, factor).first->second;
}

/// Each macro batch waits for its busiest rank. However samples are dealt out, that rank takes no less than the mean,
/// nor than the largest sample; and the largest samples of macro batches are least in sum where large samples are
/// together.
double DrawnLoads::beside_factor(ModuleKind kind, int64_t data_parallel, int64_t at_once) const {
  const auto own = static_cast<size_t>(at_once), macro = static_cast<size_t>(data_parallel) * own;
  double busiest = 0;
  for (const Batch& batch : batches_) {
    const Loads& loads = batch[at(kind)];
    double largest = 0;
    if (may_reassign_) {
      std::vector<double> sorted;
      for (const Load& load : loads) sorted.push_back(load.least());
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      for (size_t first = 0; first < sorted.size(); first += macro) largest += sorted[first];
    } else {
      for (size_t first = 0; first < loads.size(); first += macro) {
        double most = 0;
        for (size_t begin = first; begin < std::min(first + macro, loads.size()); begin += own)
          most = std::max(most, sum_of(loads, begin, begin + own).least());
        largest += most;
      }
    }
    const double even = sum_of(loads, 0, loads.size()).least() / static_cast<double>(data_parallel);
    busiest += std::max(largest, even) * static_cast<double>(data_parallel) / static_cast<double>(loads.size());
  }
  return std::max(1.0, busiest / static_cast<double>(batches_.size()));
}

/// The busiest replica of samples in their order.
double DrawnLoads::pipeline_factor(const Plan& plan) const {
  const BatchOrder order{
      .data_parallel = plan.llm().dp, .microbatches = plan.schedule.microbatches, .mbs = plan.schedule.mbs};
  const unsigned inside = modules_inside(plan);
  double busiest = 0;
  for (const Batch& batch : batches_) {
    double most = 0;
    for (int64_t rank = 0; rank < order.data_parallel; ++rank) {
      double least = std::numeric_limits<double>::infinity();
      for (const ModuleKind kind : kModuleKinds) {
        if ((inside >> at(kind) & 1u) == 0) continue;
        Load load;
        for (int64_t microbatch = 0; microbatch < order.microbatches; ++microbatch) {
          const auto begin = static_cast<size_t>(order.index(rank, microbatch, 0));
          load += sum_of(batch[at(kind)], begin, begin + static_cast<size_t>(order.mbs));
        }
        least = std::min(least, load.least());
      }
      most = std::max(most, least);
    }
    busiest += most / static_cast<double>(order.microbatches * order.mbs);
  }
  return std::max(1.0, busiest / static_cast<double>(batches_.size()));
}

}  // namespace weft
