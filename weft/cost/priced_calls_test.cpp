#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "tests/support/cost/example_plan.h"
#include "tests/support/draws.h"
#include "tests/support/first_seed.h"
#include "tests/support/meaning/random_plan.h"
#include "tests/support/meaning/uniform_load.h"
#include "tests/support/source_tree.h"
#include "tests/support/spec/random_adapters.h"
#include "weft/cost/cost_model.h"
#include "weft/meaning/expert_ranks.h"
#include "weft/meaning/group_names.h"
#include "weft/meaning/rank_groups.h"
#include "weft/meaning/step_calls.h"
#include "weft/spec/num_experts.h"

namespace weft::priced_calls_test {
namespace {

// Prices are held against the calls of a step (which tests/conformance holds against ranks that train). Links carry a
// byte in a millisecond and nothing hides behind anything, so that a price in milliseconds is a number of bytes.

/// kMedia: rows of inline encoders on their way to other context-parallel ranks' tokens.
enum Axis { kTp, kCp, kEp, kPp, kMedia, kNumAxes };
constexpr std::array<const char*, kNumAxes> kNames = {"tp", "cp", "ep", "pp", "media"};
using Bytes = std::array<double, kNumAxes>;
/// Of the first action of every kind and stage. Encoders' stages are those of their pipelines: stage 3 of the second
/// encoder beside the llm's is 103.
constexpr int32_t kStagesOfEncoder = 100;
using ActionBytes = std::map<std::pair<ActionKind, int32_t>, Bytes>;

Cluster byte_cluster() {
  Cluster cluster = ideal_cluster(1, 8);
  cluster.within_node.bandwidth_gb_per_s = 1e-6;
  cluster.device.matrix_tflops[Precision::kFp64] = 10;
  return cluster;
}

/// Rows that one rank of the llm sends to experts in a microbatch.
double routed_rows(const Plan& plan, const MicrobatchLoad& microbatch) {
  const Module& llm = *plan.model.find(ModuleKind::kLlm);
  const ModulePlan& m = plan.llm();
  const double tokens = static_cast<double>(std::accumulate(microbatch.samples.begin(), microbatch.samples.end(), 0L));
  for (const Op& op : llm.distinct_layers.front().ops) {
    const auto* matmul = std::get_if<Matmul>(&op.shape);
    if (matmul != nullptr && matmul->experts > 1)
      return op.rows.value() * tokens / static_cast<double>(m.cp * (m.experts_over_tp ? m.tp : 1));
  }
  return 0;
}

/// To each expert as many rows as to the others.
void route_evenly(const Plan& plan, StepLoad& load) {
  const Module& llm = *plan.model.find(ModuleKind::kLlm);
  const int64_t experts = num_experts(llm);
  for (const size_t kind : llm.layers) {
    if (!has_router(llm.distinct_layers[kind])) continue;
    auto& router = load.routed.emplace_back(static_cast<size_t>(num_expert_ranks(plan.llm())));
    for (auto& microbatches : router) {
      for (const MicrobatchLoad& microbatch : load.llm.front()) {
        const double rows = routed_rows(plan, microbatch) / static_cast<double>(experts);
        microbatches.emplace_back(static_cast<size_t>(experts), std::llround(rows));
      }
    }
  }
  load.balances_experts = balances_experts(plan.model);
}

/// A step's calls and what their actions are priced at.
class Comparison {
 public:
  Comparison(const Plan& plan, const StepLoad& load, const UniformSample& sample)
      : plan_(plan), load_(load), sample_(sample), model_(*CostModel::create(plan)) {
    // The busiest rank gets more rows than the mean that all have here.
    busiest_ = busiest_rank(plan.llm().ep, routed_rows(plan, first_microbatch()));
  }

  /// The most that any rank moves; of kMedia, the mean.
  ActionBytes listed() const {
    ActionBytes most;
    std::map<std::pair<ActionKind, int32_t>, double> media, ranks;
    for (int64_t rank = 0; rank < plan_.world_size; ++rank) {
      std::map<std::pair<int32_t, bool>, double> received;  // by stage, and whether they are gradients
      for (const auto& [action, calls] : step_calls(plan_, load_, rank)) {
        if (action.microbatch > 0) continue;
        Bytes bytes = bytes_of(calls);
        const bool is_back = action.kind == ActionKind::kRecvBackward || makes_gradient(action.kind) ||
                             action.kind == ActionKind::kRecvEncodedGrads || action.kind == ActionKind::kEncodeBackward;
        // Stages of the pipeline and numbers of encoders are told apart.
        const std::pair place{is_encoder(action.kind) ? -1 - action.stage : action.stage, is_back};
        const bool receives = moves_tensors(action.kind) && !is_row_transfer(action.kind) && !is_send(action.kind);
        if (receives) received[place] = bytes[kPp];
        // Rows that came in parts become whole first; that is priced with the transfer.
        const bool joins =
            action.kind == ActionKind::kForward || makes_gradient(action.kind) || is_encoder_compute(action.kind);
        const double parts = joins ? received[place] : 0;
        const ModulePlan& m = module_of(action);
        const ModulePlan& sender = is_encoder(action.kind) ? m : sender_over(is_back ? action.stage : action.stage - 1);
        if (sender.tp > 1 && !sender.sequence_parallel) bytes[kTp] -= static_cast<double>(sender.tp - 1) * parts;
        const int32_t stage =
            is_encoder(action.kind) ? action.stage * kStagesOfEncoder + encoder_stage(m, rank) : action.stage;
        Bytes& all = most[{action.kind, stage}];
        for (size_t axis = 0; axis < kMedia; ++axis) all[axis] = std::max(all[axis], bytes[axis]);
        media[{action.kind, stage}] += bytes[kMedia];
        ++ranks[{action.kind, stage}];
      }
    }
    for (auto& [key, bytes] : most) bytes[kMedia] = media[key] / ranks[key];
    return most;
  }

  ActionBytes priced() const {
    ActionBytes prices;
    std::vector<StagePart> parts;
    list_stage_parts(plan_, parts);
    std::vector<ModuleCosts> costs(plan_.modules.size());
    ModuleCostsOf modules;
    for (size_t m = 0; m < plan_.modules.size(); ++m) {
      costs[m] = model_.module_costs(plan_, plan_.modules[m], segments_of(plan_.modules[m]));
      modules.push_back(&costs[m]);
    }
    std::vector<StageCost> stages;
    price_stages(plan_, parts, modules, stages);
    for (size_t s = 0; s < stages.size(); ++s) {
      const auto stage = static_cast<int32_t>(s);
      add(stages[s].forward, prices[{ActionKind::kForward, stage}]);
      for (const ActionKind kind : {ActionKind::kBackward, ActionKind::kBackwardInput}) {
        add(stages[s].backward_input, prices[{kind, stage}]);
        add(stages[s].recompute, prices[{kind, stage}]);
      }
      for (const ActionKind kind : {ActionKind::kBackward, ActionKind::kBackwardWeight}) {
        add(stages[s].backward_weight, prices[{kind, stage}]);
        prices[{kind, stage}][kTp] += stages[s].copies_ms;
      }
      prices[{ActionKind::kReduceGrad, stage}][kTp] = stages[s].last_copies_ms;
      prices[{ActionKind::kSendForward, stage}][kPp] = stages[s].transfer_busy_ms;
    }
    int32_t number = 0;
    for (size_t m = 0; m < plan_.modules.size(); ++m) {
      const ModulePlan& module = plan_.modules[m];
      if (!module.is_in_pipeline()) {
        price_beside(static_cast<int32_t>(m), number++, costs[m], prices);
      } else if (module.is_encoder()) {
        const auto tell_apart = [&](ActionKind kind, const PassTime& output) {
          Bytes& bytes = prices[{kind, llm_begin()}];
          bytes[kCp] -= output.cp_ms;
          bytes[kMedia] += output.cp_ms;
        };
        tell_apart(ActionKind::kForward, costs[m].output.forward);
        if (!Trainable(plan_).gives_gradients(module)) continue;
        tell_apart(ActionKind::kBackward, costs[m].output.backward_input);
        tell_apart(ActionKind::kBackwardInput, costs[m].output.backward_input);
      }
    }
    return prices;
  }

  /// Whether a backward's stage holds the first layer that is trained of a module.
  bool ends_inside(const Action& action) const {
    const Trainable trainable(plan_);
    const bool is_beside = action.kind == ActionKind::kEncodeBackward;
    if (!is_beside && !makes_gradient(action.kind)) return false;
    std::vector<StagePart> parts;
    list_stage_parts(plan_, parts);
    for (const ModulePlan& module : plan_.modules) {
      const int64_t first = trainable.first_trained(module.kind) - 1;
      if (is_beside && !module.is_in_pipeline()) return true;
      for (const StagePart& part : parts) {
        const bool is_here =
            part.stage == action.stage && plan_.modules[static_cast<size_t>(part.module)].kind == module.kind;
        if (!is_beside && is_here && part.first_layer <= first && first < part.first_layer + part.num_layers)
          return true;
      }
    }
    return false;
  }

  /// Whether attention of an encoder may need fewer rows of other ranks than all: those of images that are cut.
  bool has_several_images(const Action& action) const {
    if (is_encoder(action.kind)) {
      const Action of_encoder{action.kind, action.stage / kStagesOfEncoder, 0};
      return segments_of(module_of(of_encoder)).front().count > 1;
    }
    const bool has_inline = std::any_of(plan_.modules.begin(), plan_.modules.end(),
                                        [](const ModulePlan& m) { return m.is_encoder() && m.is_in_pipeline(); });
    return has_inline && first_microbatch().samples.size() > 1;
  }

 private:
  const MicrobatchLoad& first_microbatch() const { return load_.llm.front().front(); }

  int32_t llm_begin() const {
    std::vector<StagePart> parts;
    list_stage_parts(plan_, parts);
    for (const StagePart& part : parts) {
      if (part.has_entry && !plan_.modules[static_cast<size_t>(part.module)].is_encoder()) return part.stage;
    }
    return 0;
  }

  /// The module whose rows go over the border behind a stage of the pipeline, or one that joins them alike.
  const ModulePlan& sender_over(int32_t border) const {
    if (border >= llm_begin()) return plan_.llm();
    return *std::find_if(plan_.modules.begin(), plan_.modules.end(),
                         [](const ModulePlan& module) { return module.is_in_pipeline(); });
  }

  void price_beside(int32_t module, int32_t number, const ModuleCosts& costs, ActionBytes& prices) const {
    std::vector<StageCost> stages;
    price_encoder(plan_, module, costs, stages);
    for (size_t s = 0; s < stages.size(); ++s) {
      const int32_t stage = number * kStagesOfEncoder + static_cast<int32_t>(s);
      Bytes& there = prices[{ActionKind::kEncodeForward, stage}];
      Bytes& back = prices[{ActionKind::kEncodeBackward, stage}];
      add(stages[s].forward, there);
      for (const PassTime& pass : {stages[s].backward_input, stages[s].recompute, stages[s].backward_weight})
        add(pass, back);
      back[kTp] += stages[s].copies_ms;
      prices[{ActionKind::kEncodeReduce, stage}][kTp] = stages[s].last_copies_ms;
      if (plan_.modules[static_cast<size_t>(module)].recompute_from_inputs) add(stages[s].forward, back);
      prices[{ActionKind::kSendEncoded, stage}][kPp] = stages[s].transfer_busy_ms;
      if (s > 0) prices[{ActionKind::kSendEncodedGrads, stage}][kPp] = stages[s - 1].transfer_busy_ms;
    }
  }

  /// What one action's calls move past one rank.
  Bytes bytes_of(const std::vector<GroupCall>& calls) const {
    const auto count_bytes = 8 * num_experts(*plan_.model.find(ModuleKind::kLlm));
    std::array<double, kNumAxes> sent{}, received{};
    for (const GroupCall& call : calls) {
      const std::string& name = call.group;
      Axis axis = kNumAxes;
      if (name == group_names::kTensor || name == group_names::kSameKeys) axis = kTp;
      if (name == group_names::kUlysses || name == group_names::kRing) axis = kCp;
      if (name == group_names::kExperts || name == group_names::kBalance) axis = kEp;
      if (name == group_names::kPipeline) axis = kPp;
      // Ranks of one microbatch sum their routers' counts, too.
      if (name == group_names::kContext) axis = call.kind == OperationKind::kAllReduce ? kEp : kMedia;
      if (axis == kNumAxes) continue;
      const bool has_rows = name == group_names::kExperts && call.bytes.sent >= count_bytes;
      Traffic bytes = call.bytes;
      // A rank with more heads than others gets more there and sends more back, each in a call that others wait for.
      if (name == group_names::kUlysses) bytes.sent = bytes.received = std::max(bytes.sent, bytes.received);
      sent[axis] += (has_rows ? busiest_ : 1) * static_cast<double>(bytes.sent);
      received[axis] += (has_rows ? busiest_ : 1) * static_cast<double>(bytes.received);
    }
    Bytes bytes{};
    for (size_t axis = 0; axis < kMedia; ++axis) bytes[axis] = std::max(sent[axis], received[axis]);
    bytes[kMedia] = sent[kMedia];
    return bytes;
  }

  static void add(const PassTime& pass, Bytes& bytes) {
    bytes[kTp] += pass.tp_ms;
    bytes[kCp] += pass.cp_ms;
    bytes[kEp] += pass.ep_ms;
  }

  const ModulePlan& module_of(const Action& action) const {
    int32_t number = 0;
    for (const ModulePlan& module : plan_.modules) {
      if (is_encoder(action.kind) && !module.is_in_pipeline() && number++ == action.stage) return module;
    }
    return plan_.llm();
  }

  int32_t encoder_stage(const ModulePlan& encoder, int64_t rank) const {
    const auto groups = rank_groups(plan_, static_cast<size_t>(&encoder - plan_.modules.data()), rank);
    return groups ? static_cast<int32_t>(groups->place.pp) : 0;
  }

  /// Of what one of a module's data-parallel ranks takes at once.
  Segments segments_of(const ModulePlan& module) const {
    const auto samples = static_cast<double>(first_microbatch().samples.size());
    if (module.kind == ModuleKind::kLlm) return {{static_cast<double>(first_microbatch().samples.front()), samples}};
    const auto length = static_cast<double>(sample_.rows_inside(plan_.model, module.kind));
    if (module.is_in_pipeline()) return {{length, samples}};
    int64_t most = 0;
    for (const auto& macro_batches : load_.beside.at(module.kind).macro_batches) {
      if (!macro_batches.front()) continue;
      const std::vector<int64_t>& segments = macro_batches.front()->segments;
      most = std::max(most, std::accumulate(segments.begin(), segments.end(), 0L));
    }
    return {{length, static_cast<double>(most) / length}};
  }

  const Plan& plan_;
  const StepLoad& load_;
  const UniformSample& sample_;
  CostModel model_;
  double busiest_ = 1;
};

struct PricedCase {
  const char* model;
  UniformSample sample;
};

void PrintTo(const PricedCase& test, std::ostream* out) {
  *out << test.model;
}

/// Whether rows of several inline encoders go over the borders of a pipeline and are not joined alike there.
bool has_unlike_encoders(const Plan& plan) {
  const ModulePlan* first = nullptr;
  for (const ModulePlan& module : plan.modules) {
    if (!module.is_encoder() || !module.is_in_pipeline()) continue;
    if (first != nullptr && first->sequence_parallel != module.sequence_parallel) return true;
    first = &module;
  }
  return false;
}

class PricedCalls : public testing::TestWithParam<PricedCase> {};

TEST_P(PricedCalls, AreTheBytesThatRanksMove) {
  const auto model = read_model_file(source_tree() / "scenarios/models" / (std::string(GetParam().model) + ".json"));
  ASSERT_TRUE(model.ok()) << model.error().message();
  std::array<int, kNumAxes> compared{};
  uint64_t num_plans = 0;
  for (uint64_t i = 1; i <= draws(uint64_t{kIsSanitized ? 12 : 40}); ++i) {
    const uint64_t seed = first_seed(i);
    Plan plan = random_plan(maybe_with_adapters(*model, seed), seed, {.allows_rules = false, .allows_balance = false});
    if (has_unlike_encoders(plan)) continue;
    GetParam().sample.write_to(plan.workload);
    plan.cluster = byte_cluster();
    plan.overlap_tp = plan.overlap_dp = false;
    StepLoad load = uniform_load(plan, GetParam().sample);
    route_evenly(plan, load);
    const Comparison comparison(plan, load, GetParam().sample);
    const ActionBytes listed = comparison.listed(), priced = comparison.priced();
    for (const auto& [key, bytes] : listed) {
      const auto price = priced.find(key);
      if (price == priced.end()) continue;
      const Action action{key.first, key.second, 0};
      const bool has_ring = plan.llm().cp > plan.llm().cp_ulysses;
      const bool adds_later = plan.llm().cp > 1 && model->modules.front().output_parts > 1;
      for (size_t axis = 0; axis < kNumAxes; ++axis) {
        SCOPED_TRACE(std::string(kNames[axis]) + " of " + to_text(action) + ", seed " + std::to_string(seed) + ": " +
                     settings_text(plan));
        if (bytes[axis] > 0) ++compared[axis];
        const double priced_bytes = price->second[axis];
        const bool is_bound =
            (axis == kCp || axis == kMedia) && (comparison.has_several_images(action) || (has_ring && axis == kCp));
        // Counts that do not divide by their ranks go round in uneven parts: some bytes a call.
        const double odd_bytes = axis == kEp ? 1e3 : axis == kTp ? 512 : 1e-3;
        // Places of an image's rows are taken as random, and are spread here; later layers add some where they lie.
        const double share = axis == kMedia ? 0.02 : axis == kPp && adds_later ? 0.01 : 1e-6;
        // The first layer with adapters is priced as if its input had a gradient, too.
        if (has_adapters(plan.model) && comparison.ends_inside(action)) {
          EXPECT_GE(priced_bytes, bytes[axis] * (1 - share) - odd_bytes);
          continue;
        }
        if (!is_bound) {
          EXPECT_NEAR(priced_bytes, bytes[axis], share * bytes[axis] + odd_bytes);
          continue;
        }
        // A ring is priced by the rank that is the slowest of each step, and images as if all were cut.
        EXPECT_GE(priced_bytes, bytes[axis] * (1 - share));
        if (!comparison.has_several_images(action) || axis == kMedia) {
          EXPECT_LE(priced_bytes, 2 * bytes[axis] + 1);
        }
      }
    }
    ++num_plans;
    if (HasFailure()) break;
  }
  record_plans(num_plans);
  if (HasFailure() || !has_usual_seeds()) return;
  for (const Axis axis : {kTp, kCp, kPp}) EXPECT_GT(compared[axis], 0) << kNames[axis];
  if (num_experts(*model->find(ModuleKind::kLlm)) > 1) {
    EXPECT_GT(compared[kEp], 0);
  }
  if (GetParam().sample.patches > 0) {
    EXPECT_GT(compared[kMedia], 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, PricedCalls,
    testing::Values(PricedCase{"llama3-8b", {.text = 1024}}, PricedCase{"qwen3-30b-a3b", {.text = 1024}},
                    // Rows and windows that all ranks of 8 have as many of, in any division.
                    PricedCase{"qwen2-vl-7b", {.text = 840, .patches = 3360}},
                    PricedCase{"qwen2.5-vl-7b", {.text = 3360, .patches = 53760, .window = 64}},
                    PricedCase{"qwen3-vl-4b", {.text = 840, .patches = 3360}},
                    PricedCase{"qwen2.5-omni-7b",
                               {.text = 3360, .patches = 53760, .window = 64, .clip_s = 67.2, .chunk = 4}}),
    [](const auto& test) {
      std::string name = test.param.model;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
      return name;
    });

}  // namespace
}  // namespace weft::priced_calls_test
