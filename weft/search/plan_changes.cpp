#include "weft/search/plan_changes.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/meaning/check.h"
#include "weft/meaning/trainable.h"
#include "weft/meaning/weight_copies.h"
#include "weft/plan/diff.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

/// What all blocks of a module do alike, or nothing.
std::optional<BlockRecompute> common_recompute(const ModulePlan& module) {
  std::optional<BlockRecompute> common;
  for (size_t rank = 0; rank < module.layers.size(); ++rank) {
    for (size_t chunk = 0; chunk < module.layers[rank].size(); ++chunk) {
      const int64_t layers = module.layers[rank][chunk];
      if (layers == 0) continue;
      const auto runs = module.recompute_of(rank, chunk);
      const BlockRecompute what = runs.empty() ? BlockRecompute::kKeep : runs.front().what;
      const bool is_whole = runs.empty() || (runs.size() == 1 && runs.front().blocks == layers);
      if (!is_whole || (common && *common != what)) return std::nullopt;
      common = what;
    }
  }
  return common;
}

void recompute_all(ModulePlan& module, BlockRecompute what) {
  module.recompute.assign(module.layers.size(), {});
  for (size_t rank = 0; rank < module.layers.size(); ++rank) {
    for (const int64_t layers : module.layers[rank]) {
      Recompute chunk;
      chunk.add(what, layers);
      module.recompute[rank].push_back(chunk);
    }
  }
}

bool has_same_modules(const Plan& a, const Plan& b) {
  return std::equal(a.modules.begin(), a.modules.end(), b.modules.begin(), b.modules.end(),
                    [](const ModulePlan& x, const ModulePlan& y) { return x.kind == y.kind; });
}

using Change = void (*)(const Plan& to, Plan& plan);

void change_shared(const Plan& to, Plan& plan) {
  plan.precision = to.precision;
  plan.buckets_mb = to.buckets_mb;
  plan.overlap_dp = to.overlap_dp;
  plan.overlap_tp = to.overlap_tp;
}

void change_balance(const Plan& to, Plan& plan) {
  plan.balance = to.balance;
  plan.offload = to.offload;
}

void change_zero(const Plan& to, Plan& plan) {
  for (size_t i = 0; i < plan.modules.size(); ++i) {
    plan.modules[i].zero = to.modules[i].zero;
    plan.modules[i].zero_keep_gathered = to.modules[i].zero_keep_gathered;
  }
}

void change_sequence_parallel(const Plan& to, Plan& plan) {
  for (size_t i = 0; i < plan.modules.size(); ++i)
    plan.modules[i].sequence_parallel = to.modules[i].sequence_parallel && plan.modules[i].tp > 1;
}

void change_recompute(const Plan& to, Plan& plan) {
  for (size_t i = 0; i < plan.modules.size(); ++i) {
    ModulePlan& module = plan.modules[i];
    const auto common = common_recompute(to.modules[i]);
    if (common && common == common_recompute(module)) {
      // An empty list and one of blocks that keep everything are the same.
    } else if (module.layers == to.modules[i].layers) {
      module.recompute = to.modules[i].recompute;
    } else if (common) {
      recompute_all(module, *common);
    }
    module.recompute_from_inputs = to.modules[i].recompute_from_inputs;
    module.recompute_logits = to.modules[i].recompute_logits;
  }
}

/// The same batch in other microbatches.
void change_mbs(const Plan& to, Plan& plan) {
  const int64_t samples = plan.workload.global_batch_samples;
  if (samples % (to.schedule.mbs * plan.llm().dp) != 0) return;
  plan.schedule.mbs = to.schedule.mbs;
  plan.schedule.microbatches = samples / (to.schedule.mbs * plan.llm().dp);
}

void change_schedule(const Plan& to, Plan& plan) {
  if (plan.llm().vpp != to.llm().vpp) return;
  plan.schedule.name = to.schedule.name;
  plan.schedule.rows = to.schedule.rows;
}

void change_layers(const Plan& to, Plan& plan) {
  for (size_t i = 0; i < plan.modules.size(); ++i) {
    ModulePlan& module = plan.modules[i];
    if (module.pp != to.modules[i].pp || module.vpp != to.modules[i].vpp || module.placement != to.modules[i].placement)
      return;
    const auto common = common_recompute(module);
    module.layers = to.modules[i].layers;
    if (common) {
      recompute_all(module, *common);
    } else {
      module.recompute = to.modules[i].recompute;
    }
  }
}

/// What operators of a program do on an axis that stays.
void change_strategy(const Plan& to, Plan& plan) {
  if (plan.llm().tp != to.llm().tp) return;
  plan.modules.back().strategy = to.llm().strategy;
  plan.model = to.model;
}

/// Degrees, ranks and layers. What can stay as it was does: recomputation that is the same everywhere, ZeRO, mbs.
void change_degrees(const Plan& to, Plan& plan) {
  const Plan before = plan;
  plan.modules = to.modules;
  plan.model = to.model;  // which has the strategies of its modules
  plan.idle_ranks = to.idle_ranks;
  for (size_t i = 0; i < plan.modules.size(); ++i) {
    ModulePlan& module = plan.modules[i];
    const ModulePlan& old = before.modules[i];
    if (const auto common = common_recompute(old)) recompute_all(module, *common);
    module.zero = effective_zero(old.zero, num_weight_copies(module));
    module.zero_keep_gathered = old.zero_keep_gathered && may_keep_gathered(module.zero);
    module.sequence_parallel = old.sequence_parallel && module.tp > 1;
    module.recompute_from_inputs = old.recompute_from_inputs;
    module.recompute_logits = old.recompute_logits;
  }
  plan.schedule = to.schedule;
  change_mbs(before, plan);
}

constexpr Change kChanges[] = {change_shared,  change_zero,   change_sequence_parallel, change_recompute,
                               change_mbs,     change_layers, change_schedule,          change_strategy,
                               change_degrees, change_balance};

/// Without what makes no difference: a list of blocks that keep everything, ZeRO of a module that is not trained.
Plan with_what_matters(Plan plan) {
  for (ModulePlan& module : plan.modules) {
    if (common_recompute(module) == BlockRecompute::kKeep) module.recompute.clear();
    if (!trains(plan, module.kind)) module.zero = 0;
  }
  return plan;
}

/// "tp 8 -> 2": what a person would call the fields.
std::string words_of(const Plan& before, const Plan& after) {
  std::vector<std::string> words;
  for (const Difference& difference : diff_plans(with_what_matters(before), with_what_matters(after))) {
    std::string field = difference.field;
    for (const char* prefix : {"modules.llm.", "modules.", "schedule."}) {
      if (field.starts_with(prefix)) field.erase(0, std::string_view(prefix).size());
    }
    if (field.starts_with("predicted") || field == "batches" || field.ends_with("ranks") || field.ends_with("actions"))
      continue;
    const size_t bracket = field.find('[');
    if (bracket != std::string::npos) field.resize(bracket);
    constexpr size_t kLongest = 24;
    const bool is_short = bracket == std::string::npos && difference.before.size() <= kLongest &&
                          difference.after.size() <= kLongest && !difference.before.empty() &&
                          !difference.after.empty();
    const std::string text = is_short ? fmt::format("{} {} -> {}", field, difference.before, difference.after) : field;
    if (std::find(words.begin(), words.end(), text) == words.end()) words.push_back(text);
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

class ChangeWalk {
 public:
  ChangeWalk(const Plan& from, const Plan& to, const Profile* profile) : plan_(from), to_(to), profile_(profile) {}

  Result<std::vector<PlanChange>> run() {
    plan_.batches = to_.batches;
    plan_.batch_seed = to_.batch_seed;
    plan_.predicted = to_.predicted;
    WEFT_TRY(report_, simulate_plan(plan_, {.profile = profile_}));
    if (has_same_modules(plan_, to_)) {
      // Some settings can only change once others have.
      for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (const Change change : kChanges) {
          Plan next = plan_;
          change(to_, next);
          if (words_of(plan_, next).empty() || !check_plan(next, PlanUse::kPrice).empty()) continue;
          // A change that has been undone by another would come back for ever.
          if (++num_changes_ > kMost) break;
          WEFT_TRY(const bool is_taken, take(next));
          goes_on |= is_taken;
        }
      }
    }
    if (!words_of(plan_, to_).empty()) {
      WEFT_TRY(const bool is_taken, take(to_));
      (void)is_taken;
    }
    return std::move(changes_);
  }

 private:
  static constexpr int kMost = 30;

  Result<bool> take(const Plan& next) {
    WEFT_TRY(PlanReport report, simulate_plan(next, {.profile = profile_}));
    changes_.push_back({.words = words_of(plan_, next),
                        .saved_ms = report_.step_time_ms - report.step_time_ms,
                        .fits = report.fits(),
                        .parts = explain_difference(report, report_)});
    plan_ = next;
    report_ = std::move(report);
    return true;
  }

  Plan plan_;
  const Plan& to_;
  const Profile* profile_;
  PlanReport report_;
  std::vector<PlanChange> changes_;
  int num_changes_ = 0;
};

}  // namespace

Result<std::vector<PlanChange>> changes_between(const Plan& from, const Plan& to, const Profile* profile) {
  return ChangeWalk(from, to, profile).run();
}

}  // namespace weft
