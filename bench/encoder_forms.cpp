// An encoder before the llm's pipeline against one in its bubbles, each beside what the simulator says of the same
// plan. Parts, each alone when named:
// memory: what two ranks hold. Held is what is there between actions on top of weights, gradients and optimizer states,
// peak the most inside forwards and backwards, without and with the buffers that the simulator counts.
// sleeping: eight thread ranks compute a tiny model and sleep, in every action, what the simulator gives it for
// Qwen2-VL-7B on H200: schedules then show as on eight devices, however few processors there are.
// computing: two thread ranks compute a small model. Wants two idle processors.
// The share of the encoder's time that is hidden is 1 - (step - step without encoder) / encoder's time.
#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

#include "bench/vl_steps.h"
#include "weft/simulate/fill_order.h"
#include "weft/simulate/plan_simulator.h"

namespace {

using namespace weft;

constexpr auto kFill = EncoderForm::kFill;

bool is_encoder_work(const Action& action) {
  return action.kind == ActionKind::kEncodeForward || action.kind == ActionKind::kEncodeBackward;
}

double hidden_share(double step_ms, double without_ms, double encoder_ms) {
  return 1 - (step_ms - without_ms) / encoder_ms;
}

/// A plan as the simulator plays its mean batch.
struct Played {
  double step_ms = 0;
  double without_ms = 0;        ///< the encoder takes no time
  double quiet_ms = 0;          ///< nothing is sent: what there is to sleep
  double quiet_without_ms = 0;  ///< both
  double encoder_ms = 0;        ///< of the busiest row
  Timeline timeline;
};

/// Gives the plan its order where the encoder fills.
Played play(Plan& plan) {
  PlanSimulator simulator = must(PlanSimulator::create(plan));
  if (const auto error = store_fill_order(simulator, plan)) WEFT_CHECK(false, "{}", error->message());
  const Schedule schedule = must(playable_schedule(plan));
  const PipelineCosts costs = pipeline_costs(plan, schedule, simulator.price(plan));
  PipelineCosts quiet = costs;
  quiet.p2p_ms = quiet.p2p_busy_ms = quiet.reduce_grad_ms = CostTable(0.0);
  quiet.gradient_p2p_ms = quiet.gradient_p2p_busy_ms = std::nullopt;
  for (EncoderCosts& encoder : quiet.encoders) encoder.bridge_ms = encoder.p2p_ms = 0;
  const auto without_encoders = [](PipelineCosts times) {
    for (EncoderCosts& encoder : times.encoders) encoder.forward_ms = encoder.backward_ms = CostTable(0.0);
    return times;
  };
  Played played;
  played.step_ms = run_schedule(schedule, costs, &played.timeline).makespan_ms;
  played.without_ms = run_schedule(schedule, without_encoders(costs)).makespan_ms;
  played.quiet_ms = run_schedule(schedule, quiet).makespan_ms;
  played.quiet_without_ms = run_schedule(schedule, without_encoders(quiet)).makespan_ms;
  for (const auto& row : played.timeline.ranks) {
    double own = 0;
    for (const TimelineEvent& event : row) own += is_encoder_work(event.action) ? event.end_ms - event.start_ms : 0;
    played.encoder_ms = std::max(played.encoder_ms, own);
  }
  return played;
}

Workload constant_workload(int64_t tokens, double images, double patches) {
  return {.tokens = Distribution::constant(static_cast<double>(tokens)),
          .tokens_include_media = true,
          .images = {.pieces_per_sample = Distribution::constant(images), .size = Distribution::constant(patches)}};
}

std::string in_whole_ms(const std::vector<double>& times) {
  std::string text;
  for (const double ms : times) text += fmt::format("{}{:.0f}", text.empty() ? "" : " ", ms);
  return text;
}

void compare_computing() {
  constexpr int64_t kTokens = 256, kSide = 12, kImages = 4, kMicrobatches = 8;
  const Model model = small_vl({.width = 256,
                                .inner = 704,
                                .layers = 8,
                                .heads = 8,
                                .vision_width = 128,
                                .vision_layers = 4,
                                .vision_heads = 4,
                                .vocabulary = 1024,
                                .patch_size = 8});
  const Cluster cluster = scenario_cluster("local_cpu");
  const std::vector<VlSample> with(kMicrobatches, {kTokens, std::vector<int64_t>(kImages, kSide)});
  const std::vector<VlSample> bare(kMicrobatches, {kTokens, {}});
  std::vector<VlCase> cases;
  std::vector<Played> played;
  for (const EncoderForm form : {EncoderForm::kBefore, kFill}) {
    Plan plan = vl_plan(model, cluster, constant_workload(kTokens, kImages, kSide * kSide), Precision::kFp32,
                        {.pp = 2, .microbatches = kMicrobatches, .vision_dp = 2, .form = form});
    played.push_back(play(plan));
    cases.push_back({.plan = plan, .samples = with});
    cases.push_back({.plan = plan, .samples = bare});
  }
  const std::vector<MeasuredStep> measured = measure_steps(cases, 6);
  fmt::print("Two ranks that compute, llm pp 2, vision dp 2 on both, {} microbatches\n", kMicrobatches);
  for (size_t i = 0; i < played.size(); ++i) {
    const MeasuredStep &step = measured[2 * i], &without = measured[2 * i + 1];
    // What a rank computes more than without images.
    std::array<double, 2> encoder_ms;
    for (size_t rank = 0; rank < 2; ++rank) encoder_ms[rank] = step.ranks[rank].own_ms - without.ranks[rank].own_ms;
    const Played& p = played[i];
    fmt::print(
        "  {:6}: {:5.0f} ms a step (its ranks compute {:.0f} and {:.0f}), without images {:5.0f} ({:.0f} and {:.0f}), "
        "encoder {:.0f} and {:.0f}, hidden {:4.0f} %\n"
        "          simulated {:5.0f}, without encoder {:5.0f}, encoder {:.0f}, hidden {:4.0f} %\n"
        "          all steps {}; without images {}\n",
        i == 0 ? "before" : "fill", step.step_ms, step.ranks[0].own_ms, step.ranks[1].own_ms, without.step_ms,
        without.ranks[0].own_ms, without.ranks[1].own_ms, encoder_ms[0], encoder_ms[1],
        100 * hidden_share(step.step_ms, without.step_ms, (encoder_ms[0] + encoder_ms[1]) / 2), p.step_ms, p.without_ms,
        p.encoder_ms, 100 * hidden_share(p.step_ms, p.without_ms, p.encoder_ms), in_whole_ms(step.all_ms),
        in_whole_ms(without.all_ms));
  }
  fmt::print("  fill takes {:.3f} of before, simulated {:.3f}\n", measured[2].step_ms / measured[0].step_ms,
             played[1].step_ms / played[0].step_ms);
}

/// Sleeps what every action takes in a timeline.
Pace pace_of_row(const Timeline& timeline, size_t row, double scale, bool with_encoders) {
  std::map<std::string, double> times;
  for (const TimelineEvent& event : timeline.ranks[row]) {
    if (event.stream != Stream::kCompute || (is_encoder_work(event.action) && !with_encoders)) continue;
    times[to_text(event.action)] = scale * (event.end_ms - event.start_ms);
  }
  return [times = std::move(times)](const Action& action) {
    const auto found = times.find(to_text(action));
    return found == times.end() ? 0 : found->second;
  };
}

/// Steps of a tiny model under the plan of a large one.
VlCase sleeping_case(const Plan& large, const VlSetting& setting, const Timeline& timeline, double scale,
                     bool with_encoders) {
  const auto samples = static_cast<size_t>(large.workload.global_batch_samples);
  VlCase made{.plan = vl_plan(small_vl({}), large.cluster, constant_workload(8, 1, 16), Precision::kFp32, setting),
              .samples = std::vector<VlSample>(samples, {8, {4}})};
  ModulePlan& vision = made.plan.modules.front();
  vision.actions = large.modules.front().actions;
  vision.live_macro_batches = large.modules.front().live_macro_batches;
  const int64_t text_ranks = setting.pp * setting.dp;
  made.pace = [=](int64_t rank) {
    // Behind the llm's there is one row, which stands for all of the encoder's ranks.
    const int64_t row = rank < text_ranks ? rank / setting.dp : setting.pp;
    return pace_of_row(timeline, static_cast<size_t>(row), scale, with_encoders);
  };
  return made;
}

void compare_sleeping(const char* name, const std::vector<VlSetting>& settings) {
  constexpr double kSleptMs = 1500;
  const Model model = qwen2_vl_7b();
  const Cluster cluster = scenario_cluster("hgx_h200");
  // About a fifth of the FLOPs is vision's.
  const Workload workload = constant_workload(4096, 8, 1600);
  std::vector<VlCase> cases;
  std::vector<Played> played;
  std::vector<double> scales;
  for (const VlSetting& setting : settings) {
    Plan plan = vl_plan(model, cluster, workload, Precision::kBf16, setting);
    played.push_back(play(plan));
    scales.push_back(kSleptMs / played.back().quiet_ms);
    for (const bool with_encoders : {true, false})
      cases.push_back(sleeping_case(plan, setting, played.back().timeline, scales.back(), with_encoders));
  }
  const std::vector<MeasuredStep> measured = measure_steps(cases, 2);
  fmt::print("Eight ranks that sleep as Qwen2-VL-7B on H200, {}\n", name);
  for (size_t i = 0; i < settings.size(); ++i) {
    const Played& p = played[i];
    const double step_ms = measured[2 * i].step_ms / scales[i], without_ms = measured[2 * i + 1].step_ms / scales[i];
    fmt::print(
        "  {:6}: {:7.1f} ms a step, without encoder {:7.1f}, hidden {:4.0f} % of {:.1f}\n"
        "          simulated {:7.1f} (measured {:.3f}), without {:7.1f} ({:.3f}), hidden {:4.0f} %; with communication "
        "{:.1f}, {:.1f}, {:.0f} %\n",
        name_of(settings[i].form), step_ms, without_ms, 100 * hidden_share(step_ms, without_ms, p.encoder_ms),
        p.encoder_ms, p.quiet_ms, step_ms / p.quiet_ms, p.quiet_without_ms, without_ms / p.quiet_without_ms,
        100 * hidden_share(p.quiet_ms, p.quiet_without_ms, p.encoder_ms), p.step_ms, p.without_ms,
        100 * hidden_share(p.step_ms, p.without_ms, p.encoder_ms));
  }
  if (settings.size() == 2)
    fmt::print("  fill takes {:.3f} of before, simulated {:.3f}\n",
               measured[2].step_ms / scales[1] / (measured[0].step_ms / scales[0]),
               played[1].quiet_ms / played[0].quiet_ms);
}

/// What rows hold between actions when that is most: as the simulator has it, had actions no memory of their own.
std::vector<double> predicted_held_bytes(const Plan& plan) {
  PlanSimulator simulator = must(PlanSimulator::create(plan));
  const Schedule schedule = must(playable_schedule(plan));
  PlanCosts costs = simulator.price(plan);
  for (StageCost& stage : costs.stages) stage.workspace_bytes = 0;
  for (size_t e = 0; e < costs.encoders.size(); ++e) {
    StageCost& stage = costs.encoders[e].stages.front();
    stage.workspace_bytes = 0;
    if (!schedule.encoders[e].keeps_activations()) stage.activation_bytes = 0;
  }
  std::vector<double> held;
  for (const MemorySplit& row : memory_of_schedule_rows(plan, schedule, costs)) held.push_back(row.activations);
  return held;
}

void compare_memory() {
  constexpr int64_t kTokens = 128, kSide = 16, kMicrobatches = 16;
  struct Setting {
    const char* name;
    EncoderForm form;
    int64_t live;
    bool recomputes;
  };
  const std::vector<Setting> settings = {{"before", EncoderForm::kBefore, 0, false},
                                         {"before, recomputed from inputs", EncoderForm::kBefore, 0, true},
                                         {"fill, fewest live", kFill, 0, false},
                                         {"fill, 6 live", kFill, 6, false}};
  const Model model =
      small_vl({.width = 128, .inner = 384, .layers = 4, .heads = 4, .vision_width = 128, .vision_layers = 4});
  const Cluster cluster = scenario_cluster("local_cpu");
  const Workload workload = constant_workload(kTokens, 1, kSide * kSide);
  std::vector<VlCase> cases;
  for (const Setting& setting : settings) {
    Plan plan = vl_plan(model, cluster, workload, Precision::kFp32,
                        {.pp = 2,
                         .microbatches = kMicrobatches,
                         .vision_dp = 2,
                         .form = setting.form,
                         .live = setting.live,
                         .recompute_from_inputs = setting.recomputes});
    play(plan);
    cases.push_back({.plan = plan, .samples = std::vector<VlSample>(kMicrobatches, {kTokens, {kSide}})});
  }
  const std::vector<MeasuredStep> measured = measure_steps(cases, 1);
  fmt::print("Memory on two ranks, llm pp 2, vision dp 2 on both, {} macro batches: KiB predicted, measured, ratio\n",
             kMicrobatches / 2);
  for (size_t i = 0; i < settings.size(); ++i) {
    const Plan& plan = cases[i].plan;
    const PlanReport report = must(simulate_plan(plan));
    const std::vector<double> held_bytes = predicted_held_bytes(plan);
    for (size_t rank = 0; rank < 2; ++rank) {
      const MemorySplit& memory = report.rows[rank].memory;
      const double held = held_bytes[rank] / 1024;
      const double peak = (memory.activations + memory.workspace) / 1024;
      const double with_buffers = peak + memory.buffers / 1024;
      const double found_held = static_cast<double>(measured[i].ranks[rank].held_bytes) / 1024;
      const double found_peak = static_cast<double>(measured[i].ranks[rank].peak_bytes) / 1024;
      fmt::print(
          "  {:31} rank {} (live {}): held {:6.0f} {:6.0f} {:6.3f}   peak {:6.0f} {:6.0f} {:6.3f}, with buffers "
          "{:6.0f} "
          "{:6.3f}\n",
          settings[i].name, rank, plan.modules.front().live_macro_batches, held, found_held, found_held / held, peak,
          found_peak, found_peak / peak, with_buffers, found_peak / with_buffers);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  // By name, or all of them.
  const auto is_wanted = [&](std::string_view part) { return argc < 2 || part == argv[1]; };
  if (is_wanted("memory")) compare_memory();
  std::fflush(stdout);
  if (is_wanted("sleeping")) {
    for (const int64_t microbatches : {8, 16}) {
      const VlSetting before{.pp = 4, .dp = 2, .microbatches = microbatches, .vision_dp = 8};
      VlSetting fill = before;
      fill.form = kFill;
      compare_sleeping(fmt::format("llm pp 4 x dp 2, vision dp 8 on all, {} microbatches", microbatches).c_str(),
                       {before, fill});
    }
    compare_sleeping("llm pp 3 x dp 2, vision dp 2 on ranks of its own, 8 microbatches",
                     {{.pp = 3,
                       .dp = 2,
                       .placement = ModulePlacement::kDisjoint,
                       .vision_dp = 2,
                       .form = EncoderForm::kStream,
                       .live = 4}});
  }
  std::fflush(stdout);
  if (is_wanted("computing")) compare_computing();
  return 0;
}
