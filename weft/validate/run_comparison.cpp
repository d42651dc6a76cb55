#include "weft/validate/run_comparison.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/median.h"
#include "weft/base/text.h"
#include "weft/cost/apply_profile.h"
#include "weft/meaning/rank_row.h"
#include "weft/plan/diff.h"
#include "weft/program/module_kinds.h"
#include "weft/simulate/rank_memory.h"
#include "weft/simulate/step_memory.h"

namespace weft {
namespace {

constexpr int64_t kWarmUpSteps = 2;
/// Walks of a rank's memory through a step are made for every step only where they are this few.
constexpr int64_t kMostWalks = 512;

using ActionKey = std::tuple<ActionKind, int32_t, int32_t>;

ActionKey key_of(const Action& action) {
  return {action.kind, action.stage, action.microbatch};
}

double duration(const TimelineEvent& event) {
  return event.end_ms - event.start_ms;
}

/// What one step of one rank came to.
struct RankSums {
  std::map<ActionKind, std::pair<int64_t, Compared>> by_kind;
  std::map<ActionKind, Compared> communication;
  Compared busy;
};

struct StepSums {
  Compared step;
  Compared outside;  ///< of actions
  std::vector<RankSums> ranks;
};

RankSums sums_of(const std::vector<TimelineEvent>& measured, const std::vector<TimelineEvent>& predicted,
                 const std::vector<ActionTime>& times) {
  RankSums sums;
  std::map<ActionKey, const TimelineEvent*> found;
  std::set<ActionKey> in_both;
  for (const TimelineEvent& event : measured) found[key_of(event.action)] = &event;
  for (size_t i = 0; i < predicted.size(); ++i) {
    const TimelineEvent& event = predicted[i];
    const auto at = found.find(key_of(event.action));
    if (at == found.end()) continue;
    in_both.insert(at->first);
    const Compared ms{duration(event), duration(*at->second)};
    auto& [count, all] = sums.by_kind[event.action.kind];
    ++count;
    all.predicted += ms.predicted;
    all.measured += ms.measured;
    if (!is_work(event.action.kind)) continue;
    sums.busy.predicted += ms.predicted;
    sums.busy.measured += ms.measured;
    // What an update brings together is part of it on both sides.
    if (!is_pipeline_compute(event.action.kind) && !is_encoder_compute(event.action.kind)) continue;
    Compared& communication = sums.communication[event.action.kind];
    communication.predicted += times[i].communication_ms;
    communication.measured += at->second->blocked_ms;
  }
  // Receives are posted by a rank, and take no time of their own in a prediction.
  for (const TimelineEvent& event : measured) {
    if (in_both.contains(key_of(event.action))) continue;
    auto& [count, all] = sums.by_kind[event.action.kind];
    ++count;
    all.measured += duration(event);
  }
  return sums;
}

/// Before the first action of all ranks and after the last.
double measured_outside(const StepRecord& step) {
  double first = step.step_ms, last = 0;
  for (const RecordedRank& rank : step.ranks) {
    if (rank.events.empty()) continue;
    first = std::min(first, rank.events.front().start_ms);
    for (const TimelineEvent& event : rank.events) last = std::max(last, event.end_ms);
  }
  return std::clamp(first, 0.0, step.step_ms) + std::max(0.0, step.step_ms - std::max(last, first));
}

StepSums sums_of(const StepRecord& step, const PlayedStep& played) {
  StepSums sums{
      .step = {played.step_time_ms, step.step_ms}, .outside = {played.outside_ms, measured_outside(step)}, .ranks = {}};
  for (size_t rank = 0; rank < step.ranks.size(); ++rank)
    sums.ranks.push_back(sums_of(step.ranks[rank].events, played.timeline.ranks[rank], played.times[rank]));
  return sums;
}

/// The median over steps of both sides of something.
template <typename Value>
Compared median_over(const std::vector<StepSums>& steps, Value value) {
  std::vector<double> predicted, measured;
  for (const StepSums& step : steps) {
    const Compared compared = value(step);
    predicted.push_back(compared.predicted);
    measured.push_back(compared.measured);
  }
  return {median_of(std::move(predicted)), median_of(std::move(measured))};
}

std::vector<ComparedActions> compared_actions(const std::vector<StepSums>& steps) {
  std::map<ActionKind, int64_t> counts;
  for (const RankSums& rank : steps.front().ranks) {
    for (const auto& [kind, sum] : rank.by_kind) counts[kind] += sum.first;
  }
  std::vector<ComparedActions> all;
  for (const auto& [counted_kind, count] : counts) {
    const ActionKind kind = counted_kind;
    const auto number = static_cast<double>(count);
    const auto of_one = [&](const auto& value) {
      Compared sum = median_over(steps, [&](const StepSums& step) {
        Compared all_ranks;
        for (const RankSums& rank : step.ranks) {
          const Compared own = value(rank);
          all_ranks.predicted += own.predicted;
          all_ranks.measured += own.measured;
        }
        return all_ranks;
      });
      return Compared{sum.predicted / number, sum.measured / number};
    };
    all.push_back({.kind = kind,
                   .count = count,
                   .is_compute = is_work(kind),
                   .ms = of_one([&](const RankSums& rank) {
                     const auto found = rank.by_kind.find(kind);
                     return found == rank.by_kind.end() ? Compared() : found->second.second;
                   }),
                   .communication_ms = of_one([&](const RankSums& rank) {
                     const auto found = rank.communication.find(kind);
                     return found == rank.communication.end() ? Compared() : found->second;
                   })});
  }
  return all;
}

const char* words_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "forwards";
    case ActionKind::kBackward:
      return "backwards";
    case ActionKind::kBackwardInput:
      return "input gradients";
    case ActionKind::kBackwardWeight:
      return "weight gradients";
    case ActionKind::kUpdate:
      return "updates";
    case ActionKind::kEncodeForward:
      return "encoder forwards";
    case ActionKind::kEncodeBackward:
      return "encoder backwards";
    case ActionKind::kEncodeUpdate:
      return "encoder updates";
    default:
      return "transfers";
  }
}

std::string mend_of_compute(bool has_profile) {
  return has_profile
             ? "Learn from this run: 'weft profile --update RUN --out FILE', or profile again on a quiet machine."
             : "Measure the blocks: 'weft profile --model M --workload W --out FILE', then give --profile FILE.";
}

/// Parts of the mean rank's step.
std::vector<ComparedTerm> compared_terms(const std::vector<StepSums>& steps,
                                         const std::vector<ComparedActions>& actions, size_t num_ranks,
                                         bool has_profile) {
  const auto ranks = static_cast<double>(std::max<size_t>(1, num_ranks));
  std::vector<ComparedTerm> terms;
  Compared communication;
  for (const ComparedActions& action : actions) {
    if (!action.is_compute) continue;
    const double share = static_cast<double>(action.count) / ranks;
    const Compared& inside = action.communication_ms;
    communication.predicted += share * inside.predicted;
    communication.measured += share * inside.measured;
    const bool is_update = action.kind == ActionKind::kUpdate || action.kind == ActionKind::kEncodeUpdate;
    terms.push_back(
        {.name = words_of(action.kind),
         .ms = {share * (action.ms.predicted - inside.predicted), share * (action.ms.measured - inside.measured)},
         .mend = is_update && has_profile
                     ? "Measure updates again, or learn from this run: 'weft profile --update RUN --out FILE'."
                     : mend_of_compute(has_profile)});
  }
  terms.push_back({.name = "communication inside actions",
                   .ms = communication,
                   .mend =
                       "Measure the links: 'weft profile' on the ranks of the plan; else the cluster's bandwidth and "
                       "latency are off."});
  const Compared outside = median_over(steps, [](const StepSums& step) { return step.outside; });
  const Compared step = median_over(steps, [](const StepSums& s) { return s.step; });
  Compared busy;
  for (const ComparedTerm& term : terms) {
    busy.predicted += term.ms.predicted;
    busy.measured += term.ms.measured;
  }
  terms.push_back({.name = "waiting and transfers",
                   .ms = {std::max(0.0, step.predicted - busy.predicted - outside.predicted),
                          std::max(0.0, step.measured - busy.measured - outside.measured)},
                   .mend = "Ranks wait for each other longer or shorter than their own actions explain: look at both "
                           "timelines (--trace), and at what else the machine does."});
  terms.push_back({.name = "outside actions",
                   .ms = outside,
                   .mend = has_profile ? "Learn from this run: 'weft profile --update RUN --out FILE' sets step_ms."
                                       : "A profile knows it: 'weft profile --model M --workload W --out FILE'."});
  return terms;
}

/// What a rank is predicted to hold in a step; nothing where it cannot be said.
class MemoryPrediction {
 public:
  MemoryPrediction(const Plan& plan, const RunRecord& record)
      : plan_(plan), device_(record.header.device == "cpu" ? WalkedDevice::kProcessor : WalkedDevice::kGpu) {
    from_lengths_ = true;
    for (const StepRecord& step : record.steps) {
      from_lengths_ = from_lengths_ && step.load.has_value();
      const std::optional<std::string> misfit = misfit_of(step);
      if (!misfit) continue;
      from_lengths_ = false;
      warning_ = fmt::format("memory is not predicted from the steps' own lengths: of step {} {}", step.step, *misfit);
      break;
    }
    if (from_lengths_) return;
    if (auto ranks = memory_of_ranks(plan)) {
      for (const MemorySplit& rank : *ranks) of_plan_.push_back(rank.total() - rank.rounding - rank.reserved);
    }
  }

  bool is_from_lengths() const { return from_lengths_; }
  /// Why it is not, where lengths were written down.
  const std::optional<std::string>& warning() const { return warning_; }

  std::optional<double> of(const StepRecord& step, int64_t rank) const {
    if (!from_lengths_) {
      return of_plan_.empty() ? std::nullopt : std::optional(of_plan_[static_cast<size_t>(rank)]);
    }
    const auto memory = step_memory(plan_, step.load->step_load(), rank, device_);
    if (!memory) return std::nullopt;
    return static_cast<double>(memory->peak_bytes());
  }

 private:
  std::optional<std::string> misfit_of(const StepRecord& step) const {
    if (step.load_is_too_large) return "more numbers were written down than are read of a record";
    if (!step.load) return std::nullopt;
    if (auto misfit = find_misfit(plan_, *step.load)) return misfit;
    return find_other_lengths(*step.load, step.samples);
  }

  const Plan& plan_;
  WalkedDevice device_;
  bool from_lengths_ = false;
  std::optional<std::string> warning_;
  std::vector<double> of_plan_;
};

void compare_memory(const Plan& plan, const RunRecord& record, RunComparison& comparison) {
  const MemoryPrediction prediction(plan, record);
  if (prediction.warning()) comparison.warnings.push_back(*prediction.warning());
  comparison.memory_from = prediction.is_from_lengths() ? "the step's own lengths" : "a high load of the plan";
  const auto num_ranks = static_cast<int64_t>(comparison.ranks.size());
  const bool walks_all = num_ranks * static_cast<int64_t>(record.steps.size()) <= kMostWalks;
  for (size_t s = 0; s < record.steps.size(); ++s) {
    const StepRecord& step = record.steps[s];
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      ComparedRank& own = comparison.ranks[static_cast<size_t>(rank)];
      const double held = step.ranks[static_cast<size_t>(rank)].peak_bytes;
      const bool is_most = !own.memory_bytes || held > own.memory_bytes->measured;
      if (held <= 0 || (!walks_all && !is_most)) continue;
      const auto predicted = prediction.of(step, rank);
      if (!predicted) continue;
      const Compared memory{*predicted, held};
      if (memory.measured > memory.predicted) comparison.memory_is_exceeded = true;
      if (is_most) own.memory_bytes = memory;
      auto& of_step = comparison.steps[s].memory_bytes;
      if (!of_step || memory.measured > of_step->measured) of_step = memory;
    }
  }
}

/// Where a step spends the median time, both sides.
Timeline overlaid(const StepRecord& step, const PlayedStep& played) {
  Timeline timeline;
  for (size_t rank = 0; rank < step.ranks.size(); ++rank) {
    timeline.ranks.push_back(step.ranks[rank].events);
    timeline.rank_names.push_back(fmt::format("rank {}, measured", rank));
    timeline.ranks.push_back(played.timeline.ranks[rank]);
    timeline.rank_names.push_back(fmt::format("rank {}, predicted", rank));
  }
  timeline.encoder_names = played.timeline.encoder_names;
  timeline.makespan_ms = std::max(step.step_ms, played.makespan_ms);
  return timeline;
}

Json to_json(const Compared& compared, const char* unit) {
  return {{std::string("predicted_") + unit, compared.predicted},
          {std::string("measured_") + unit, compared.measured},
          {"error_percent", compared.error_percent()}};
}

}  // namespace

bool is_work(ActionKind kind) {
  return is_pipeline_compute(kind) || is_encoder_compute(kind) || kind == ActionKind::kUpdate ||
         kind == ActionKind::kEncodeUpdate;
}

const ComparedTerm& RunComparison::most_wrong() const {
  return *std::max_element(terms.begin(), terms.end(), [](const ComparedTerm& a, const ComparedTerm& b) {
    return std::abs(a.ms.difference()) < std::abs(b.ms.difference());
  });
}

const ComparedRank* RunComparison::fullest() const {
  const ComparedRank* fullest = nullptr;
  for (const ComparedRank& rank : ranks) {
    if (!rank.memory_bytes) continue;
    if (fullest == nullptr || rank.memory_bytes->measured > fullest->memory_bytes->measured) fullest = &rank;
  }
  return fullest;
}

std::optional<Error> check_same_run(const Plan& plan, const Plan& ran, const std::string& run_folder) {
  std::vector<Difference> differences = diff_plans(ran, plan);
  std::erase_if(differences, [](const Difference& difference) { return is_of_prediction(difference.field); });
  if (differences.empty()) return std::nullopt;
  const auto side = [](const std::string& value) { return value.empty() ? std::string("missing") : value; };
  const Difference& first = differences.front();
  Error error{.source = run_folder,
              .field = first.field,
              .problem = fmt::format("is of another plan: it is {} there, but {} in this plan", side(first.before),
                                     side(first.after)),
              .advice = fmt::format("Give --plan {}/plan.json, with which it ran.", run_folder)};
  for (const Difference& difference : differences) {
    error.details +=
        fmt::format("{}: {} in the run, {} here\n", difference.field, side(difference.before), side(difference.after));
  }
  return error;
}

std::vector<const StepRecord*> settled_steps(const RunRecord& record) {
  // With few steps, one that is not the very first is better than none.
  for (const int64_t warm_up : {kWarmUpSteps, int64_t{1}, int64_t{0}}) {
    std::vector<const StepRecord*> settled;
    for (const StepRecord& step : record.steps) {
      if (step.steps_before >= warm_up) settled.push_back(&step);
    }
    if (settled.size() > 2 || (warm_up < kWarmUpSteps && !settled.empty())) return settled;
  }
  return {};
}

std::optional<Error> find_foreign_step(const Plan& plan, const Schedule& schedule, const RunRecord& record) {
  // Older files do not say which plan.
  if (!record.header.plan.empty() && record.header.plan != work_hash(plan)) {
    return Error{.source = record.source,
                 .field = "plan",
                 .problem = fmt::format("is {}, but this plan has {}", in_quotes(record.header.plan), work_hash(plan)),
                 .advice = "The record is of another plan, or was changed. Give the plan.json of its run folder."};
  }
  for (const StepRecord& step : record.steps) {
    const auto refuse = [&](std::string problem) {
      return Error{.source = record.source,
                   .field = fmt::format("step {}", step.step),
                   .problem = std::move(problem),
                   .advice = "The record is of another plan, or was changed. Give the plan.json of its run folder."};
    };
    if (std::ssize(step.ranks) != plan.world_size)
      return refuse(fmt::format("has {}, the plan {}", counted(std::ssize(step.ranks), "rank"), plan.world_size));
    if (std::ssize(step.samples) != plan.workload.global_batch_samples)
      return refuse(fmt::format("has {}, a batch of the plan {}", counted(std::ssize(step.samples), "sample"),
                                plan.workload.global_batch_samples));
    for (const SampleLoad& sample : step.samples) {
      if (num_tokens(sample.llm) <= 0) return refuse("has a sample without tokens");
      for (const ModuleKind kind : kEncoderKinds) {
        if (!sample.of(kind).empty() && plan.model.find(kind) == nullptr)
          return refuse(fmt::format("has samples with {}, for which the model has no encoder", name_of(kind)));
      }
    }
    for (int64_t rank = 0; rank < plan.world_size; ++rank) {
      const auto& events = step.ranks[static_cast<size_t>(rank)].events;
      const auto row = row_of_rank(plan, schedule, rank);
      const std::vector<Action>& actions = row ? schedule.rows[static_cast<size_t>(*row)] : std::vector<Action>();
      const bool is_same =
          std::equal(events.begin(), events.end(), actions.begin(), actions.end(),
                     [](const TimelineEvent& event, const Action& action) { return event.action == action; });
      if (!is_same) return refuse(fmt::format("rank {} did other actions than the plan has", rank));
    }
  }
  return std::nullopt;
}

Result<RunComparison> compare_run(const Plan& given, const RunRecord& record, const Profile* profile) {
  Plan plan = given;
  RunComparison comparison;
  if (profile != nullptr) comparison.warnings = apply_profile(*profile, plan).warnings;
  WEFT_TRY(PlanSimulator simulator, PlanSimulator::create(plan, profile));
  WEFT_TRY(const Schedule schedule, playable_schedule(plan));
  if (auto error = find_foreign_step(plan, schedule, record)) return *std::move(error);
  const SampleWork work(plan, simulator.costs());
  const std::vector<const StepRecord*> settled = settled_steps(record);
  std::vector<StepSums> sums;
  std::vector<double> ratios;
  std::vector<std::pair<const StepRecord*, PlayedStep>> played_steps;
  for (const StepRecord& step : record.steps) {
    PlayedStep played =
        play_step(simulator, plan, schedule, work, step.samples, profile == nullptr ? 0 : profile->step_ms);
    const bool counts = std::find(settled.begin(), settled.end(), &step) != settled.end();
    comparison.steps.push_back(
        {.step = step.step, .is_warm_up = !counts, .ms = {played.step_time_ms, step.step_ms}, .memory_bytes = {}});
    if (!counts) continue;
    sums.push_back(sums_of(step, played));
    ratios.push_back(step.step_ms / played.step_time_ms);
    played_steps.emplace_back(&step, std::move(played));
  }
  comparison.step_ms = median_over(sums, [](const StepSums& step) { return step.step; });
  comparison.noise_percent = 100 * median_error(ratios) / std::max(1e-12, median_of(ratios));
  comparison.actions = compared_actions(sums);
  for (int64_t rank = 0; rank < plan.world_size; ++rank) {
    const auto at = static_cast<size_t>(rank);
    const Compared busy = median_over(sums, [&](const StepSums& step) { return step.ranks[at].busy; });
    const Compared waiting = median_over(sums, [&](const StepSums& step) {
      const Compared& own = step.ranks[at].busy;
      return Compared{std::max(0.0, step.step.predicted - step.outside.predicted - own.predicted),
                      std::max(0.0, step.step.measured - step.outside.measured - own.measured)};
    });
    comparison.ranks.push_back({.rank = rank, .busy_ms = busy, .waiting_ms = waiting, .memory_bytes = {}});
  }
  comparison.terms = compared_terms(sums, comparison.actions, comparison.ranks.size(), profile != nullptr);
  compare_memory(plan, record, comparison);
  const auto nearest = std::min_element(played_steps.begin(), played_steps.end(), [&](const auto& a, const auto& b) {
    return std::abs(a.first->step_ms - comparison.step_ms.measured) <
           std::abs(b.first->step_ms - comparison.step_ms.measured);
  });
  comparison.timeline = overlaid(*nearest->first, nearest->second);
  const RunHeader& header = record.header;
  if (header.cores > 0 && header.ranks_here * header.threads_per_rank > header.cores) {
    comparison.warnings.push_back(fmt::format(
        "{} with {} each computed on {}: a prediction is for a device of its own for each rank; run no more "
        "ranks than cores to compare",
        counted(header.ranks_here, "rank"), counted(header.threads_per_rank, "thread"), counted(header.cores, "core")));
  }
  if (record.num_other_plan_steps > 0) {
    comparison.warnings.push_back(fmt::format("left out: {} by other plans that the run followed before",
                                              counted(record.num_other_plan_steps, "recorded step")));
  }
  if (settled.size() < 5) {
    comparison.warnings.push_back(fmt::format("only {} without warm-up: the median is not sure; train some more",
                                              counted(std::ssize(settled), "step")));
  } else if (comparison.noise_percent > 5) {
    comparison.warnings.push_back(fmt::format(
        "steps of this run scatter: their median is known to {:.1f} % only, and smaller errors say nothing; stop what "
        "else runs on the machine and train again",
        comparison.noise_percent));
  }
  for (std::string& warning : simulator.costs().warnings()) comparison.warnings.push_back(std::move(warning));
  return comparison;
}

Json to_json(const RunComparison& comparison) {
  Json json = {
      {"step_time_ms", {{"predicted", comparison.step_ms.predicted}, {"measured", comparison.step_ms.measured}}},
      {"step_time_error_percent", comparison.step_ms.error_percent()},
      {"noise_percent", comparison.noise_percent}};
  const ComparedRank* fullest = comparison.fullest();
  json["memory_bytes"] = fullest == nullptr ? Json()
                                            : Json{{"predicted", fullest->memory_bytes->predicted},
                                                   {"measured", fullest->memory_bytes->measured},
                                                   {"rank", fullest->rank}};
  json["memory_error_percent"] = fullest == nullptr ? Json() : Json(fullest->memory_bytes->error_percent());
  json["memory_is_exceeded"] = comparison.memory_is_exceeded;
  json["memory_from"] = comparison.memory_from;
  const ComparedTerm& worst = comparison.most_wrong();
  json["most_wrong"] = {{"term", worst.name},
                        {"difference_ms", worst.ms.difference()},
                        {"of_step_percent", 100 * worst.ms.difference() / std::max(1e-12, comparison.step_ms.measured)},
                        {"mend", worst.mend}};
  json["terms"] = Json::array();
  for (const ComparedTerm& term : comparison.terms) {
    Json entry = {{"term", term.name}};
    entry.update(to_json(term.ms, "ms"));
    json["terms"].push_back(std::move(entry));
  }
  json["actions"] = Json::array();
  for (const ComparedActions& action : comparison.actions) {
    Json entry = {{"kind", name_of(action.kind)}, {"count", action.count}, {"is_compute", action.is_compute}};
    entry.update(to_json(action.ms, "ms"));
    entry["predicted_communication_ms"] = action.communication_ms.predicted;
    entry["measured_communication_ms"] = action.communication_ms.measured;
    json["actions"].push_back(std::move(entry));
  }
  json["ranks"] = Json::array();
  for (const ComparedRank& rank : comparison.ranks) {
    Json entry = {
        {"rank", rank.rank}, {"busy", to_json(rank.busy_ms, "ms")}, {"waiting", to_json(rank.waiting_ms, "ms")}};
    if (rank.memory_bytes) entry["memory"] = to_json(*rank.memory_bytes, "bytes");
    json["ranks"].push_back(std::move(entry));
  }
  json["steps"] = Json::array();
  for (const ComparedStep& step : comparison.steps) {
    Json entry = {{"step", step.step}, {"is_warm_up", step.is_warm_up}};
    entry.update(to_json(step.ms, "ms"));
    if (step.memory_bytes) entry["memory"] = to_json(*step.memory_bytes, "bytes");
    json["steps"].push_back(std::move(entry));
  }
  json["warnings"] = comparison.warnings;
  return json;
}

}  // namespace weft
