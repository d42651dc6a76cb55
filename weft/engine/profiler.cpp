#include "weft/engine/profiler.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include <fmt/format.h>

#include "weft/base/clock.h"
#include "weft/base/counted.h"
#include "weft/base/text.h"
#include "weft/comm/failure.h"
#include "weft/comm/run_ranks.h"
#include "weft/engine/core_share.h"
#include "weft/engine/guarded.h"
#include "weft/engine/host_memory.h"
#include "weft/engine/rank_device.h"
#include "weft/engine/tensor_options.h"
#include "weft/measure/machine.h"
#include "weft/measure/measure_links.h"
#include "weft/measure/measure_operator.h"
#include "weft/measure/measure_step.h"
#include "weft/measure/measure_update.h"
#include "weft/measure/middle_of_turns.h"

namespace weft {
namespace {

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  gmtime_r(&now, &day);
  return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

std::string name_of_shape(const BlockShape& shape) {
  std::string text = fmt::format("{} {}, tp {}", name_of(shape.module), shape.block, shape.tp);
  if (shape.cp > 1) text += fmt::format(", cp {}", shape.cp);
  if (shape.ep > 1) text += fmt::format(", ep {}", shape.ep);
  if (!shape.strategy.empty()) text += ", with its strategy";
  return text + fmt::format(", {:.0f} tokens", shape.tokens);
}

/// One process's way through a request: the first rank's.
class Profiling {
 public:
  Profiling(const ProfileRequest& request, at::Device device)
      : request_(request),
        settings_{.precision = request.profile.precision,
                  .device = device,
                  .num_cores = usable_cores(),
                  .copy_bytes_per_ms = request.copy_bytes_per_ms,
                  .stop = request.stop},
        start_ms_(now_ms()) {
    report_.profile = request.profile;
    report_.num_left = std::ssize(request.shapes) + std::ssize(request.operators);
  }

  ProfileReport& report() { return report_; }
  const MeasureSettings& settings() const { return settings_; }

  /// A processor's speed moves within minutes, so its shapes take turns: what is slow for a while is slow for all of
  /// them, and prices of plans that ask for different shapes can be compared.
  std::optional<Error> measure_blocks() {
    const int64_t num_turns = settings_.device.is_cpu() ? kTurnsOfProcessors : 1;
    // All turns together are then as sure as one would have to be.
    settings_.rule.spread_percent = StopRule().spread_percent * std::sqrt(static_cast<double>(num_turns));
    std::vector<std::vector<BlockMeasurement>> turns(request_.shapes.size());
    for (int64_t turn = 0; turn < num_turns; ++turn) {
      if (auto error = measure_turn(turn, num_turns, turns)) return error;
    }
    return std::nullopt;
  }

  /// The same of operators of a user's own program.
  std::optional<Error> measure_operators() {
    std::vector<std::vector<OperatorMeasurement>> turns(request_.operators.size());
    const auto count = std::ssize(request_.operators);
    settings_.rule.spread_percent = StopRule().spread_percent * std::sqrt(static_cast<double>(kTurnsOfProcessors));
    for (int64_t i = 0; i < kTurnsOfProcessors * count; ++i) {
      if (is_over()) return std::nullopt;
      const int64_t turn = i / count;
      const OperatorCase& op = request_.operators[static_cast<size_t>(i % count)];
      std::vector<OperatorMeasurement>& own = turns[static_cast<size_t>(i % count)];
      if (turn > 0 && own.empty()) continue;  // impossible
      show_progress(i, kTurnsOfProcessors * count,
                    fmt::format("operator {} of {}, turn {} of {}: {}", i % count + 1, count, turn + 1,
                                kTurnsOfProcessors, op.program.name));
      const double share_ms = left_ms() / static_cast<double>(kTurnsOfProcessors * count - i);
      constexpr auto kTurns = static_cast<double>(kTurnsOfProcessors);
      settings_.rule.time_limit_ms = std::clamp(1.5 * share_ms, 20.0 / kTurns, 2000.0 / kTurns);
      auto measured = measured_or_error([&] { return measure_operator(op, settings_); }, op.program.name);
      if (turn == 0 && (!measured || *measured)) --report_.num_left;
      if (!measured) {
        if (measured.error().kind == ErrorKind::kJob) return measured.error();
        if (turn == 0) report_.impossible.push_back(measured.error().message());
        continue;
      }
      if (!*measured) continue;  // stopped
      own.push_back((*measured)->measurement);
      add(middle_of_turns(own));
      report_.num_outliers += (*measured)->outliers;
      report_.num_runs += (*measured)->measurement.sureness.runs;
    }
    return std::nullopt;
  }

  /// Updates of few and many layers, as far as they fit.
  std::optional<Error> measure_updates() {
    if (request_.shapes.empty() && request_.operators.empty() && !report_.profile.updates.empty()) return std::nullopt;
    const auto& updates = report_.profile.updates;
    const auto layers_of_model = std::ssize(request_.model.modules.back().layers);
    std::vector<int64_t> busy = {1};
    const auto add_busy = [&](int64_t ranks) {
      if (std::find(busy.begin(), busy.end(), ranks) == busy.end()) busy.push_back(ranks);
    };
    for (const BlockShape& shape : request_.shapes) add_busy(shape.busy_ranks);
    for (const OperatorCase& op : request_.operators) add_busy(op.busy_ranks);
    for (const int64_t ranks : busy) {
      if (std::any_of(updates.begin(), updates.end(),
                      [&](const UpdateMeasurement& update) { return update.busy_ranks == ranks; }))
        continue;
      for (const int64_t layers : {1, 4, 16}) {
        if (is_over() || layers > layers_of_model ||
            static_cast<double>(layers * ranks) * bytes_of_layer() > memory_left())
          break;
        show("optimizer update of " + counted(layers, "layer"));
        settings_.rule.time_limit_ms = std::clamp(left_ms() / 40, 100.0, 2000.0);
        auto measured = measured_or_error([&] { return measure_update(request_.model, layers, ranks, settings_); },
                                          "optimizer update");
        if (!measured) return measured.error();
        if (*measured) report_.profile.updates.push_back(**measured);
      }
    }
    return std::nullopt;
  }

  std::optional<Error> measure_overhead() {
    if (is_over() || report_.profile.action_ms > 0 || report_.profile.step_ms > 0) return std::nullopt;
    if (request_.model.numbers.program) return std::nullopt;  // its inputs are no tokens
    const Module& llm = request_.model.modules.back();
    const double ends_bytes = 20 * static_cast<double>(num_parameters(llm.entry) + num_parameters(llm.exit));
    if (3 * (ends_bytes + bytes_of_layer()) > memory_left()) return std::nullopt;
    int64_t tokens = 512;
    for (const BlockShape& shape : request_.shapes) {
      if (shape.module == ModuleKind::kLlm) tokens = std::min(tokens, static_cast<int64_t>(shape.sequence_tokens));
    }
    show("a whole step of one layer");
    settings_.rule.time_limit_ms = std::clamp(left_ms() / 40, 200.0, 2000.0);
    auto measured = measured_or_error([&] { return measure_step(request_.model, tokens, request_.ranks, settings_); },
                                      "a whole step");
    if (!measured) return measured.error();
    if (!*measured) return std::nullopt;
    report_.profile.action_ms = (*measured)->action_ms;
    report_.profile.step_ms = (*measured)->step_ms;
    return std::nullopt;
  }

  /// On every rank.
  void measure_links_of(World& world) {
    int64_t is_wanted = report_.profile.links.empty() && !is_over() ? 1 : 0;
    world.all().broadcast(Buffer{.data = &is_wanted, .count = 1, .type = DataType::kInt64}, 0).wait();
    if (is_wanted == 0 || world.size() < 2) return;
    MeasureSettings quick = settings_;
    quick.rule = {.spread_percent = 5, .least_runs = 7, .time_limit_ms = 250};
    const std::vector<LinkMeasurement> links =
        measure_links(world, quick, [&](const std::string& what) { show(what); });
    if (world.rank() != 0) return;
    report_.profile.links = links;
    if (request_.keep) request_.keep(report_.profile);
  }

  void finish() {
    report_.profile.date = today();
    note_clocks();
    report_.is_stopped = is_stopped();
    report_.is_out_of_time = !report_.is_stopped && report_.num_left > 0;
  }

 private:
  static constexpr int64_t kTurnsOfProcessors = 3;

  /// Every shape once, as far as time goes.
  std::optional<Error> measure_turn(int64_t turn, int64_t num_turns,
                                    std::vector<std::vector<BlockMeasurement>>& turns) {
    const auto count = std::ssize(request_.shapes);
    double last_kept = now_ms();
    for (int64_t i = 0; i < count; ++i) {
      if (is_over()) return std::nullopt;
      const BlockShape& shape = request_.shapes[static_cast<size_t>(i)];
      std::vector<BlockMeasurement>& own = turns[static_cast<size_t>(i)];
      if (turn > 0 && own.empty()) continue;  // impossible
      const std::string of_turns = num_turns > 1 ? fmt::format(", turn {} of {}", turn + 1, num_turns) : "";
      show_progress(turn * count + i, num_turns * count,
                    fmt::format("block {} of {}{}: {}", i + 1, count, of_turns, name_of_shape(shape)));
      // Half as much again as its share of what is left, so that those that need it get more.
      const double share_ms = left_ms() / static_cast<double>((num_turns - turn) * count - i);
      const auto turns_of_all = static_cast<double>(num_turns);
      settings_.rule.time_limit_ms = std::clamp(1.5 * share_ms, 100.0 / turns_of_all, 5000.0 / turns_of_all);
      Result<std::optional<MeasuredBlock>> measured =
          measured_or_error([&] { return measure_block(request_.model, shape, settings_); }, name_of_shape(shape));
      if (turn == 0 && (!measured || *measured)) --report_.num_left;
      if (!measured) {
        if (measured.error().kind == ErrorKind::kJob) return measured.error();
        if (turn == 0)
          report_.impossible.push_back(fmt::format("{}: {}", name_of_shape(shape), measured.error().message()));
        continue;
      }
      if (!*measured) continue;  // stopped
      own.push_back((*measured)->measurement);
      add(middle_of_turns(own));
      if ((*measured)->clock_mhz) clocks_mhz_.push_back(*(*measured)->clock_mhz);
      report_.num_outliers += (*measured)->outliers;
      report_.num_runs += (*measured)->measurement.sureness.runs;
      if (constexpr double kKeepMs = 2000; request_.keep && now_ms() - last_kept > kKeepMs) {
        request_.keep(report_.profile);
        last_kept = now_ms();
      }
    }
    return std::nullopt;
  }

  /// Of all blocks, those of earlier runs with them.
  void note_clocks() {
    if (clocks_mhz_.empty()) return;
    Profile& profile = report_.profile;
    const double lowest = *std::min_element(clocks_mhz_.begin(), clocks_mhz_.end());
    profile.lowest_clock_mhz = profile.lowest_clock_mhz > 0 ? std::min(profile.lowest_clock_mhz, lowest) : lowest;
    profile.clock_mhz = median_of(std::move(clocks_mhz_));
    clocks_mhz_.clear();
  }

  bool is_stopped() const { return request_.stop != nullptr && request_.stop->load(); }
  double left_ms() const { return request_.time_limit_s * 1e3 - (now_ms() - start_ms_); }
  bool is_over() const { return is_stopped() || left_ms() <= 0; }
  double bytes_of_layer() const { return state_bytes_of_layer(request_.model, settings_.precision); }

  /// Half of what can be had.
  double memory_left() const {
    if (settings_.device.is_cpu()) return static_cast<double>(available_host_memory().value_or(int64_t{4} << 30)) / 2;
    return gpu_memory(settings_.device).free_bytes / 2;
  }

  /// LibTorch's complaints as ours.
  template <typename Measure>
  auto measured_or_error(const Measure& measure, const std::string& what) -> decltype(measure()) {
    const auto fail = [&](Error error) {
      error.source = what;
      return error;
    };
    constexpr const char* kAdvice = "Profile for plans with a larger tp, or with fewer samples in a microbatch.";
    try {
      return measure();
    } catch (const RankFailure& failure) {
      try {
        std::rethrow_if_nested(failure);
      } catch (const c10::Error& error) {
        return fail(explain_libtorch_error(error, kAdvice));
      } catch (const std::bad_alloc&) {
        return fail(memory_ran_out("", kAdvice));
      } catch (const std::exception& error) {
        return fail({.kind = ErrorKind::kJob, .problem = error.what()});
      }
      return fail({.kind = ErrorKind::kJob, .problem = failure.what()});
    }
  }

  void add(const BlockMeasurement& measured) {
    put(measured, report_.profile.blocks, [&](const BlockMeasurement& other) { return other.shape == measured.shape; });
  }
  void add(const OperatorMeasurement& measured) {
    put(measured, report_.profile.operators, [&](const OperatorMeasurement& other) {
      return other.part == measured.part && other.busy_ranks == measured.busy_ranks;
    });
  }
  template <typename Measurement, typename IsSame>
  static void put(const Measurement& measured, std::vector<Measurement>& all, IsSame is_same) {
    const auto same = std::find_if(all.begin(), all.end(), is_same);
    if (same != all.end()) {
      *same = measured;
    } else {
      all.push_back(measured);
    }
  }

  void show(const std::string& text) const {
    if (request_.show) request_.show(text);
  }
  void show_progress(int64_t done, int64_t count, const std::string& what) {
    if (done == 0) blocks_start_ms_ = now_ms();
    const double each = done == 0 ? 0 : (now_ms() - blocks_start_ms_) / static_cast<double>(done);
    const double left_s = std::min(each * static_cast<double>(count - done), left_ms()) * 1e-3;
    if (!request_.show_block) return;
    request_.show_block(what, done == 0 ? std::nullopt : std::optional(left_s));
  }

  const ProfileRequest& request_;
  MeasureSettings settings_;
  double start_ms_;
  double blocks_start_ms_ = 0;
  std::vector<double> clocks_mhz_;
  ProfileReport report_;
};

std::optional<Error> measure_alone(Profiling& profiling) {
  if (auto error = profiling.measure_updates()) return error;
  if (auto error = profiling.measure_overhead()) return error;
  if (auto error = profiling.measure_operators()) return error;
  return profiling.measure_blocks();
}

}  // namespace

Result<std::optional<ProfileReport>> measure_profile(const ProfileRequest& request) {
  if (request.model.numbers.program && request.device != "cpu")
    return Error{.source = "--device",
                 .problem = fmt::format("is {}, but {} is a program of its user, whose operators are measured on "
                                        "processors alone",
                                        request.device, printable(request.model.name)),
                 .advice = "Plans of programs for GPUs are priced by the cluster's rates: leave --profile out."};
  const Launch launch = detect_launch();
  const bool has_threads = launch.kind == Launch::Kind::kThreads;
  std::optional<ProfileReport> report;
  std::optional<Error> failed;
  RunOptions options{.size = has_threads ? request.ranks : 0};
  WEFT_TRY(options.comm, comm_options_from_environment());
  // The others wait while the first measures what needs only itself.
  options.comm.timeout = std::max<std::chrono::milliseconds>(options.comm.timeout, std::chrono::hours(24));
  if (request.say) options.report = request.say;
  if (has_threads) {
    WEFT_TRY(const at::Device device, open_device(request.device));
    Profiling profiling(request, device);
    // Threads share one GPU and have no links between GPUs to measure.
    if (device.is_cpu() && request.ranks > 1) {
      if (auto error = run_ranks(options, [&](World& world) {
            if (world.rank() == 0) return profiling.measure_links_of(world);
            Profiling(request, device).measure_links_of(world);
          }))
        return *std::move(error);
    }
    if (auto error = measure_alone(profiling)) return *std::move(error);
    profiling.finish();
    return std::optional(std::move(profiling.report()));
  }
  const auto body = [&](World& world) {
    auto device = open_rank_device(world, request.device);
    if (!device) {
      failed = std::move(device).error();
      return;
    }
    Profiling profiling(request, *device);
    profiling.measure_links_of(world);
    if (world.rank() == 0) {
      failed = measure_alone(profiling);
      profiling.finish();
      report = std::move(profiling.report());
    }
    world.all().barrier().wait();
  };
  try {
    if (auto error = run_ranks(options, body)) failed = std::move(error);
  } catch (const RankFailure& failure) {
    if (!failure.should_print()) return Error{.kind = ErrorKind::kJob};
    return Error{.kind = ErrorKind::kJob, .problem = failure.what()};
  }
  if (failed) return launch.is_speaker() ? *failed : Error{.kind = failed->kind};
  return report;
}

}  // namespace weft
