#include "weft/measure/measure_block.h"

#include <cmath>
#include <mutex>
#include <numeric>

#include "weft/base/clock.h"
#include "weft/comm/threads/run_threads.h"
#include "weft/measure/clock_speed.h"
#include "weft/measure/rank_setup.h"
#include "weft/tensor/memory_count.h"

namespace weft {
namespace {

/// Whether a layer has attention, so that recomputing it makes a difference.
bool has_attention(const Model& model, const BlockShape& shape) {
  const Module* module = model.find(shape.module);
  if (module == nullptr) return false;
  for (const Block& kind : module->distinct_layers) {
    if (kind.name != shape.block) continue;
    for (const Op& op : kind.ops)
      if (std::holds_alternative<Attention>(op.shape)) return true;
  }
  return false;
}

/// Runs one kind of the block, and collects its passes.
class Series {
 public:
  Series(BlockRunner& runner, const MeasureSettings& settings)
      : runner_(runner), settings_(settings), marks_(settings.device) {}

  /// Of a GPU several runs before it is waited for: its host is ahead, as in training.
  void run(int64_t count) {
    for (int64_t i = 0; i < count; ++i) runner_.run(marks_);
    if (!clock_mhz_) clock_mhz_ = weft::clock_mhz(settings_.device);  // while a GPU is at it
    marks_.wait();
    for (const BlockPasses& passes : runner_.passes(marks_, settings_.copy_bytes_per_ms)) add(passes);
    marks_.clear();
  }
  void forget() {
    forward_.clear();
    input_.clear();
    weight_.clear();
    sums_.clear();
    clock_mhz_.reset();
  }
  /// The mean over ranks that ran at once takes the last run's place.
  void share_last(Group& group) {
    double values[3] = {forward_.back(), input_.back(), weight_.back()};
    group.all_reduce(Buffer{.data = values, .count = 3, .type = DataType::kFp64}, Reduction::kSum).wait();
    const auto ranks = static_cast<double>(group.size());
    forward_.pop_back(), input_.pop_back(), weight_.pop_back(), sums_.pop_back();
    add({values[0] / ranks, values[1] / ranks, values[2] / ranks});
  }

  const std::vector<double>& forward() const { return forward_; }
  const std::vector<double>& input() const { return input_; }
  const std::vector<double>& weight() const { return weight_; }
  const std::vector<double>& sums() const { return sums_; }
  std::optional<double> clock_mhz() const { return clock_mhz_; }

 private:
  void add(const BlockPasses& passes) {
    forward_.push_back(passes.forward);
    input_.push_back(passes.backward_input);
    weight_.push_back(passes.backward_weight);
    sums_.push_back(passes.sum());
  }

  BlockRunner& runner_;
  const MeasureSettings& settings_;
  TimeMarks marks_;
  std::vector<double> forward_, input_, weight_, sums_;
  std::optional<double> clock_mhz_;
};

/// Ranks of one machine that meet inside a block of this shape: consecutive ones, so many that all ranks are in a
/// group.
int64_t num_that_meet(const BlockShape& shape, int64_t ranks) {
  int64_t meeting = std::min(ranks, shape.tp * std::max(shape.cp, shape.ep));
  while (ranks % meeting != 0) --meeting;
  return meeting;
}

/// How many runs a GPU gets at once, so that the host is ahead and the rule is asked often.
int64_t runs_at_once(const MeasureSettings& settings, double run_ms) {
  if (settings.device.is_cpu()) return 1;
  constexpr double kBatchMs = 60;
  return std::clamp<int64_t>(static_cast<int64_t>(kBatchMs / std::max(run_ms, 1e-3)), 2, 16);
}

/// One of the ranks that run at once; all of them decide alike.
class RankMeasurement {
 public:
  RankMeasurement(World& world, const Model& model, const BlockShape& shape, const MeasureSettings& settings)
      : world_(world), model_(model), shape_(shape), settings_(settings) {}

  Result<std::optional<MeasuredBlock>> measure() {
    WEFT_TRY(meet_, make_meeting());
    const auto memory = std::make_shared<MemoryCount>();
    const CountedThread counted(memory);
    WEFT_TRY(const auto runner, create(BlockRecompute::kKeep));
    std::unique_ptr<BlockRunner> selective;
    if (has_attention(model_, shape_)) {
      WEFT_TRY(selective, create(BlockRecompute::kAttention));
    }
    MeasuredBlock measured{.measurement = {.shape = shape_}};
    BlockMeasurement& result = measured.measurement;
    BlockBytes bytes = runner->measure_bytes();
    if (selective) {
      // What all layers of a stage share, a table of rotations, is not the layer's: a recomputed one keeps just that.
      WEFT_TRY(const auto recomputed, create(BlockRecompute::kFull));
      const double shared = recomputed->measure_bytes().kept - recomputed->input_bytes();
      bytes.kept -= shared;
    }
    // An embedding keeps nothing but the tokens, which are there anyway; 0 would say that nobody looked.
    result.kept_bytes = std::max(1.0, bytes.kept / runner->token_share());
    result.forward_peak_bytes = bytes.forward_peak / runner->token_share();
    result.backward_peak_bytes = bytes.backward_peak / runner->token_share();

    for (BlockRunner* each : {runner.get(), selective.get()}) {
      if (each != nullptr) each->pass_by(bytes_of_others(*each, bytes.kept));
    }
    Series series(*runner, settings_);
    std::optional<Series> again;
    if (selective) again.emplace(*selective, settings_);
    if (!warm_up(series, again)) return std::optional<MeasuredBlock>();
    const double start = now_ms();
    const int64_t at_once = agreed(runs_at_once(settings_, median_of(series.sums())));
    series.forget();
    if (again) again->forget();
    constexpr int64_t kSelectiveRuns = 12;
    while (true) {
      world_.all().barrier().wait();
      series.run(at_once);
      if (world_.size() > 1) series.share_last(world_.all());
      if (again && std::ssize(again->input()) < kSelectiveRuns) {
        world_.all().barrier().wait();
        again->run(at_once);
        if (world_.size() > 1) again->share_last(world_.all());
      }
      if (agreed(is_stopped() ? 1 : 0) != 0) return std::optional<MeasuredBlock>();
      if (agreed(settings_.rule.is_enough(series.sums(), now_ms() - start) ? 1 : 0) != 0) break;
    }
    const MedianEstimate sum = estimate_median(series.sums());
    result.sureness = sum.sureness;
    measured.outliers = sum.outliers;
    measured.clock_mhz = series.clock_mhz();
    // The reader asks for some time.
    result.forward_ms = std::max(median_of(series.forward()), 1e-6);
    result.backward_input_ms = median_of(series.input());
    result.backward_weight_ms = median_of(series.weight());
    if (again) {
      std::vector<double> first = series.input();
      first.resize(std::min(first.size(), again->input().size()));
      result.attention_ms = std::clamp(median_of(again->input()) - median_of(std::move(first)), 0.0, result.forward_ms);
    }
    return std::optional(measured);
  }

 private:
  Result<std::unique_ptr<BlockRunner>> create(BlockRecompute recompute) {
    return BlockRunner::create({.model = model_,
                                .shape = shape_,
                                .precision = settings_.precision,
                                .device = settings_.device,
                                .recompute = recompute,
                                .meet = meet_});
  }

  /// Ranks that share a layer wait for each other at its collectives, and so for the one that was held up.
  Result<std::function<void()>> make_meeting() {
    const int64_t meeting = num_that_meet(shape_, world_.size());
    if (meeting == 1) return std::function<void()>();
    const int64_t first = world_.rank() / meeting * meeting;
    std::vector<int64_t> ranks(static_cast<size_t>(meeting));
    std::iota(ranks.begin(), ranks.end(), first);
    WEFT_TRY(Group group, world_.group("meeting", ranks));
    return std::function<void()>([group]() mutable { group.barrier().wait(); });
  }

  /// What a module's other layers hold, which a processor's caches see between two passes through one of them.
  int64_t bytes_of_others(BlockRunner& runner, double kept_bytes) const {
    if (!settings_.device.is_cpu()) return 0;
    constexpr double kMostBytes = 64 << 20;  // more than a core's share of most caches
    const auto others = static_cast<double>(model_.find(shape_.module)->layers.size() - 1);
    return static_cast<int64_t>(std::min(kMostBytes, others * (kept_bytes + runner.weight_bytes())));
  }

  /// Some runs; a GPU is at it long enough to lower its clocks to what its power allows, as in training. False where it
  /// was stopped.
  bool warm_up(Series& series, std::optional<Series>& again) {
    constexpr int kRuns = 3;
    constexpr double kGpuMs = 250;
    const double begin = now_ms();
    const auto is_warm = [&] { return settings_.device.is_cpu() || now_ms() - begin > kGpuMs; };
    for (int i = 0; i < kRuns || agreed(is_warm() ? 1 : 0) == 0; ++i) {
      world_.all().barrier().wait();
      series.run(1);
      if (again && i == 0) again->run(1);
      if (agreed(is_stopped() ? 1 : 0) != 0) return false;
    }
    return true;
  }

  bool is_stopped() const { return settings_.stop != nullptr && settings_.stop->load(); }

  /// What the first rank says.
  int64_t agreed(int64_t value) {
    if (world_.size() > 1)
      world_.all().broadcast(Buffer{.data = &value, .count = 1, .type = DataType::kInt64}, 0).wait();
    return value;
  }

  World& world_;
  const Model& model_;
  const BlockShape& shape_;
  const MeasureSettings& settings_;
  std::function<void()> meet_;
};

}  // namespace

Result<std::optional<MeasuredBlock>> measure_block(const Model& model, const BlockShape& shape,
                                                   const MeasureSettings& settings) {
  const int64_t ranks = settings.device.is_cpu() ? shape.busy_ranks : 1;
  std::mutex guard;
  std::optional<Result<std::optional<MeasuredBlock>>> first;
  const auto body = [&](World& world) {
    begin_rank(settings.device, settings.num_cores, ranks);
    auto measured = RankMeasurement(world, model, shape, settings).measure();
    const std::lock_guard lock(guard);
    if (world.rank() == 0) first.emplace(std::move(measured));
  };
  free_unused_memory(settings.device);
  if (auto error = run_thread_ranks(ranks, {}, body)) return *std::move(error);
  return *std::move(first);
}

}  // namespace weft
