#include "weft/search/plan_advice.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "weft/base/byte_unit.h"
#include "weft/base/counted.h"
#include "weft/base/text.h"
#include "weft/base/units.h"
#include "weft/search/deadline.h"
#include "weft/search/enumerate.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

/// Devices that much larger are no advice any more.
constexpr double kMostMemory = 1024;
/// What one of several quick searches may take.
constexpr double kQuick_s = 2;

/// Whether anything of the space divides devices and batch.
bool has_candidates(const PlanProblem& problem) {
  const Plan plan = plan_without_settings(problem.model, problem.cluster, problem.workload);
  for (const Candidate& frame : enumerate_frames(plan, problem.space)) {
    if (choices_of(frame, plan, problem.space).size() > 0) return true;
  }
  return false;
}

size_t num_frames(const PlanProblem& problem) {
  return enumerate_frames(plan_without_settings(problem.model, problem.cluster, problem.workload), problem.space)
      .size();
}

double seconds_left(const Deadline& deadline) {
  return std::max(0.0, std::chrono::duration<double>(deadline.left()).count());
}

/// Without schedules that hold more than 1F1B does, where the space has it: their ranks have as many layers, and no
/// fewer microbatches of them in flight.
PlanSpace plain_schedules(PlanSpace space) {
  std::vector<ScheduleName>& names = space.schedules;
  if (std::find(names.begin(), names.end(), ScheduleName::k1f1b) == names.end() || !space.vpp.contains(1)) return space;
  std::erase_if(names, [](ScheduleName name) {
    return name == ScheduleName::kInterleaved1f1b || name == ScheduleName::kZbH1 || name == ScheduleName::kGpipe;
  });
  return space;
}

std::optional<FoundPlan> any_plan(const PlanProblem& problem, const PlanSearchOptions& options, double time_limit_s) {
  PlanSearchOptions how = options;
  how.first_only = true;
  how.top = 1;
  how.within = 0;
  how.time_limit_s = time_limit_s;
  how.progress = {};
  Result<PlanSearchResult> found =
      search_plans(problem.model, problem.cluster, problem.workload, plain_schedules(problem.space), how);
  if (!found || found->best.empty()) return std::nullopt;
  return std::move(found->best.front());
}

/// A setting of a space that can be left open again.
struct Setting {
  std::string name;  ///< in a search file
  std::function<void(PlanSpace&)> open;
  std::string rule;  ///< what its values must be
};

/// Why no candidate has a pp that is allowed.
std::string rule_of_pp(const PlanProblem& problem, const std::string& devices) {
  const auto layers = static_cast<int64_t>(problem.model.find(ModuleKind::kLlm)->layers.size());
  const Allowed& pp = problem.space.pp;
  const int64_t least = pp.values.empty() ? pp.at_least : *std::min_element(pp.values.begin(), pp.values.end());
  if (least <= layers) return devices;
  return fmt::format("pp is at most the llm's {} layers, because every stage has one", layers);
}

std::vector<Setting> settings(const PlanProblem& problem) {
  const auto of = [](auto field) { return [field](PlanSpace& space) { space.*field = PlanSpace().*field; }; };
  const std::string devices = fmt::format("tp x cp x pp x dp is {}", counted(problem.cluster.num_devices(), "device"));
  const std::string batch = fmt::format("dp x mbs divides the batch of {}", problem.workload.global_batch_samples);
  const std::string chunks =
      "one chunk goes with 1f1b, zb_h1 and gpipe, two with zb_v, more than one with interleaved_1f1b, "
      "and pp x vpp is at most the number of layers";
  return {{"llm.tp", of(&PlanSpace::tp),
           fmt::format("tp divides a node's {}", counted(problem.cluster.devices_per_node, "device"))},
          {"llm.cp", of(&PlanSpace::cp), devices},
          {"llm.cp_ulysses", of(&PlanSpace::cp_ulysses), "cp_ulysses divides cp"},
          {"llm.ep", of(&PlanSpace::ep), "ep divides the number of experts and dp x cp"},
          {"llm.pp", of(&PlanSpace::pp), rule_of_pp(problem, devices)},
          {"llm.dp", of(&PlanSpace::dp), devices},
          {"llm.vpp", of(&PlanSpace::vpp), chunks},
          {"llm.zero", of(&PlanSpace::zero), "ZeRO is 0 to 3, and 0 where dp x cp is 1"},
          {"mbs", of(&PlanSpace::mbs), batch},
          {"schedule", of(&PlanSpace::schedules), chunks},
          {"encoders", of(&PlanSpace::encoders),
           "an encoder's tp divides the llm's or its own ranks, mbs_scale is at most 64"}};
}

/// The pins without any one of which something would be left, and the rules that they break.
struct Contradiction {
  std::vector<std::string> names;
  std::vector<std::string> rules;
};

Contradiction contradicting_pins(const PlanProblem& problem) {
  Contradiction found;
  for (const Setting& setting : settings(problem)) {
    PlanProblem relaxed = problem;
    setting.open(relaxed.space);
    if (!has_candidates(relaxed)) continue;
    found.names.push_back(setting.name);
    if (std::find(found.rules.begin(), found.rules.end(), setting.rule) == found.rules.end())
      found.rules.push_back(setting.rule);
  }
  return found;
}

/// The batches next to this one that something divides.
std::vector<std::string> nearest_batches(const PlanProblem& problem) {
  std::vector<std::string> found;
  const int64_t batch = problem.workload.global_batch_samples;
  for (const int64_t step : {-1, 1}) {
    for (int64_t n = batch + step, tries = 0; n >= 1 && tries < 4096; n += step, ++tries) {
      PlanProblem other = problem;
      other.workload.global_batch_samples = n;
      if (!has_candidates(other)) continue;
      found.push_back(fmt::format("{}", n));
      break;
    }
  }
  return found;
}

/// A batch below this one that there are candidates for: the largest power of two.
int64_t largest_batch(const PlanProblem& problem) {
  PlanProblem smaller = problem;
  int64_t& batch = smaller.workload.global_batch_samples;
  const auto given = static_cast<uint64_t>(batch);
  for (batch = static_cast<int64_t>(std::bit_floor(given)); batch > 1; batch /= 2) {
    if (has_candidates(smaller)) return batch;
  }
  return 1;
}

/// What gave the batch.
std::string batch_source(const PlanProblem& problem) {
  return problem.has_own_batch ? "--global-batch" : problem.workload.source;
}
std::string batch_field(const PlanProblem& problem) {
  return problem.has_own_batch ? "" : "global_batch_samples";
}

/// Where there would be candidates, but with schedules that are too long.
std::optional<Error> find_too_many_microbatches(const PlanProblem& problem) {
  PlanProblem longer = problem;
  longer.space.most_stage_microbatches = INT64_MAX;
  if (!has_candidates(longer)) return std::nullopt;
  const int64_t batch = problem.workload.global_batch_samples;
  return Error{.source = batch_source(problem),
               .field = batch_field(problem),
               .problem = fmt::format("is {} samples, which {} cannot take in fewer than {} microbatches times "
                                      "pipeline stages; no more are searched",
                                      with_commas(batch), counted(problem.cluster.num_devices(), "device"),
                                      with_commas(problem.space.most_stage_microbatches)),
               .advice = fmt::format("Up to {} samples can be planned; or give more nodes, or a larger mbs in a search "
                                     "file.",
                                     with_commas(largest_batch(problem)))};
}

/// Where what would fit takes more microbatches than are searched, memory is not the reason.
std::optional<Error> find_too_few_microbatches(const PlanProblem& problem, const PlanSearchOptions& options) {
  PlanProblem longer = problem;
  longer.space.most_stage_microbatches = INT64_MAX;
  const auto is_cut = [&](const PlanProblem& given) {
    longer.workload = given.workload;
    return num_frames(longer) > num_frames(given);
  };
  if (!is_cut(problem)) return std::nullopt;
  // What a device holds depends on a microbatch, not on their number, so a batch that can be searched whole shows it.
  PlanProblem smaller = problem;
  const Deadline deadline(options.time_limit_s, options.stop);
  int64_t& batch = smaller.workload.global_batch_samples;
  for (batch = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(batch))); batch > 1; batch /= 2) {
    const auto found = any_plan(smaller, options, std::min(kQuick_s, seconds_left(deadline)));
    if (!found && !is_cut(smaller)) return std::nullopt;  // nothing fits, however few the microbatches
    if (!found && deadline.is_over()) return std::nullopt;
    if (!found) continue;
    const int64_t given = problem.workload.global_batch_samples;
    return Error{.source = batch_source(problem),
                 .field = batch_field(problem),
                 .problem = fmt::format("is {} samples: what fits on {} takes more than {} microbatches times pipeline "
                                        "stages, and no more are searched",
                                        with_commas(given), counted(problem.cluster.num_devices(), "device"),
                                        with_commas(problem.space.most_stage_microbatches)),
                 .advice = fmt::format("Up to {} samples can be planned, as {}; or give more nodes.",
                                       with_commas(batch), found->candidate.text(found->plan))};
  }
  return std::nullopt;
}

Error no_candidates(const PlanProblem& problem) {
  const int64_t devices = problem.cluster.num_devices();
  const int64_t batch = problem.workload.global_batch_samples;
  if (auto error = find_too_many_microbatches(problem)) return *std::move(error);
  PlanProblem open = problem;
  open.space = PlanSpace();
  open.space.frozen = problem.space.frozen;
  if (has_candidates(open)) {
    const Contradiction pins = contradicting_pins(problem);
    return {.kind = ErrorKind::kJob,
            .source = "plan",
            .problem = fmt::format("the search file leaves nothing: its pins contradict each other, or {} and a "
                                   "global batch of {}",
                                   counted(devices, "device"), counted(batch, "sample")),
            .advice = pins.names.empty()
                          ? std::string("Several pins would have to go: tp divides a node's devices, tp x cp x "
                                        "pp x dp is the number of devices, and dp x mbs divides the batch.")
                          : fmt::format("Without {} there would be candidates: {}.", joined_or(pins.names),
                                        fmt::join(pins.rules, "; "))};
  }
  const std::vector<std::string> batches = nearest_batches(problem);
  return {.kind = ErrorKind::kJob,
          .source = "plan",
          .problem = fmt::format("nothing divides a global batch of {} on {}: tp x cp x pp x dp is the "
                                 "number of devices, and dp x mbs must divide the batch",
                                 counted(batch, "sample"), counted(devices, "device")),
          .advice = batches.empty()
                        ? std::string("Choose a global batch with more divisors, or another number of nodes.")
                        : fmt::format("A global batch of {} can be divided.", joined_or(batches))};
}

/// What would fit if nothing had to stay free, for messages; empty where nothing would.
std::string without_margin(const PlanProblem& problem, PlanSearchOptions options) {
  if (options.memory_margin == 0) return "";
  options.memory_margin = 0;
  const auto found = any_plan(problem, options, options.time_limit_s);
  if (!found) return "";
  const Result<PlanReport> report = simulate_plan(found->plan, {.profile = options.profile});
  if (!report) return "";
  const double free_bytes = report->memory_limit_bytes - report->peak_memory_bytes();
  // Rounded down, so that the figure can be used.
  const double percent = std::floor(free_bytes / report->memory_limit_bytes * 1000) / 10;
  return fmt::format(" Without the margin this fits and leaves {} free: {}; --memory-margin {:.4g} allows it.",
                     format_memory(free_bytes), found->candidate.text(found->plan), percent);
}

/// The part that takes most, for messages.
std::string where_it_goes(const FoundPlan& found, const Profile* profile) {
  const Result<PlanReport> report = simulate_plan(found.plan, {.profile = profile});
  if (!report) return "";
  const ScheduleRowReport& fullest = report->fullest();
  const MemoryPart& part = largest_part(fullest.memory);
  return fmt::format("; most of it on {}: {} ({})", fullest.name, part.heading,
                     format_memory(fullest.memory.*part.value));
}

}  // namespace

std::optional<LeastMemory> least_memory(const PlanProblem& problem, const PlanSearchOptions& options) {
  const Deadline deadline(options.time_limit_s, options.stop);
  constexpr double kCloseEnough = 0.01;
  PlanProblem larger = problem;
  double& gib = larger.cluster.device.memory_gib;
  double low = gib;
  std::optional<LeastMemory> least;
  while (!least && !deadline.is_over()) {
    gib *= 2;
    if (gib > kMostMemory * problem.cluster.device.memory_gib) return std::nullopt;
    if (auto found = any_plan(larger, options, seconds_left(deadline))) {
      least = LeastMemory{.gib = gib, .plan = *std::move(found)};
    } else {
      low = gib;
    }
  }
  while (least && least->gib - low > kCloseEnough * low && !deadline.is_over()) {
    gib = (low + least->gib) / 2;
    if (auto found = any_plan(larger, options, seconds_left(deadline))) {
      least = LeastMemory{.gib = gib, .plan = *std::move(found)};
    } else {
      low = gib;
    }
  }
  return least;
}

std::optional<int64_t> enough_nodes(const PlanProblem& problem, const PlanSearchOptions& options) {
  const Deadline deadline(options.time_limit_s, options.stop);
  PlanProblem larger = problem;
  constexpr int64_t kMostTimes = 256;
  for (int64_t times = 2; times <= kMostTimes && !deadline.is_over(); times *= 2) {
    larger.cluster.nodes = problem.cluster.nodes * times;
    if (any_plan(larger, options, std::min(kQuick_s, seconds_left(deadline)))) return larger.cluster.nodes;
  }
  return std::nullopt;
}

Error explain_no_plan(const PlanProblem& problem, const PlanSearchResult& result, const PlanSearchOptions& options) {
  if (result.counts.considered == 0) return no_candidates(problem);
  const double has_gib = problem.cluster.device.memory_gib;
  if (result.counts.left > 0) {
    return {.kind = ErrorKind::kJob,
            .source = "plan",
            .problem = fmt::format("no plan was found in the time given; {} of {} candidates were not looked at",
                                   with_commas(result.counts.left), with_commas(result.counts.considered)),
            .advice = "Raise --time-limit, or pin settings in a search file."};
  }
  // All of the advice shares the time; each part leaves some for the next ones.
  const Deadline deadline(options.time_limit_s, options.stop);
  const auto within = [&](double share) {
    PlanSearchOptions part = options;
    part.time_limit_s = share * seconds_left(deadline);
    return part;
  };
  if (auto error = find_too_few_microbatches(problem, within(0.5))) return *std::move(error);
  Error error{.kind = ErrorKind::kJob,
              .source = "plan",
              .problem = fmt::format("none of {} candidates fits in {:.4g} GiB a device",
                                     with_commas(result.counts.considered), has_gib)};
  if (options.memory_margin > 0)
    error.problem += fmt::format(", of which {:.4g} % stay free", 100 * options.memory_margin);
  if (const auto least = least_memory(problem, within(0.5))) {
    // Rounded up, so that the figure can be used.
    const double needed = std::ceil(least->gib * 10) / 10;
    error.problem += fmt::format(": at least {:.4g} GiB more are needed", std::max(0.1, needed - has_gib));
    error.advice =
        fmt::format("With {:.5g} GiB a device this fits: {}{}.", needed, least->plan.candidate.text(least->plan.plan),
                    where_it_goes(least->plan, options.profile));
  } else {
    error.advice = std::string("No larger device was found to be enough in the time given (--time-limit).");
  }
  if (const auto nodes = enough_nodes(problem, within(0.5))) {
    error.advice += fmt::format(" With devices of {:.4g} GiB, {} nodes are enough.", has_gib, *nodes);
  } else {
    error.advice += " No larger number of nodes was found to be enough in that time.";
  }
  error.advice += without_margin(problem, within(1));
  return error;
}

}  // namespace weft
