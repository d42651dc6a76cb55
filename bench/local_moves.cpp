#include "bench/local_moves.h"

#include <algorithm>
#include <numeric>

#include "weft/base/divisors.h"
#include "weft/meaning/expert_ranks.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/meaning/stage_parts.h"
#include "weft/plan/head_limit.h"
#include "weft/plan/mbs_scale.h"
#include "weft/schedule/generators.h"
#include "weft/spec/num_experts.h"

namespace weft {
namespace {

/// A block of an encoder in the pipeline beside one of the llm, to begin with.
constexpr double kEncoderBlock = 0.3;

int64_t num_layers(const Plan& plan, const ModulePlan& module) {
  return static_cast<int64_t>(plan.model.find(module.kind)->layers.size());
}

double recomputed_share(const ModulePlan& module) {
  int64_t all = 0, full = 0;
  for (size_t rank = 0; rank < module.layers.size(); ++rank) {
    for (size_t chunk = 0; chunk < module.layers[rank].size(); ++chunk) {
      all += module.layers[rank][chunk];
      full += count_of(module.recompute_of(rank, chunk), BlockRecompute::kFull);
    }
  }
  return all == 0 ? 0 : static_cast<double>(full) / static_cast<double>(all);
}

void recompute_share(ModulePlan& module, double share) {
  module.recompute.clear();
  for (const auto& row : module.layers) {
    auto& chunks = module.recompute.emplace_back();
    for (const int64_t count : row) {
      const auto full = static_cast<int64_t>(share * static_cast<double>(count) + 0.5);
      chunks.emplace_back(RecomputeCounts{.full = std::min(count, full)});
    }
  }
}

/// The prime factors of a number that are at most 7.
std::vector<int64_t> small_factors(int64_t number) {
  std::vector<int64_t> factors;
  for (const int64_t prime : {2, 3, 5, 7}) {
    if (number % prime == 0) factors.push_back(prime);
  }
  return factors;
}

void set_partial_ranks(const Plan& plan, ModulePlan& encoder, int64_t stages) {
  const ModulePlan& llm = plan.llm();
  const int64_t inner = llm.tp * llm.cp;
  const bool neighbours = llm.axis_order.back() == "dp";
  encoder.ranks.clear();
  for (const int64_t rank : llm.ranks) {
    const int64_t place = rank - llm.ranks.front();
    const int64_t stage = neighbours ? place / inner % llm.pp : place / (inner * llm.dp);
    if (stage >= llm.pp - stages) encoder.ranks.push_back(rank);
  }
}

bool fit_degrees(ModulePlan& encoder) {
  const auto ranks = static_cast<int64_t>(encoder.ranks.size());
  encoder.tp = std::gcd(encoder.tp, ranks);
  encoder.cp = std::gcd(encoder.cp, ranks / encoder.tp);
  encoder.cp_ulysses = std::gcd(encoder.cp_ulysses, encoder.cp);
  encoder.pp = std::gcd(encoder.pp, ranks / encoder.tp / encoder.cp);
  encoder.dp = ranks / encoder.tp / encoder.cp / encoder.pp;
  encoder.sequence_parallel &= encoder.tp > 1;
  if (encoder.pp > 1 && encoder.axis_order.size() < 4) encoder.axis_order.emplace_back("pp");
  return true;
}

void spread_beside(const Plan& plan, ModulePlan& encoder) {
  const double share = recomputed_share(encoder);
  const int64_t layers = num_layers(plan, encoder);
  encoder.layers.clear();
  for (int64_t rank = 0; rank < encoder.pp; ++rank)
    encoder.layers.push_back({layers * (rank + 1) / encoder.pp - layers * rank / encoder.pp});
  recompute_share(encoder, share);
}

bool has_shape(const ModulePlan& module, int64_t pp, int64_t vpp) {
  return std::ssize(module.layers) == pp && std::ssize(module.layers.front()) == vpp;
}

}  // namespace

bool spread_layers(Plan& plan) {
  const int32_t stages = num_stages(plan);
  std::vector<ModulePlan*> chain;
  double work = 0;
  for (ModulePlan& module : plan.modules) {
    if (!module.is_in_pipeline()) continue;
    chain.push_back(&module);
    work += static_cast<double>(num_layers(plan, module)) * (module.is_encoder() ? kEncoderBlock : 1);
  }
  const ModulePlan& llm = plan.llm();
  if (llm.pp * llm.vpp > num_layers(plan, llm)) return false;
  double done = 0;
  int32_t first_of_llm = 0;
  for (ModulePlan* module : chain) {
    const double share = recomputed_share(*module);
    module->layers.assign(static_cast<size_t>(llm.pp), std::vector<int64_t>(static_cast<size_t>(llm.vpp), 0));
    for (int64_t layer = 0; layer < num_layers(plan, *module); ++layer) {
      const double weight = module->is_encoder() ? kEncoderBlock : 1;
      auto stage = std::min(stages - 1, static_cast<int32_t>((done + weight / 2) / work * stages));
      done += weight;
      if (module->is_encoder()) {
        first_of_llm = std::max(first_of_llm, stage);
      } else {
        stage = std::max(stage, first_of_llm);
      }
      const StagePlace place = place_of_stage(plan, stage);
      ++module->layers[static_cast<size_t>(place.rank)][static_cast<size_t>(place.chunk)];
    }
    recompute_share(*module, share);
  }
  return true;
}

bool refit(Plan& plan) {
  ModulePlan& llm = plan.modules.back();
  int64_t own = 0;
  for (const ModulePlan& module : plan.modules) {
    if (module.placement == ModulePlacement::kDisjoint) own += static_cast<int64_t>(module.ranks.size());
  }
  const int64_t llm_ranks = plan.world_size - own;
  if (llm_ranks < 1 || llm.tp * llm.cp * llm.pp * llm.dp != llm_ranks) return false;
  if (llm.tp > plan.cluster.devices_per_node) return false;
  llm.ranks.resize(static_cast<size_t>(llm_ranks));
  std::iota(llm.ranks.begin(), llm.ranks.end(), 0);
  const int64_t batch = plan.workload.global_batch_samples;
  if (batch % (llm.dp * plan.schedule.mbs) != 0) return false;
  plan.schedule.microbatches = batch / (llm.dp * plan.schedule.mbs);
  if (plan.schedule.microbatches * llm.pp * llm.vpp > 1 << 14) return false;
  llm.sequence_parallel &= llm.tp > 1;
  llm.cp_ulysses = head_limit(*plan.model.find(llm.kind)).largest_divisor(llm.tp, std::gcd(llm.cp, llm.cp_ulysses));
  if (!llm.sequence_parallel) llm.experts_over_tp = false;
  llm.ep = std::gcd(llm.ep, num_expert_ranks(llm));
  if (llm.ep == 1) llm.experts_over_tp = false;
  if (llm.pp == 1) {
    plan.schedule.name = "1f1b";
    llm.vpp = 1;
  }
  int64_t next_own = llm_ranks;
  for (ModulePlan& module : plan.modules) {
    if (!module.is_encoder()) continue;
    if (module.placement == ModulePlacement::kInline) {
      module.ranks = llm.ranks;
      module.axis_order = llm.axis_order;
      module.tp = llm.tp;
      module.cp = llm.cp;
      module.pp = llm.pp;
      module.dp = llm.dp;
      module.zero = llm.zero;
      module.zero_keep_gathered = llm.zero_keep_gathered;
      module.sequence_parallel &= llm.tp > 1;
      module.cp_ulysses = head_limit(*plan.model.find(module.kind)).largest_divisor(llm.tp, llm.cp_ulysses);
      continue;
    }
    if (module.placement == ModulePlacement::kColocated) module.ranks = llm.ranks;
    if (module.placement == ModulePlacement::kPartial) {
      const auto per_stage = static_cast<int64_t>(llm.ranks.size()) / llm.pp;
      const int64_t stages = std::max<int64_t>(1, static_cast<int64_t>(module.ranks.size()) / per_stage);
      if (stages >= llm.pp) return false;
      set_partial_ranks(plan, module, stages);
    }
    if (module.placement == ModulePlacement::kDisjoint) {
      std::iota(module.ranks.begin(), module.ranks.end(), next_own);
      next_own += static_cast<int64_t>(module.ranks.size());
    }
    if (module.placement != ModulePlacement::kDisjoint) module.pp = 1;
    fit_degrees(module);
    if (!has_shape(module, module.pp, 1)) spread_beside(plan, module);
    // What an order needs at least is found with its times.
    module.actions.clear();
  }
  const bool has_all_shapes = std::all_of(plan.modules.begin(), plan.modules.end(), [&](const ModulePlan& module) {
    return !module.is_in_pipeline() || has_shape(module, llm.pp, llm.vpp);
  });
  return has_all_shapes || spread_layers(plan);
}

const std::vector<LocalMoves::NamedMove>& LocalMoves::moves() {
  static const std::vector<NamedMove> kMoves = {{"degrees", &LocalMoves::move_degrees, 3},
                                                {"ulysses", &LocalMoves::move_ulysses, 1},
                                                {"experts", &LocalMoves::move_experts, 2},
                                                {"mbs", &LocalMoves::move_microbatch, 2},
                                                {"zero", &LocalMoves::move_zero, 2},
                                                {"sequence parallelism", &LocalMoves::move_rows, 1},
                                                {"axis order", &LocalMoves::move_axes, 1},
                                                {"schedule", &LocalMoves::move_schedule, 2},
                                                {"layers", &LocalMoves::move_layers, 6},
                                                {"recomputation", &LocalMoves::move_recompute, 6},
                                                {"logits", &LocalMoves::move_logits, 1},
                                                {"balance", &LocalMoves::move_balance, 1},
                                                {"placement", &LocalMoves::move_placement, 2},
                                                {"encoder degrees", &LocalMoves::move_encoder_degrees, 3},
                                                {"encoder batch", &LocalMoves::move_encoder_batch, 3},
                                                {"encoder form", &LocalMoves::move_encoder_form, 2},
                                                {"encoder memory", &LocalMoves::move_encoder_memory, 3}};
  return kMoves;
}

std::string LocalMoves::change(Plan& plan) {
  int sum = 0;
  for (const NamedMove& move : moves()) sum += move.weight;
  int64_t drawn = below(sum);
  for (const NamedMove& move : moves()) {
    drawn -= move.weight;
    if (drawn >= 0) continue;
    const std::vector<ModulePlan> modules = plan.modules;
    const SchedulePlan schedule = plan.schedule;
    if ((this->*move.move)(plan) && refit(plan)) return move.name;
    plan.modules = modules;
    plan.schedule = schedule;
    return "";
  }
  return "";
}

bool LocalMoves::move_degrees(Plan& plan) {
  ModulePlan& llm = plan.modules.back();
  const std::vector<int64_t*> degrees = {&llm.tp, &llm.cp, &llm.pp, &llm.dp};
  int64_t* from = pick(degrees);
  int64_t* to = pick(degrees);
  const std::vector<int64_t> factors = small_factors(*from);
  if (from == to || factors.empty()) return false;
  const int64_t factor = pick(factors);
  *from /= factor;
  *to *= factor;
  if (to == &llm.tp) llm.sequence_parallel |= one_in(2);
  if (to == &llm.cp) llm.cp_ulysses = pick(divisors(llm.cp));
  // A microbatch of as many samples on all ranks together keeps much as it was.
  if ((from == &llm.dp || to == &llm.dp) && one_in(2)) {
    const int64_t mbs = plan.schedule.mbs;
    plan.schedule.mbs = from == &llm.dp ? mbs * factor : std::max<int64_t>(1, mbs / factor);
  }
  return true;
}

bool LocalMoves::move_ulysses(Plan& plan) {
  ModulePlan& llm = plan.modules.back();
  if (llm.cp == 1) return false;
  llm.cp_ulysses = pick(divisors(llm.cp));
  return true;
}

bool LocalMoves::move_experts(Plan& plan) {
  ModulePlan& llm = plan.modules.back();
  const int64_t experts = num_experts(*plan.model.find(llm.kind));
  if (experts <= 1) return false;
  llm.experts_over_tp = llm.sequence_parallel && one_in(2);
  llm.ep = pick(divisors(std::gcd(experts, num_expert_ranks(llm))));
  return true;
}

bool LocalMoves::move_microbatch(Plan& plan) {
  const int64_t share = plan.workload.global_batch_samples / plan.llm().dp;
  std::vector<int64_t> values;
  for (const int64_t mbs : divisors(share)) {
    if (mbs <= 16) values.push_back(mbs);
  }
  plan.schedule.mbs = pick(values);
  for (ModulePlan& module : plan.modules) {
    if (plan.schedule.mbs * module.mbs_scale % module.mbs_parts != 0) module.mbs_parts = 1;
  }
  return true;
}

bool LocalMoves::move_zero(Plan& plan) {
  ModulePlan& module = plan.modules[static_cast<size_t>(below(std::ssize(plan.modules)))];
  module.zero = below(4);
  module.zero_keep_gathered = module.zero == 3 && one_in(2);
  return module.placement != ModulePlacement::kInline;
}

bool LocalMoves::move_rows(Plan& plan) {
  ModulePlan& module = plan.modules[static_cast<size_t>(below(std::ssize(plan.modules)))];
  module.sequence_parallel = !module.sequence_parallel;
  return module.tp > 1;
}

bool LocalMoves::move_axes(Plan& plan) {
  ModulePlan& llm = plan.modules.back();
  if (llm.axis_order.size() < 4) return false;
  std::swap(llm.axis_order[2], llm.axis_order[3]);
  return true;
}

bool LocalMoves::move_schedule(Plan& plan) {
  ModulePlan& llm = plan.modules.back();
  if (llm.pp == 1) return false;
  const ScheduleKind& kind = schedule_kinds()[static_cast<size_t>(below(std::ssize(schedule_kinds())))];
  plan.schedule.name = kind.name;
  llm.vpp = kind.fewest_chunks + below(std::min<int64_t>(kind.most_chunks, 8) - kind.fewest_chunks + 1);
  // Also where the shape is the same, stages may lie elsewhere.
  return spread_layers(plan);
}

bool LocalMoves::move_layers(Plan& plan) {
  std::vector<ModulePlan*> modules;
  for (ModulePlan& module : plan.modules) {
    if (module.layers.size() * module.layers.front().size() > 1) modules.push_back(&module);
  }
  if (modules.empty()) return false;
  ModulePlan& module = *pick(modules);
  const auto place = [&]() -> std::pair<size_t, size_t> {
    return {static_cast<size_t>(below(std::ssize(module.layers))),
            static_cast<size_t>(below(std::ssize(module.layers.front())))};
  };
  const auto from = place(), to = place();
  const int64_t most = one_in(4) ? 3 : 1;
  const int64_t count = 1 + below(most);
  if (from == to || module.layers[from.first][from.second] < count) return false;
  module.layers[from.first][from.second] -= count;
  module.layers[to.first][to.second] += count;
  if (module.recompute.empty()) return true;
  for (const auto& [rank, chunk] : {from, to}) {
    const auto runs = module.recompute_of(rank, chunk);
    RecomputeCounts counts{.full = count_of(runs, BlockRecompute::kFull),
                           .selective = count_of(runs, BlockRecompute::kAttention)};
    const int64_t blocks = module.layers[rank][chunk];
    counts.full = std::min(counts.full, blocks);
    counts.selective = std::min(counts.selective, blocks - counts.full);
    module.recompute[rank][chunk] = counts;
  }
  return true;
}

bool LocalMoves::move_recompute(Plan& plan) {
  ModulePlan& module = plan.modules[static_cast<size_t>(below(std::ssize(plan.modules)))];
  if (module.recompute.empty()) {
    for (const auto& row : module.layers) module.recompute.emplace_back(row.size());
  }
  const bool is_everywhere = one_in(4);
  const auto the_rank = static_cast<size_t>(below(std::ssize(module.layers)));
  const auto the_chunk = static_cast<size_t>(below(std::ssize(module.layers.front())));
  const int64_t kind = below(7);
  const int64_t drawn = below(1000);
  for (size_t rank = 0; rank < module.layers.size(); ++rank) {
    for (size_t chunk = 0; chunk < module.layers[rank].size(); ++chunk) {
      if (!is_everywhere && (rank != the_rank || chunk != the_chunk)) continue;
      const int64_t blocks = module.layers[rank][chunk];
      const auto runs = module.recompute_of(rank, chunk);
      int64_t full = count_of(runs, BlockRecompute::kFull);
      int64_t attention = count_of(runs, BlockRecompute::kAttention);
      if (kind == 0) ++full;
      if (kind == 1) --full;
      if (kind == 2) ++attention;
      if (kind == 3) --attention;
      if (kind == 4) full = attention = 0;
      if (kind == 5) full = drawn % (blocks + 1);
      if (kind == 6) attention = drawn % (blocks + 1);
      full = std::clamp<int64_t>(full, 0, blocks);
      attention = std::clamp<int64_t>(attention, 0, blocks - full);
      module.recompute[rank][chunk] = RecomputeCounts{.full = full, .selective = attention};
    }
  }
  return true;
}

bool LocalMoves::move_logits(Plan& plan) {
  bool& recomputes = plan.modules.back().recompute_logits;
  recomputes = !recomputes;
  return true;
}

bool LocalMoves::move_balance(Plan& plan) {
  plan.balance = static_cast<Balance>(below(4));
  return true;
}

ModulePlan* LocalMoves::pick_encoder(Plan& plan, bool is_beside) {
  std::vector<ModulePlan*> encoders;
  for (ModulePlan& module : plan.modules) {
    if (module.is_encoder() && !(is_beside && module.is_in_pipeline())) encoders.push_back(&module);
  }
  return encoders.empty() ? nullptr : pick(encoders);
}

bool LocalMoves::move_placement(Plan& plan) {
  ModulePlan* encoder = pick_encoder(plan, false);
  if (encoder == nullptr) return false;
  ModulePlan& llm = plan.modules.back();
  const bool had_own = encoder->placement == ModulePlacement::kDisjoint;
  encoder->placement = pick(std::vector{ModulePlacement::kInline, ModulePlacement::kColocated,
                                        ModulePlacement::kDisjoint, ModulePlacement::kPartial});
  const bool has_own = encoder->placement == ModulePlacement::kDisjoint;
  encoder->axis_order = {"tp", "cp", "dp"};
  encoder->actions.clear();
  encoder->live_macro_batches = 0;
  encoder->form = has_own ? EncoderForm::kStream : EncoderForm::kBefore;
  if (encoder->placement == ModulePlacement::kInline) {
    set_mbs_scale(*encoder, 1, 1);
    encoder->recompute_from_inputs = false;
    encoder->layers = {{}};
    encoder->pp = 1;
  } else if (!had_own || !has_own) {
    encoder->pp = 1;
    encoder->tp = encoder->placement == ModulePlacement::kColocated ? pick(divisors(llm.tp)) : 1;
    encoder->cp = encoder->cp_ulysses = 1;
    encoder->zero = std::min<int64_t>(1, encoder->zero);
    encoder->zero_keep_gathered = false;
    encoder->layers = {{}};
  }
  if (encoder->placement == ModulePlacement::kPartial) {
    if (llm.pp == 1) return false;
    const int64_t stages = 1 + below(llm.pp - 1);
    encoder->ranks.resize(static_cast<size_t>(std::ssize(llm.ranks) / llm.pp * stages));
  }
  if (has_own) {
    // The llm gives up or takes ranks by its dp, pp or tp.
    encoder->ranks.resize(static_cast<size_t>(1 + below(std::max<int64_t>(1, plan.world_size / 2))));
    if (one_in(2)) {
      const int64_t node = plan.cluster.devices_per_node;
      const int64_t count = (std::ssize(encoder->ranks) + node - 1) / node * node;
      encoder->ranks.resize(static_cast<size_t>(count));
    }
  }
  if (had_own || has_own) {
    int64_t own = 0;
    for (const ModulePlan& module : plan.modules) {
      if (module.placement == ModulePlacement::kDisjoint) own += std::ssize(module.ranks);
    }
    const int64_t left = plan.world_size - own;
    const std::vector<int64_t*> degrees = {&llm.dp, &llm.pp, &llm.dp};
    int64_t* degree = pick(degrees);
    const int64_t others = llm.tp * llm.cp * llm.pp * llm.dp / *degree;
    if (left < 1 || left % others != 0) return false;
    *degree = left / others;
  }
  return true;
}

bool LocalMoves::move_encoder_degrees(Plan& plan) {
  ModulePlan* encoder = pick_encoder(plan, true);
  if (encoder == nullptr) return false;
  std::vector<int64_t*> degrees = {&encoder->tp, &encoder->cp, &encoder->dp};
  if (encoder->placement == ModulePlacement::kDisjoint) degrees.push_back(&encoder->pp);
  int64_t* from = pick(degrees);
  int64_t* to = pick(degrees);
  const std::vector<int64_t> factors = small_factors(*from);
  if (from == to || factors.empty()) return false;
  const int64_t factor = pick(factors);
  *from /= factor;
  *to *= factor;
  const HeadLimit heads = head_limit(*plan.model.find(encoder->kind));
  if (encoder->tp > heads.heads) return false;
  encoder->cp_ulysses = heads.largest_divisor(encoder->tp, pick(divisors(encoder->cp)));
  encoder->sequence_parallel = encoder->tp > 1 && one_in(2);
  return true;
}

bool LocalMoves::move_encoder_batch(Plan& plan) {
  ModulePlan* encoder = pick_encoder(plan, true);
  if (encoder == nullptr) return false;
  const int64_t scale = 1 + below(8);
  set_mbs_scale(*encoder, scale, one_in(2) ? pick(divisors(plan.schedule.mbs * scale)) : 1);
  return true;
}

bool LocalMoves::move_encoder_form(Plan& plan) {
  ModulePlan* encoder = pick_encoder(plan, true);
  if (encoder == nullptr) return false;
  const Result<Schedule> pipeline = pipeline_schedule(plan);
  const bool is_stream = encoder->placement == ModulePlacement::kDisjoint;
  if (!is_stream) encoder->form = pick(std::vector{EncoderForm::kBefore, EncoderForm::kFill, EncoderForm::kOnDemand});
  encoder->actions.clear();
  encoder->live_macro_batches = 0;
  if (!pipeline || encoder->form == EncoderForm::kBefore || encoder->form == EncoderForm::kOnDemand) return true;
  const Result<ScheduledEncoder> rows = macro_batches_of(plan, *encoder);
  if (!rows) return false;
  const int64_t least = least_live_macro_batches(*pipeline, *rows) + encoder->pp - 1;
  encoder->live_macro_batches = std::max<int64_t>(1, least) + below(2 * std::max<int64_t>(1, least));
  if (is_stream && one_in(4)) encoder->live_macro_batches = 0;
  return true;
}

bool LocalMoves::move_encoder_memory(Plan& plan) {
  ModulePlan* encoder = pick_encoder(plan, true);
  if (encoder == nullptr) return false;
  if (one_in(2)) {
    encoder->recompute_from_inputs = !encoder->recompute_from_inputs;
    return true;
  }
  encoder->zero = below(4);
  encoder->zero_keep_gathered = encoder->zero == 3 && one_in(2);
  return true;
}

}  // namespace weft
