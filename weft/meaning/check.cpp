#include "weft/meaning/check.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/product.h"
#include "weft/base/text.h"
#include "weft/meaning/macro_batch.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/meaning/rank_groups.h"
#include "weft/meaning/stage_parts.h"
#include "weft/meaning/trainable.h"
#include "weft/meaning/unobeyed.h"
#include "weft/plan/head_limit.h"
#include "weft/plan/mbs_scale.h"
#include "weft/plan/module_mesh.h"
#include "weft/plan/rank_set.h"
#include "weft/program/adapter_ops.h"
#include "weft/schedule/generators.h"
#include "weft/schedule/lowering.h"
#include "weft/schedule/validate.h"
#include "weft/spec/num_experts.h"

namespace weft {
namespace {

/// The divisors of a number that are nearest to a value, one on each side: "2 and 4".
std::string nearest_divisors(int64_t number, int64_t value) {
  int64_t below = 0, above = 0;
  for (int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    for (const int64_t divisor : {d, number / d}) {
      if (divisor < value) below = std::max(below, divisor);
      if (divisor > value && (above == 0 || divisor < above)) above = divisor;
    }
  }
  if (below == 0 || above == 0) return std::to_string(std::max(below, above));
  return fmt::format("{} and {}", below, above);
}

/// What a factor would have to be for a product to come out.
std::string factor_advice(std::string_view name, int64_t others, int64_t product) {
  if (others >= 1 && product % others == 0) return fmt::format("{} {} makes {}", name, product / others, product);
  if (product < others) return fmt::format("the other factors alone make {}: make one of them smaller", others);
  return fmt::format("that is no multiple of {}, which the other factors make: change one of them", others);
}

std::string are_or_is(const std::string& names) {
  return fmt::format("{} {}", names.find(' ') == std::string::npos ? "is" : "are", names);
}

class Checker {
 public:
  Checker(const Plan& plan, PlanUse use) : plan_(plan), llm_(plan.llm()), use_(use) {}

  std::vector<Violation> run() {
    check_modules_match_the_model();
    for (const ModulePlan& module : plan_.modules) {
      module_ = &module;
      check_product();
      check_axis_order();
      check_ranks();
      check_shares();
      check_layers();
      check_recompute();
      if (!plan_.model.numbers.program && !module.strategy.is_empty()) check_recomputed_attention("with a strategy");
      check_heads();
      check_experts();
      if (module.is_encoder()) {
        check_encoder_placement();
        check_encoder_form();
        check_macro_batch();
      } else {
        check_llm();
      }
    }
    check_coverage();
    check_batch();
    if (violations_.empty()) violations_ = find_bad_rules(plan_);
    if (use_ == PlanUse::kTrain) {
      for (Violation& violation : find_unobeyed(plan_)) violations_.push_back(std::move(violation));
    }
    check_schedule();
    check_encoder_ends();
    return std::move(violations_);
  }

 private:
  void add(const std::string& field, std::string message) { violations_.push_back({field, std::move(message)}); }
  void add_here(const std::string& field, std::string message) {
    add(fmt::format("modules.{}.{}", name_of(module_->kind), field), std::move(message));
  }
  const Module* spec() const { return plan_.model.find(module_->kind); }
  bool is_inline() const { return module_->placement == ModulePlacement::kInline; }

  void check_modules_match_the_model() {
    for (const ModulePlan& module : plan_.modules) {
      if (plan_.model.find(module.kind) == nullptr) {
        add(fmt::format("modules.{}", name_of(module.kind)),
            fmt::format("the model {} has no such module, only {}; remove it", plan_.model.name, names_of_modules()));
      }
    }
    for (const Module& module : plan_.model.modules) {
      if (plan_.find(module.kind) == nullptr) {
        add(fmt::format("modules.{}", name_of(module.kind)),
            fmt::format("is missing, but the model {} has it; give it ranks and degrees, or plan again",
                        plan_.model.name));
      }
    }
  }

  std::string names_of_modules() const {
    std::vector<std::string> names;
    for (const Module& module : plan_.model.modules) names.emplace_back(name_of(module.kind));
    return fmt::format("{}", fmt::join(names, " and "));
  }

  void check_product() {
    const ModulePlan& m = *module_;
    const int64_t product = product_of({m.tp, m.cp, m.pp, m.dp});
    if (product != static_cast<int64_t>(m.ranks.size())) {
      add_here("ranks", fmt::format("tp {} × cp {} × pp {} × dp {} = {}, but the module has {} ranks; {}", m.tp, m.cp,
                                    m.pp, m.dp, product, m.ranks.size(),
                                    factor_advice("dp", product_of({m.tp, m.cp, m.pp}), std::ssize(m.ranks))));
    }
  }

  void check_axis_order() {
    const ModulePlan& m = *module_;
    std::multiset<std::string> wanted = {"tp", "cp", "dp"};
    if (m.pp > 1 || std::find(m.axis_order.begin(), m.axis_order.end(), "pp") != m.axis_order.end())
      wanted.insert("pp");
    if (std::multiset<std::string>(m.axis_order.begin(), m.axis_order.end()) != wanted) {
      add_here("axis_order", fmt::format("is [{}], but each of tp, cp, dp{} must be there once",
                                         fmt::join(m.axis_order, ", "), m.pp > 1 ? " and pp" : ""));
    }
  }

  void check_ranks() {
    std::vector<int64_t> sorted = module_->ranks;
    std::sort(sorted.begin(), sorted.end());
    if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
      add_here("ranks", fmt::format("names rank {} twice", *twice));
    }
    if (!sorted.empty() && sorted.back() >= plan_.world_size) {
      add_here("ranks", fmt::format("names rank {}, but world_size is {}: ranks are 0 to {}", sorted.back(),
                                    plan_.world_size, plan_.world_size - 1));
    }
  }

  void check_shares() {
    const ModulePlan& m = *module_;
    if (m.cp % m.cp_ulysses != 0) {
      add_here("cp_ulysses", fmt::format("is {}, which does not divide cp {}; nearest {}", m.cp_ulysses, m.cp,
                                         are_or_is(nearest_divisors(m.cp, m.cp_ulysses))));
    }
    if (m.sequence_parallel && m.tp == 1)
      add_here("sequence_parallel", "is on, but tp is 1: there is nothing to share");
  }

  void check_layers() {
    const ModulePlan& m = *module_;
    // An inline encoder's blocks lie in the llm's stages.
    const int64_t pp = is_inline() ? llm_.pp : m.pp;
    const int64_t vpp = is_inline() ? llm_.vpp : m.vpp;
    const bool has_rows = m.is_in_pipeline() && plan_.schedule.rows.has_value();
    if (has_rows ? !has_chunks_of_rows(m) : !has_shape(m.layers, pp, vpp)) {
      add_here("layers", has_rows ? fmt::format("must have a row for each of schedule.rows, with an entry for each of "
                                                "its stages: [{}]",
                                                fmt::join(plan_.schedule.rows->chunks, ", "))
                                  : fmt::format("must have {} rows (pp) of {} entries (vpp)", pp, vpp));
      return;
    }
    int64_t sum = 0;
    for (const auto& row : m.layers) sum += std::accumulate(row.begin(), row.end(), int64_t{0});
    const auto expected = static_cast<int64_t>(spec() == nullptr ? 0 : spec()->layers.size());
    if (spec() != nullptr && sum != expected) {
      add_here("layers", fmt::format("add up to {}, but the module has {} layers", sum, expected));
    }
  }

  bool has_chunks_of_rows(const ModulePlan& module) const {
    const std::vector<int64_t>& chunks = plan_.schedule.rows->chunks;
    return std::equal(module.layers.begin(), module.layers.end(), chunks.begin(), chunks.end(),
                      [](const auto& row, int64_t count) { return static_cast<int64_t>(row.size()) == count; });
  }

  template <typename T>
  static bool has_shape(const std::vector<std::vector<T>>& rows, int64_t num_rows, int64_t num_columns) {
    return static_cast<int64_t>(rows.size()) == num_rows && std::all_of(rows.begin(), rows.end(), [&](const auto& row) {
             return static_cast<int64_t>(row.size()) == num_columns;
           });
  }

  void check_recompute() {
    const ModulePlan& m = *module_;
    if (m.recompute.empty()) return;
    if (m.recompute.size() != m.layers.size()) {
      add_here("recompute", fmt::format("has {} rows, but layers has {}", m.recompute.size(), m.layers.size()));
      return;
    }
    for (size_t rank = 0; rank < m.layers.size(); ++rank) {
      if (m.recompute[rank].size() != m.layers[rank].size()) {
        add_here(fmt::format("recompute[{}]", rank),
                 fmt::format("has {} entries, but layers[{}] has {}", m.recompute[rank].size(), rank,
                             m.layers[rank].size()));
        continue;
      }
      for (size_t chunk = 0; chunk < m.layers[rank].size(); ++chunk) {
        const Recompute& recompute = m.recompute[rank][chunk];
        if (recompute.num_blocks() <= m.layers[rank][chunk]) continue;
        add_here(fmt::format("recompute[{}][{}]", rank, chunk),
                 fmt::format("is about {}, but the chunk has {}", counted(recompute.num_blocks(), "block"),
                             m.layers[rank][chunk]));
      }
    }
  }

  void check_heads() {
    if (spec() == nullptr) return;
    const ModulePlan& m = *module_;
    const HeadLimit limit = head_limit(*spec());
    if (limit.allows(m.tp, m.cp_ulysses)) return;
    if (m.tp > 1 && limit.are_normed_together) {
      add_here(
          "tp",
          fmt::format("is {}, but all heads of a row are normed together, which takes them on one rank; use 1", m.tp));
      return;
    }
    if (m.tp > limit.heads) {
      add_here("tp",
               fmt::format("is {}, but there are only {} heads to share out; tp is at most that", m.tp, limit.heads));
      return;
    }
    // What is left of cp is a ring.
    const int64_t ulysses = limit.largest_divisor(m.tp, m.cp);
    add_here(
        "cp_ulysses",
        fmt::format("is {}, but with tp {} a rank has as few as {} of the {} heads to exchange; cp_ulysses {} with "
                    "a ring of {} makes cp {}",
                    m.cp_ulysses, m.tp, limit.fewest(m.tp), limit.heads, ulysses, m.cp / ulysses, m.cp));
  }

  void check_experts() {
    const ModulePlan& m = *module_;
    if (m.experts_over_tp) check_experts_over_tp();
    if (m.ep == 1 || spec() == nullptr) return;
    const int64_t experts = num_experts(*spec());
    if (experts <= 1) {
      add_here("ep", fmt::format("is {}, but the module has no experts; use 1", m.ep));
      return;
    }
    const int64_t shared = product_of({m.dp, m.cp, m.experts_over_tp ? m.tp : 1});
    const std::string advice = fmt::format("; of what divides both {} experts and {} {}, nearest {}", experts,
                                           m.experts_over_tp ? "tp·dp·cp" : "dp·cp", shared,
                                           are_or_is(nearest_divisors(std::gcd(experts, shared), m.ep)));
    if (experts % m.ep != 0)
      add_here("ep", fmt::format("is {}, which does not divide {} experts{}", m.ep, experts, advice));
    if (shared % m.ep != 0)
      add_here("ep", fmt::format("is {}, which does not divide {}dp {} × cp {} = {}{}", m.ep,
                                 m.experts_over_tp ? fmt::format("tp {} × ", m.tp) : "", m.dp, m.cp, shared, advice));
    if (!Trainable(plan_).reaches_experts_alike())
      add_here("ep", fmt::format("is {}, but an encoder is trained and some experts lie before all that is trained in "
                                 "the llm: microbatches with media go back through them and others do not, so that "
                                 "ranks would wait for each other; use 1, or train the llm from its first layer on",
                                 m.ep));
  }

  /// Every tensor-parallel rank routes rows of its own, which sequence parallelism gives it.
  void check_experts_over_tp() {
    const ModulePlan& m = *module_;
    if (m.tp == 1 || m.ep == 1) {
      add_here("experts_over_tp",
               fmt::format("is on, but {} is 1: there is nothing to spread; use false", m.tp == 1 ? "tp" : "ep"));
    } else if (!m.sequence_parallel) {
      add_here(
          "experts_over_tp",
          "is on, but sequence_parallel is off: tensor-parallel ranks then have the same rows, and experts would get "
          "each row from all of them; use sequence_parallel, or experts that tp cuts");
    }
  }

  void check_llm() {
    if (module_->placement != ModulePlacement::kBase)
      add_here("placement", "must be base: the llm is what encoders are placed against");
    if (module_->recompute_logits && spec() != nullptr) check_logits();
    if (plan_.model.numbers.program) check_program();
  }

  /// What a user's own program cannot do yet, or does not say how to.
  void check_program() {
    const ModulePlan& m = *module_;
    if (m.pp * m.vpp > 1 && !plan_.model.numbers.program->marks_layers)
      add_here("pp",
               fmt::format("is {}{}, but the program {} marks no layers, so that it is one block; use 1, or write "
                           "its layers as a repeat",
                           m.pp, m.vpp > 1 ? fmt::format(" with vpp {}", m.vpp) : "", printable(plan_.model.name)));
    if (m.cp > 1)
      add_here("cp", fmt::format("is {}, but context parallelism is of transformer layers; use 1 for a program", m.cp));
    if (m.sequence_parallel)
      add_here("sequence_parallel", "is on, but rows between blocks of a program are whole; use false");
    if (m.recompute_logits) add_here("recompute_logits", "is on, but a program keeps what its exit makes; use false");
    check_recomputed_attention("of a program");
  }

  void check_recomputed_attention(const char* which) {
    for (const auto& row : module_->recompute) {
      for (const Recompute& chunk : row) {
        if (chunk.count(BlockRecompute::kAttention) == 0) continue;
        return add_here("recompute",
                        fmt::format("has layers that recompute attention alone; layers {} do so whole", which));
      }
    }
  }

  /// They are made some rows at a time, which an adapter's dropout and gradients are not.
  void check_logits() {
    if (has_adapters(spec()->exit))
      add_here("recompute_logits",
               "is on, but the head that makes them has an adapter; use false, or no adapter there");
  }

  void check_encoder_placement() {
    const ModulePlan& m = *module_;
    const std::set<int64_t> mine(m.ranks.begin(), m.ranks.end());
    const std::set<int64_t> theirs(llm_.ranks.begin(), llm_.ranks.end());
    switch (m.placement) {
      case ModulePlacement::kBase:
        add_here("placement", "is base, which only the llm can be");
        break;
      case ModulePlacement::kInline:
        if (m.ranks != llm_.ranks || m.tp != llm_.tp || m.cp != llm_.cp || m.pp != llm_.pp || m.dp != llm_.dp ||
            m.axis_order != llm_.axis_order) {
          add_here("placement",
                   fmt::format("is inline, so ranks, order and degrees must be the llm's (tp {}, cp {}, pp {}, dp {})",
                               llm_.tp, llm_.cp, llm_.pp, llm_.dp));
        }
        break;
      case ModulePlacement::kColocated:
        if (mine != theirs)
          add_here("ranks", fmt::format("is {}, but a colocated encoder has the llm's ranks, {}",
                                        ranks_to_text(m.ranks), ranks_to_text(llm_.ranks)));
        break;
      case ModulePlacement::kDisjoint:
        for (const int64_t rank : m.ranks) {
          if (theirs.contains(rank)) {
            add_here("ranks", fmt::format("is disjoint, but rank {} is the llm's too", rank));
            break;
          }
        }
        break;
      case ModulePlacement::kPartial:
        check_partial(mine, theirs);
        break;
    }
    const bool shares_ranks = m.placement == ModulePlacement::kColocated || m.placement == ModulePlacement::kPartial;
    if (shares_ranks && m.pp != 1)
      add_here("pp", fmt::format("is {}, but an encoder on the llm's ranks has pp 1", m.pp));
    if (m.vpp != 1) add_here("vpp", fmt::format("is {}, but encoders have one chunk a rank", m.vpp));
  }

  /// A partial encoder's ranks are whole pipeline stages of the llm.
  void check_partial(const std::set<int64_t>& mine, const std::set<int64_t>& theirs) {
    if (!std::includes(theirs.begin(), theirs.end(), mine.begin(), mine.end())) {
      add_here("ranks", "a partial encoder has some of the llm's ranks, and no others");
      return;
    }
    if (mine.size() == theirs.size())
      add_here("placement", "is partial, but the ranks are all of the llm's: that is colocated");
    const Result<Mesh> mesh = mesh_of(llm_);
    if (!mesh) return;  // reported as the llm's own violation
    std::vector<int64_t> per_stage(static_cast<size_t>(llm_.pp), 0);
    for (const int64_t rank : mine) ++per_stage[static_cast<size_t>(place_in(*mesh, rank).pp)];
    const int64_t whole = static_cast<int64_t>(llm_.ranks.size()) / llm_.pp;
    for (size_t stage = 0; stage < per_stage.size(); ++stage) {
      if (per_stage[stage] != 0 && per_stage[stage] != whole) {
        add_here("ranks",
                 fmt::format("holds {} of the {} ranks of the llm's pipeline rank {}; whole pipeline ranks are needed",
                             per_stage[stage], whole, stage));
        return;
      }
    }
  }

  void check_encoder_form() {
    const ModulePlan& m = *module_;
    if (is_inline()) return;
    const bool is_disjoint = m.placement == ModulePlacement::kDisjoint;
    if (is_disjoint != (m.form == EncoderForm::kStream)) {
      add_here("form", is_disjoint ? "must be stream: the encoder has ranks of its own"
                                   : "is stream, but the encoder shares the llm's ranks");
    }
    if (m.form == EncoderForm::kFill && m.live_macro_batches < 1) {
      add_here("live_macro_batches", fmt::format("is {}, but fill needs at least 1", m.live_macro_batches));
    }
    const bool is_first_filler = m.form == EncoderForm::kFill && !has_filler_before(m);
    if (is_first_filler && m.actions.empty()) {
      add_here("actions", "is empty, but the first encoder that fills stores the order that was planned");
    }
    if (!is_first_filler && !m.actions.empty()) {
      add_here("actions", "is given, but only the first encoder that fills stores the planned order");
    }
  }

  void check_macro_batch() {
    const ModulePlan& m = *module_;
    if (is_inline() || has_whole_samples(plan_, m)) return;
    add_here("mbs_scale",
             fmt::format("is {} of mbs {}, but a rank takes whole samples; of what divides mbs, nearest to {} {}",
                         mbs_scale_text(m), plan_.schedule.mbs, m.mbs_parts,
                         are_or_is(nearest_divisors(plan_.schedule.mbs, m.mbs_parts))));
  }

  bool has_filler_before(const ModulePlan& module) const {
    return std::any_of(plan_.modules.data(), &module, [](const ModulePlan& other) {
      return other.is_encoder() && other.placement != ModulePlacement::kInline && other.form == EncoderForm::kFill;
    });
  }

  void check_coverage() {
    if (plan_.world_size < 1 || plan_.world_size > kMostDevices)
      return add("world_size", fmt::format("is {}, from 1 to {} is needed", plan_.world_size, kMostDevices));
    std::vector<bool> used(static_cast<size_t>(plan_.world_size), false);
    for (const ModulePlan& module : plan_.modules) {
      for (const int64_t rank : module.ranks) {
        if (rank < plan_.world_size) used[static_cast<size_t>(rank)] = true;
      }
    }
    std::vector<int64_t> idle;
    for (size_t rank = 0; rank < used.size(); ++rank) {
      if (!used[rank]) idle.push_back(static_cast<int64_t>(rank));
    }
    if (!idle.empty() && !plan_.idle_ranks) {
      add("world_size", fmt::format("is {}, but no module uses rank{} {}; set idle_ranks if that is meant",
                                    plan_.world_size, idle.size() == 1 ? "" : "s", printable(ranks_to_text(idle))));
    }
    if (plan_.world_size != plan_.cluster.num_devices()) {
      add("world_size",
          fmt::format("is {}, but the cluster has {} × {} = {}", plan_.world_size, counted(plan_.cluster.nodes, "node"),
                      plan_.cluster.devices_per_node, counted(plan_.cluster.num_devices(), "device")));
    }
  }

  void check_batch() {
    const SchedulePlan& s = plan_.schedule;
    const int64_t product = product_of({s.mbs, s.microbatches, llm_.dp});
    if (product != plan_.workload.global_batch_samples) {
      add("schedule.microbatches",
          fmt::format(
              "mbs {} × microbatches {} × dp {} = {}, but the global batch is {}; {}", s.mbs, s.microbatches, llm_.dp,
              product, plan_.workload.global_batch_samples,
              factor_advice("microbatches", product_of({s.mbs, llm_.dp}), plan_.workload.global_batch_samples)));
    }
    const auto& program = plan_.model.numbers.program;
    if (program && s.mbs > program->most_samples)
      add("schedule.mbs",
          fmt::format("is {}, but with more than {} samples at once a tensor of the program would have "
                      "more than {} elements; make mbs {} or less",
                      s.mbs, program->most_samples, with_commas(Layout::kMostElements), program->most_samples));
  }

  /// The llm takes encoders' rows in where it begins. Stages mean something only where everything else fits, the
  /// schedule's chunks included.
  void check_encoder_ends() {
    if (!violations_.empty()) return;
    std::vector<StagePart> parts;
    list_stage_parts(plan_, parts);
    const auto module_of = [&](const StagePart& part) -> const ModulePlan& {
      return plan_.modules[static_cast<size_t>(part.module)];
    };
    const auto entry = std::find_if(parts.begin(), parts.end(), [&](const StagePart& part) {
      return part.has_entry && !module_of(part).is_encoder();
    });
    if (entry == parts.end()) return;
    for (const StagePart& part : parts) {
      if (!module_of(part).is_encoder() || !part.has_exit || part.stage <= entry->stage) continue;
      module_ = &module_of(part);
      add_here("layers", fmt::format("end in stage {}, but the llm, which takes their output, begins in stage {}",
                                     part.stage, entry->stage));
    }
  }

  /// Only where everything else fits: a schedule of settings that contradict each other says nothing new.
  void check_schedule() {
    check_schedule_name();
    if (!violations_.empty() || has_bad_rows()) return;
    const Result<Schedule> schedule = schedule_of(plan_);
    if (!schedule) {
      add(schedule.error().field, schedule.error().problem);
      return;
    }
    const bool has_stored_order =
        std::any_of(plan_.modules.begin(), plan_.modules.end(), [](const ModulePlan& m) { return !m.actions.empty(); });
    // What the plan does not give is made here, and rows that it gives are known to be good. Validation is linear in
    // the actions; with a name, a huge number of microbatches repeats the same pattern.
    constexpr size_t kMostValidated = 2'000'000;
    const bool is_known = plan_.schedule.rows && schedule->encoders.empty();
    if (is_known) return;
    if (!has_stored_order && !plan_.schedule.rows && num_actions(*schedule) > kMostValidated) return;
    const auto add_problem = [&](const Schedule& of) {
      const auto problem = find_problem(of);
      if (problem)
        add("schedule", fmt::format("rank {}, action {}: {}", problem->rank, problem->position, problem->message));
      return problem.has_value();
    };
    if (add_problem(*schedule)) return;
    // Where a plan says in which order encoders run, both ends of what they send must have the same.
    if (!has_stored_order) return;
    const Result<Schedule> lowered = lower_schedule(*schedule);
    if (!lowered) return add("schedule", lowered.error().problem);
    add_problem(*lowered);
  }

  /// Rows that the plan gives, before anything plays them.
  bool has_bad_rows() {
    if (!plan_.schedule.rows) return false;
    const Schedule& rows = plan_.schedule.rows->schedule;
    const auto problem = find_problem(rows);
    if (!problem) return false;
    const auto& row = rows.rows[static_cast<size_t>(problem->rank)];
    const std::string field = fmt::format("schedule.rows[{}]", problem->rank);
    if (problem->position < row.size()) {
      add(fmt::format("{}, action {}", field, problem->position + 1),
          fmt::format("{} {}", to_text(row[problem->position]), problem->message));
    } else {
      add(field, problem->message);
    }
    return true;
  }

  /// Whether rows fit what the plan says elsewhere.
  void check_rows() {
    const ExplicitRows& rows = *plan_.schedule.rows;
    const Schedule& given = rows.schedule;
    if (plan_.schedule.name != kExplicitSchedule) {
      add("schedule.rows", fmt::format("are given, but schedule.name is {}; use {}, or leave the rows out",
                                       in_quotes(plan_.schedule.name), kExplicitSchedule));
    }
    if (given.num_ranks() != llm_.pp)
      add("schedule.rows", fmt::format("are {}, but modules.llm.pp is {}", given.num_ranks(), llm_.pp));
    const int64_t most = *std::max_element(rows.chunks.begin(), rows.chunks.end());
    if (most != llm_.vpp)
      add("modules.llm.vpp", fmt::format("is {}, but a row of schedule.rows has {}", llm_.vpp, counted(most, "stage")));
    if (given.num_microbatches != plan_.schedule.microbatches) {
      add("schedule.rows", fmt::format("have {}, but schedule.microbatches is {}",
                                       counted(given.num_microbatches, "microbatch"), plan_.schedule.microbatches));
    }
  }

  void check_schedule_name() {
    if (plan_.schedule.rows) return check_rows();
    if (plan_.schedule.name == kExplicitSchedule) {
      add("schedule.rows", "is missing, but schedule.name is explicit; give a row of actions for each pipeline rank");
      return;
    }
    const Result<ScheduleName> name = parse_schedule_name(plan_.schedule.name);
    if (name) return;
    const std::string guess = did_you_mean(plan_.schedule.name, schedule_names());
    add("schedule.name", name.error().problem + ", and explicit with rows" + (guess.empty() ? "" : "." + guess));
  }

  const Plan& plan_;
  const ModulePlan& llm_;
  PlanUse use_;
  const ModulePlan* module_ = nullptr;
  std::vector<Violation> violations_;
};

}  // namespace

std::vector<Violation> check_plan(const Plan& plan, PlanUse use) {
  return Checker(plan, use).run();
}

Error to_error(const std::vector<Violation>& violations, std::string_view verdict) {
  // Texts of the plan are in them: a line break of one must not end the line.
  const Violation& first = violations.front();
  if (violations.size() == 1) return {.field = printable_line(first.field), .problem = printable_line(first.message)};
  std::string lines;
  for (const Violation& violation : violations)
    lines += fmt::format("  {}: {}\n", printable_line(violation.field), printable_line(violation.message));
  return {
      .field = printable_line(first.field),
      .problem = fmt::format("and {} {}", counted(static_cast<int64_t>(violations.size()) - 1, "other field"), verdict),
      .advice = "All of them:",
      .details = std::move(lines)};
}

}  // namespace weft
