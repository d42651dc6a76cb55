#include "weft/measure/measure_operator.h"

#include <mutex>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include "weft/base/clock.h"
#include "weft/comm/echo/echo_world.h"
#include "weft/comm/threads/run_threads.h"
#include "weft/measure/rank_setup.h"
#include "weft/pipeline/tensor_type.h"
#include "weft/program/value_layout.h"
#include "weft/runner/program_runner.h"

namespace weft {
namespace {

using Role = ProgramValue::Role;

/// What is given comes as the operator reads it, so that nothing is brought into another layout.
RunStrategy strategy_of(const OperatorCase& measured) {
  const Program& program = measured.program;
  const Operator& op = program.operators.front();
  RunStrategy strategy{.operators = {{measured.choice}}, .sources = {}};
  strategy.sources.resize(program.values.size());
  for (size_t i = 0; i < op.operands.size(); ++i)
    strategy.sources[op.operands[i]] = operand_states(program, op, {measured.choice}, i);
  return strategy;
}

/// An operator on one rank with numbers to compute on.
class OperatorRun {
 public:
  OperatorRun(const OperatorCase& measured, const MeshGroups& groups, ProgramRunner runner, Precision precision)
      : program_(measured.program), runner_(std::move(runner)), bytes_(at::empty({measured.passing_bytes}, at::kByte)) {
    const at::TensorOptions options = at::TensorOptions().dtype(tensor_type(precision));
    const Operator& op = program_.operators.front();
    given_.resize(program_.values.size());
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const std::vector<int64_t> shape = runner_.layout(op.operands[i]).local_shape(groups.position());
      const bool is_number =
          (op.kind == OperatorKind::kLookup && i == 0) || (op.kind == OperatorKind::kCrossEntropy && i == 1);
      if (is_number) {
        const ProgramValue& other = program_.values[op.operands[1 - i]];
        const int64_t entries = program_.dims[i == 0 ? other.dims.front() : other.dims.back()].length;
        given_[op.operands[i]] = at::randint(std::max<int64_t>(1, entries), shape, at::kLong);
      } else {
        constexpr double kDeviation = 0.1;
        given_[op.operands[i]] = at::randn(shape, options) * kDeviation;
      }
    }
  }

  BlockPasses run() {
    // Weights and what was kept come from far away, what the operator before made is at hand.
    pass_by();
    for (size_t value = 0; value < given_.size(); ++value) {
      if (given_[value].defined() && program_.values[value].role != Role::kWeight) touch(given_[value]);
    }
    RunnerTape tape;
    double begin = now_ms();
    const at::Tensor made = runner_.forward(given_, {}, tape).front();
    BlockPasses passes{.forward = now_ms() - begin};
    if (!slope_.defined()) slope_ = at::randn(made.sizes(), made.options());
    pass_by();
    touch(slope_);
    begin = now_ms();
    runner_.backward_inputs({slope_}, tape);
    const double middle = now_ms();
    runner_.backward_weights(tape);
    passes.backward_input = middle - begin;
    passes.backward_weight = now_ms() - middle;
    return passes;
  }

 private:
  void pass_by() {
    if (bytes_.numel() > 0) bytes_.add_(1);
  }
  static void touch(const at::Tensor& x) { x.sum(); }

  const Program& program_;
  ProgramRunner runner_;
  at::Tensor bytes_;
  std::vector<at::Tensor> given_;
  at::Tensor slope_;
};

/// One of the ranks that run at once; all of them decide alike.
Result<std::optional<MeasuredOperator>> measure_rank(World& world, const OperatorCase& measured,
                                                     const MeasureSettings& settings) {
  const at::NoGradGuard no_graph;
  // An operator that communicates inside does so with its own ranks, of which the machine may have several groups.
  EchoWorld alone(0, 1);
  const bool meets = measured.ranks > 1;
  const int64_t first = meets ? world.rank() / measured.ranks * measured.ranks : 0;
  WEFT_TRY(const Mesh mesh, Mesh::contiguous({{"tp", measured.ranks}}, first));
  WEFT_TRY(const MeshGroups groups, MeshGroups::create(meets ? world : alone.world(), mesh));
  WEFT_TRY(ProgramRunner runner, ProgramRunner::create(measured.program, strategy_of(measured), groups));
  OperatorRun run(measured, groups, std::move(runner), settings.precision);
  const auto agreed = [&](int64_t value) {
    if (world.size() > 1) world.all().broadcast(Buffer{.data = &value, .count = 1, .type = DataType::kInt64}, 0).wait();
    return value;
  };
  std::vector<double> forward, input, weight, sums;
  constexpr int kWarmUp = 2;
  double start = now_ms();
  for (int64_t count = 0;; ++count) {
    world.all().barrier().wait();
    const BlockPasses own = run.run();
    double passes[3] = {own.forward, own.backward_input, own.backward_weight};
    if (world.size() > 1)
      world.all().all_reduce(Buffer{.data = passes, .count = 3, .type = DataType::kFp64}, Reduction::kSum).wait();
    const bool is_stopped = settings.stop != nullptr && settings.stop->load();
    if (agreed(is_stopped ? 1 : 0) != 0) return std::optional<MeasuredOperator>();
    if (count < kWarmUp) {
      start = now_ms();
      continue;
    }
    const auto size = static_cast<double>(world.size());
    forward.push_back(passes[0] / size);
    input.push_back(passes[1] / size);
    weight.push_back(passes[2] / size);
    sums.push_back(forward.back() + input.back() + weight.back());
    if (agreed(settings.rule.is_enough(sums, now_ms() - start) ? 1 : 0) != 0) break;
  }
  const MedianEstimate sum = estimate_median(sums);
  constexpr double kLeastMs = 1e-6;  // the reader asks for some time
  return std::optional(MeasuredOperator{.measurement = {.part = measured.part,
                                                        .busy_ranks = measured.busy_ranks,
                                                        .forward_ms = std::max(median_of(forward), kLeastMs),
                                                        .backward_input_ms = median_of(input),
                                                        .backward_weight_ms = median_of(weight),
                                                        .sureness = sum.sureness},
                                        .outliers = sum.outliers});
}

}  // namespace

Result<std::optional<MeasuredOperator>> measure_operator(const OperatorCase& op, const MeasureSettings& settings) {
  // Ranks that meet inside come in whole groups.
  const int64_t ranks = std::max(op.ranks, op.busy_ranks / op.ranks * op.ranks);
  std::mutex guard;
  std::optional<Result<std::optional<MeasuredOperator>>> first;
  const auto body = [&](World& world) {
    begin_rank(settings.device, settings.num_cores, ranks);
    auto measured = measure_rank(world, op, settings);
    const std::lock_guard lock(guard);
    if (world.rank() == 0) first.emplace(std::move(measured));
  };
  if (auto error = run_thread_ranks(ranks, {}, body)) return *std::move(error);
  return *std::move(first);
}

}  // namespace weft
