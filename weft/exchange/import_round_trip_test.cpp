#include <random>

#include "tests/support/draws.h"
#include "tests/support/exchange/plans_to_export.h"
#include "weft/exchange/import.h"
#include "weft/exchange/refusals.h"
#include "weft/meaning/trainable.h"
#include "weft/plan/mbs_scale.h"

// Random plans that a system can express, exported, imported, are the same plan.

namespace weft {
namespace {

class PlanDraw {
 public:
  explicit PlanDraw(uint64_t seed) : rng_(seed) {}

  template <typename Value>
  Value one_of(std::vector<Value> values) {
    return values[std::uniform_int_distribution<size_t>(0, values.size() - 1)(rng_)];
  }
  bool chance(double share) { return std::uniform_real_distribution<double>(0, 1)(rng_) < share; }

  std::vector<int64_t> spread(int64_t layers, int64_t stages) {
    std::vector<int64_t> counts(static_cast<size_t>(stages), layers / stages);
    if (layers % stages != 0 || chance(0.5)) {
      for (int64_t i = 0; i < layers % stages; ++i) ++counts[static_cast<size_t>(i)];
      std::shuffle(counts.begin(), counts.end(), rng_);
    }
    return counts;
  }

  /// Degrees, stages, recomputation, ZeRO, batch and precision of a chain of layers.
  Plan text_plan() {
    Plan plan = chance(0.5) ? llama_plan() : shipped_plan("qwen3-30b-a3b_zb_h1_ep8");
    ModulePlan& llm = llm_of(plan);
    const int64_t layers = static_cast<int64_t>(plan.model.find(ModuleKind::kLlm)->layers.size());
    const bool has_experts = plan.model.family == "qwen3_moe";
    const int64_t pp = one_of<int64_t>({1, 2, 3, 4, 6, 8}), vpp = pp > 1 ? one_of<int64_t>({1, 1, 2, 3}) : 1;
    const std::vector<int64_t> stages = spread(layers, pp * vpp);
    std::vector<std::vector<int64_t>> by_rank(static_cast<size_t>(pp));
    for (size_t i = 0; i < stages.size(); ++i) by_rank[i % by_rank.size()].push_back(stages[i]);
    plan.schedule.mbs = one_of<int64_t>({1, 2});
    plan.schedule.microbatches = pp * one_of<int64_t>({1, 2, 5});
    reshape(plan, one_of<int64_t>({1, 2, 4}), one_of<int64_t>({1, 1, 2, 4}), pp, one_of<int64_t>({1, 2, 4, 8}),
            by_rank);
    plan.schedule.name = vpp > 1 ? "interleaved_1f1b" : pp > 1 && chance(0.1) ? "gpipe" : "1f1b";
    std::vector<int64_t> ulysses, experts = {1};
    for (const int64_t degree : {1, 2, 4}) {
      if (llm.cp % degree == 0) ulysses.push_back(degree);
    }
    for (const int64_t degree : {2, 4, 8}) {
      if (has_experts && (llm.dp * llm.cp) % degree == 0) experts.push_back(degree);
    }
    llm.cp_ulysses = one_of(ulysses);
    llm.ep = one_of(experts);
    llm.experts_over_tp = false;
    llm.sequence_parallel = llm.tp > 1 && chance(0.7);
    llm.zero = llm.dp * llm.cp > 1 ? one_of<int64_t>({0, 1, 1, 2, 3}) : 0;
    llm.zero_keep_gathered = false;
    llm.axis_order = chance(0.2) ? std::vector<std::string>{"tp", "cp", "pp", "dp"}
                                 : std::vector<std::string>{"tp", "cp", "dp", "pp"};
    draw_recompute(llm);
    draw_shared(plan);
    return plan;
  }

  void draw_recompute(ModulePlan& module) {
    const int64_t few = one_of<int64_t>({0, 0, 1, 2, 99});
    const BlockRecompute what = chance(0.7) ? BlockRecompute::kFull : BlockRecompute::kAttention;
    module.recompute.assign(module.layers.size(), {});
    for (size_t rank = 0; rank < module.layers.size(); ++rank) {
      for (const int64_t layers : module.layers[rank]) {
        Recompute chunk;
        const int64_t blocks = what == BlockRecompute::kFull ? std::min(few, layers) : few > 0 ? layers : 0;
        chunk.add(what, chance(0.03) ? std::min<int64_t>(1, layers) : blocks);
        module.recompute[rank].push_back(chunk);
      }
    }
  }

  void draw_shared(Plan& plan) {
    plan.precision = one_of<PrecisionPlan>({{Precision::kBf16, Precision::kFp32, Precision::kFp32},
                                            {Precision::kBf16, Precision::kFp32, Precision::kBf16},
                                            {Precision::kFp16, Precision::kFp32, Precision::kFp32},
                                            {Precision::kFp32, Precision::kFp32, Precision::kFp32}});
    plan.overlap_dp = chance(0.8);
    plan.overlap_tp = chance(0.3);
    plan.buckets_mb = one_of<double>({16, 64, 100});
  }

  /// An encoder inside the llm's pipeline, or on all ranks with degrees of its own.
  Plan encoder_plan() {
    Plan plan = chance(0.5) ? shipped_plan("qwen2.5-omni-7b_colocated_dp8") : shipped_plan("qwen2-vl-7b_inline");
    const int64_t world = 8;
    ModulePlan& llm = llm_of(plan);
    llm.tp = one_of<int64_t>({1, 2, 4});
    llm.pp = one_of<int64_t>({1, 2, 4});
    if (llm.tp * llm.pp > world) llm.pp = 2;
    llm.cp = llm.cp_ulysses = 1;
    llm.dp = world / llm.tp / llm.pp;
    llm.layers.clear();
    for (const int64_t count : spread(28, llm.pp)) llm.layers.push_back({count});
    llm.sequence_parallel = llm.tp > 1 && chance(0.7);
    llm.zero = llm.dp > 1 ? one_of<int64_t>({0, 1}) : 0;
    llm.ranks = first_ranks(world);
    draw_recompute(llm);
    draw_shared(plan);
    plan.schedule = {.name = "1f1b", .mbs = one_of<int64_t>({1, 2}), .microbatches = 4 * one_of<int64_t>({1, 2})};
    plan.world_size = world;
    plan.cluster.nodes = 1;
    plan.cluster.devices_per_node = world;
    plan.workload.global_batch_samples = plan.schedule.mbs * plan.schedule.microbatches * llm.dp;
    const bool is_inline = chance(0.5);
    const int64_t scale = llm.pp > 1 ? one_of<int64_t>({1, 2, 4}) : 1;
    for (ModulePlan& module : plan.modules) {
      if (!module.is_encoder()) continue;
      const ModuleKind kind = module.kind;
      const int64_t layers = static_cast<int64_t>(plan.model.find(kind)->layers.size());
      module = is_inline ? llm_of(plan) : ModulePlan{};
      module.kind = kind;
      module.placement = is_inline ? ModulePlacement::kInline : ModulePlacement::kColocated;
      module.sequence_parallel = is_inline && llm_of(plan).sequence_parallel;
      if (is_inline) {
        module.layers.assign(static_cast<size_t>(module.pp), {0});
        module.layers.front() = {layers};
      } else {
        module.tp = one_of<int64_t>({1, 2});
        module.dp = world / module.tp;
        module.layers = {{layers}};
        module.axis_order = {"tp", "cp", "dp"};
        module.ranks = first_ranks(world);
        module.sequence_parallel = module.tp > 1 && llm_of(plan).sequence_parallel;
        module.form = llm_of(plan).pp == 1 ? EncoderForm::kOnDemand : EncoderForm::kBefore;
        set_mbs_scale(module, scale * llm_of(plan).dp, module.dp);
      }
      module.zero = trains(plan, kind) && module.dp > 1 ? llm_of(plan).zero : 0;
      draw_recompute(module);
    }
    return plan;
  }

 private:
  std::mt19937_64 rng_;
};

Result<ImportedRun> imported_again(const Plan& plan, Target system, const std::vector<ExportedFile>& files) {
  ImportRequest request{.system = system, .files = {}, .arguments = "", .model = plan.model, .cluster = plan.cluster};
  for (const ExportedFile& file : files) request.files.push_back({file.name, file.text});
  request.workload = plan.workload;
  return import_settings(request);
}

void expect_same_module(const ModulePlan& a, const ModulePlan& b, bool is_search_result) {
  Degrees degrees = b.degrees();
  if (is_search_result) {
    // The file is silent about these.
    degrees.zero = a.zero;
    degrees.sequence_parallel = a.sequence_parallel;
  }
  if (a.cp == 1) degrees.cp_ulysses = a.cp_ulysses;
  EXPECT_EQ(degrees, a.degrees()) << name_of(a.kind);
  EXPECT_EQ(b.placement, a.placement);
  EXPECT_EQ(b.ranks, a.ranks);
  EXPECT_TRUE(has_axis_order(b, a.axis_order));
  EXPECT_EQ(b.layers, a.layers) << name_of(a.kind);
  for (size_t rank = 0; rank < a.layers.size(); ++rank) {
    for (size_t chunk = 0; chunk < a.layers[rank].size(); ++chunk) {
      const auto before = a.recompute_of(rank, chunk), after = b.recompute_of(rank, chunk);
      EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin(), after.end()))
          << name_of(a.kind) << " " << rank;
    }
  }
  if (a.placement == ModulePlacement::kColocated) {
    EXPECT_EQ(mbs_scale_text(b), mbs_scale_text(a));
    EXPECT_EQ(b.form, a.form);
  }
}

void expect_same(const Plan& a, const Plan& b, Target system, bool is_search_result) {
  EXPECT_EQ(b.world_size, a.world_size);
  ASSERT_EQ(b.modules.size(), a.modules.size());
  for (size_t i = 0; i < a.modules.size(); ++i) expect_same_module(a.modules[i], b.modules[i], is_search_result);
  EXPECT_EQ(b.schedule.name, a.schedule.name);
  EXPECT_EQ(b.schedule.mbs, a.schedule.mbs);
  EXPECT_EQ(b.schedule.microbatches, a.schedule.microbatches);
  EXPECT_EQ(b.workload.global_batch_samples, a.workload.global_batch_samples);
  if (is_search_result) return;
  EXPECT_EQ(b.precision.compute, a.precision.compute);
  EXPECT_EQ(b.precision.master, a.precision.master);
  EXPECT_EQ(b.precision.reduce, a.precision.reduce);
  const ModulePlan& llm = a.llm();
  if (llm.dp * llm.cp > 1) {
    EXPECT_EQ(b.overlap_dp, a.overlap_dp);
    if (a.overlap_dp) {
      EXPECT_NEAR(b.buckets_mb, a.buckets_mb, 1e-5);
    }
  }
  const bool has_tp_overlap = system == Target::kMegatron || system == Target::kMindspeedMm;
  if (has_tp_overlap && llm.tp > 1 && llm.sequence_parallel) {
    EXPECT_EQ(b.overlap_tp, a.overlap_tp);
  }
}

void expect_round_trips(Target system, Plan (PlanDraw::*draw)()) {
  const int wanted = draws(kIsSanitized ? 20 : 2000);
  int found = 0;
  for (uint64_t seed = 0; found < wanted; ++seed) {
    ASSERT_LT(seed, static_cast<uint64_t>(wanted) * 200) << "too few plans can be expressed: " << found;
    Plan plan = (PlanDraw(seed).*draw)();
    plan.predicted = {.step_time_ms = 1000, .throughput_samples_per_s = 1};
    const auto files = export_plan(plan, system);
    if (!files) continue;
    ++found;
    SCOPED_TRACE(testing::Message() << "seed " << seed << "\n" << outcome(plan, system));
    const auto run = imported_again(plan, system, *files);
    ASSERT_TRUE(run.ok()) << run.error().message() << "\n" << run.error().details;
    expect_same(plan, run->plan, system, files->front().name == "auto_parallel_search_optimal_config.json");
    if (testing::Test::HasFailure()) return;
  }
}

TEST(ImportRoundTrip, Megatron) {
  expect_round_trips(Target::kMegatron, &PlanDraw::text_plan);
}

TEST(ImportRoundTrip, Mindformers) {
  expect_round_trips(Target::kMindformers, &PlanDraw::text_plan);
}

TEST(ImportRoundTrip, MindspeedRl) {
  expect_round_trips(Target::kMindspeedRl, &PlanDraw::text_plan);
}

TEST(ImportRoundTrip, MindspeedMm) {
  expect_round_trips(Target::kMindspeedMm, &PlanDraw::encoder_plan);
}

}  // namespace
}  // namespace weft
