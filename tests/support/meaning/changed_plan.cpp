#include "tests/support/meaning/changed_plan.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include "weft/schedule/schedule_kind.h"

namespace weft {
namespace {

class PlanChanger {
 public:
  PlanChanger(const Plan& plan, uint64_t seed) : plan_(plan), random_(seed) {}

  ChangedPlan change() {
    // A draw can come to what is there already, or to what the plan does not have.
    while (what_.empty()) {
      module_ = &plan_.modules[static_cast<size_t>(below(std::ssize(plan_.modules)))];
      change_once();
    }
    plan_.workload.global_batch_samples = plan_.schedule.mbs * plan_.schedule.microbatches * plan_.modules.back().dp;
    return {std::move(plan_), std::move(what_)};
  }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }

  template <typename T>
  void set(const char* field, T& place, T value) {
    if (place == value) return;
    if constexpr (std::is_enum_v<T>) {
      what_ = fmt::format("{}.{} {} -> {}", name_of(module_->kind), field, static_cast<int>(place),
                          static_cast<int>(value));
    } else {
      what_ = fmt::format("{}.{} {} -> {}", name_of(module_->kind), field, place, value);
    }
    place = value;
  }

  void change_once() {
    ModulePlan& m = *module_;
    ModulePlan& llm = plan_.modules.back();
    const bool is_beside = !m.is_in_pipeline();
    switch (below(16)) {
      case 0:
        if (below(3) == 0) return set("experts_over_tp", llm.experts_over_tp, !llm.experts_over_tp);
        return set("ep", llm.ep, between(1, 6));
      case 1:
        return set("cp_ulysses", m.cp_ulysses, between(1, 2 * m.cp));
      case 2:
        return set("zero", m.zero, between(0, 3));
      case 3:
        return set("sequence_parallel", m.sequence_parallel, !m.sequence_parallel);
      case 4:
        return change_degrees();
      case 5:
        return move_a_block();
      case 6:
        return change_recompute();
      case 7:
        return set("schedule", plan_.schedule.name,
                   schedule_names()[static_cast<size_t>(below(std::ssize(schedule_names())))]);
      case 8:
        return set("microbatches", plan_.schedule.microbatches, between(1, 8));
      case 9:
        if (is_beside) set("form", m.form, static_cast<EncoderForm>(below(4)));
        return;
      case 10:
        if (is_beside) set("live_macro_batches", m.live_macro_batches, between(0, 4));
        return;
      case 11:
        if (is_beside && below(2) == 0) return set("mbs_parts", m.mbs_parts, between(1, 4));
        if (is_beside) set("mbs_scale", m.mbs_scale, between(1, 9));
        return;
      case 12:
        if (is_beside) set("recompute_from_inputs", m.recompute_from_inputs, !m.recompute_from_inputs);
        return;
      case 13:
        return shuffle_ranks();
      case 14:
        return swap_actions();
      default:
        return change_chunks();
    }
  }

  /// Two degrees of a module, whose product stays.
  void change_degrees() {
    ModulePlan& m = *module_;
    if (m.placement == ModulePlacement::kInline) return;
    std::array<std::pair<const char*, int64_t*>, 4> axes = {
        {{"tp", &m.tp}, {"cp", &m.cp}, {"dp", &m.dp}, {"pp", &m.pp}}};
    auto& [from_name, from] = axes[static_cast<size_t>(below(4))];
    auto& [to_name, to] = axes[static_cast<size_t>(below(4))];
    if (from == to || *from % 2 != 0) return;
    *from /= 2;
    *to *= 2;
    what_ = fmt::format("{}: half of {}, twice {}", name_of(m.kind), from_name, to_name);
    if (m.is_encoder()) {
      deal_layers(m, m.pp, 1);
      return;
    }
    for (ModulePlan& other : plan_.modules) {
      if (!other.is_in_pipeline()) continue;
      if (other.is_encoder()) {
        other.tp = m.tp;
        other.cp = m.cp;
        other.dp = m.dp;
        other.pp = m.pp;
      }
      deal_layers(other, m.pp, m.vpp);
    }
  }

  void change_chunks() {
    ModulePlan& llm = plan_.modules.back();
    module_ = &llm;
    set("vpp", llm.vpp, between(1, 3));
    for (ModulePlan& other : plan_.modules) {
      if (other.is_in_pipeline()) deal_layers(other, llm.pp, llm.vpp);
    }
  }

  /// An encoder's in the first stage, the llm's as even as it goes.
  void deal_layers(ModulePlan& module, int64_t pp, int64_t chunks) {
    const auto count = static_cast<int64_t>(plan_.model.find(module.kind)->layers.size());
    module.layers.assign(static_cast<size_t>(pp), std::vector<int64_t>(static_cast<size_t>(chunks)));
    module.recompute.clear();
    if (module.placement == ModulePlacement::kInline) {
      module.layers[0][0] = count;
      return;
    }
    for (int64_t i = 0; i < count; ++i)
      ++module.layers[static_cast<size_t>(i % pp)][static_cast<size_t>(i / pp % chunks)];
  }

  void move_a_block() {
    auto& layers = module_->layers;
    const auto place = [&]() -> int64_t& {
      auto& row = layers[static_cast<size_t>(below(std::ssize(layers)))];
      return row[static_cast<size_t>(below(std::ssize(row)))];
    };
    int64_t& from = place();
    int64_t& to = place();
    if (&from == &to || from == 0) return;
    --from;
    ++to;
    module_->recompute.clear();
    what_ = fmt::format("{}: a block moves to another stage", name_of(module_->kind));
  }

  void change_recompute() {
    auto& recompute = module_->recompute;
    if (recompute.empty()) return;
    auto& row = recompute[static_cast<size_t>(below(std::ssize(recompute)))];
    Recompute& chunk = row[static_cast<size_t>(below(std::ssize(row)))];
    Recompute drawn;
    for (int64_t block = between(0, 3); block > 0; --block) drawn.add(static_cast<BlockRecompute>(below(3)), 1);
    if (drawn == chunk) return;
    chunk = drawn;
    what_ = fmt::format("{}: up to block {} of a chunk recomputed", name_of(module_->kind), drawn.num_blocks());
  }

  void shuffle_ranks() {
    if (module_->placement == ModulePlacement::kInline) return;
    std::vector<int64_t> ranks = module_->ranks;
    std::shuffle(ranks.begin(), ranks.end(), random_);
    if (ranks == module_->ranks) return;
    for (ModulePlan& other : plan_.modules) {
      const bool follows = other.placement == ModulePlacement::kInline && !module_->is_encoder();
      if (&other == module_ || follows) other.ranks = ranks;
    }
    what_ = fmt::format("{}.ranks in another order", name_of(module_->kind));
  }

  /// In the order that an encoder stores.
  void swap_actions() {
    if (module_->actions.empty()) return;
    auto row = module_->actions.begin();
    std::advance(row, below(std::ssize(module_->actions)));
    auto& words = row->second;
    if (words.size() < 2) return;
    const auto first = static_cast<size_t>(below(std::ssize(words) - 1));
    std::swap(words[first], words[first + 1]);
    what_ =
        fmt::format("{}.actions.{}: {} before {}", name_of(module_->kind), row->first, words[first], words[first + 1]);
  }

  Plan plan_;
  std::mt19937_64 random_;
  ModulePlan* module_ = nullptr;
  std::string what_;
};

}  // namespace

ChangedPlan changed_plan(const Plan& legal, uint64_t seed) {
  return PlanChanger(legal, seed).change();
}

}  // namespace weft
