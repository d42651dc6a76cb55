#include "weft/engine/program_check.h"

#include <cmath>
#include <limits>
#include <mutex>
#include <optional>
#include <set>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/comm/threads/run_threads.h"
#include "weft/meaning/program_exchanges.h"
#include "weft/program/custom_functions.h"
#include "weft/program/operator_part.h"
#include "weft/program/program_strategy.h"
#include "weft/runner/program_runner.h"
#include "weft/runner/rule_check.h"
#include "weft/tensor/local_tensor.h"

namespace weft {
namespace {

std::vector<int64_t> shape_of(const Program& program, size_t value) {
  std::vector<int64_t> shape;
  for (const size_t dim : program.values[value].dims) shape.push_back(program.dims[dim].length);
  return shape;
}

/// How many numbers data may be of: entries of the table, or classes, of whoever reads them as such.
std::optional<int64_t> num_choices(const Program& program, size_t value) {
  for (const size_t reader : program.readers_of(value)) {
    const Operator& op = program.operators[reader];
    if (op.kind == OperatorKind::kLookup && op.operands[0] == value) return shape_of(program, op.operands[1]).front();
    if (op.kind == OperatorKind::kCrossEntropy && op.operands[1] == value)
      return shape_of(program, op.operands[0]).back();
  }
  return std::nullopt;
}

at::Tensor drawn(const std::vector<int64_t>& shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::TensorOptions().dtype(at::kDouble));
}

std::vector<at::Tensor> drawn_sources(const Program& program, uint64_t seed) {
  std::vector<at::Tensor> given(program.values.size());
  for (size_t value = 0; value < program.values.size(); ++value) {
    if (program.values[value].role == ProgramValue::Role::kResult) continue;
    const std::vector<int64_t> shape = shape_of(program, value);
    const auto choices = num_choices(program, value);
    given[value] = choices ? at::randint(0, std::max<int64_t>(1, *choices), shape,
                                         at::detail::createCPUGenerator(seed + value), at::kLong)
                           : drawn(shape, seed + value);
  }
  return given;
}

RunStrategy alone(const Program& program) {
  RunStrategy strategy;
  strategy.operators.assign(program.operators.size(), {Choice::same()});
  for (const ProgramValue& value : program.values) {
    const bool is_result = value.role == ProgramValue::Role::kResult;
    strategy.sources.emplace_back(is_result ? 0 : 1, AxisState::replicated());
  }
  return strategy;
}

/// What a rank holds of a whole tensor: its part; of summands the first one has all.
at::Tensor part_of(const at::Tensor& whole, const Layout& layout, int64_t position) {
  const at::Tensor part = block_of(whole, layout.box(position)).clone(at::MemoryFormat::Contiguous);
  return layout.grid().group_index(position, layout.partial_axes()) == 0 ? part : at::zeros_like(part);
}

struct WholeRun {
  std::vector<at::Tensor> given, outputs, slopes, gradients;
};

Result<WholeRun> run_alone(World& world, const ProgramCheckRequest& request, const RunDraws& draws) {
  WholeRun run{.given = drawn_sources(request.program, request.seed)};
  WEFT_TRY(const Mesh mesh, Mesh::create({{"one", 1}}, {world.rank()}));
  WEFT_TRY(const MeshGroups groups, MeshGroups::create(world, mesh));
  WEFT_TRY(ProgramRunner runner, ProgramRunner::create(request.program, alone(request.program), groups));
  RunnerTape tape;
  run.outputs = runner.forward(run.given, {.draws = draws}, tape);
  for (size_t i = 0; i < run.outputs.size(); ++i)
    run.slopes.push_back(drawn(run.outputs[i].sizes().vec(), request.seed + run.given.size() + i));
  run.gradients = runner.backward(run.slopes, tape);
  return run;
}

/// Compares what one rank holds with the whole.
class RankCheck {
 public:
  RankCheck(const MeshGroups& groups, ProgramCheckReport& report) : groups_(groups), report_(report) {}

  void compare(const at::Tensor& local, const Layout& layout, const at::Tensor& whole, const std::string& name) {
    at::Tensor sum = local.detach().clone(at::MemoryFormat::Contiguous);
    if (const AxisList partial = layout.partial_axes(); !partial.empty())
      groups_.along(partial).all_reduce(buffer_of(sum), Reduction::kSum).wait();
    if (sum.numel() == 0) return;
    const double scale = std::max(whole.abs().max().item<double>(), 1e-300);
    double difference = (sum - block_of(whole, layout.box(groups_.position()))).abs().max().item<double>() / scale;
    if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
    if (difference <= report_.largest_difference) return;
    report_.largest_difference = difference;
    report_.worst = name;
  }

 private:
  MeshGroups groups_;
  ProgramCheckReport& report_;
};

Result<ProgramCheckReport> check_rank(World& world, const ProgramCheckRequest& request) {
  const Program& program = request.program;
  const RunDraws draws{.seed = request.seed, .step = 1};
  WEFT_TRY(const WholeRun whole, run_alone(world, request, draws));
  WEFT_TRY(const Mesh mesh, Mesh::contiguous(request.mesh));
  WEFT_TRY(const MeshGroups groups, MeshGroups::create(world, mesh));
  WEFT_TRY(const MeshGroups checking, MeshGroups::create(world, mesh));
  WEFT_TRY(ProgramRunner runner, ProgramRunner::create(program, request.strategy, groups));
  std::vector<at::Tensor> parts(whole.given.size()), slopes;
  for (size_t value = 0; value < parts.size(); ++value) {
    if (whole.given[value].defined())
      parts[value] = part_of(whole.given[value], runner.layout(value), groups.position());
  }
  ProgramCheckReport report{.ranks = world.size(), .outputs = whole.outputs.size()};
  RankCheck check(checking, report);
  RunnerTape tape;
  const std::vector<at::Tensor> outputs = runner.forward(parts, {.draws = draws}, tape);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Layout layout = runner.layout(runner.outputs()[i]);
    check.compare(outputs[i], layout, whole.outputs[i], program.values[runner.outputs()[i]].name);
    slopes.push_back(part_of(whole.slopes[i], layout.gradient(), groups.position()));
  }
  const std::vector<at::Tensor> gradients = runner.backward(slopes, tape);
  for (size_t value = 0; value < gradients.size(); ++value) {
    if (!gradients[value].defined()) continue;
    ++report.gradients;
    check.compare(gradients[value], runner.layout(value).gradient(), whole.gradients[value],
                  "the gradient of " + program.values[value].name);
  }
  Traffic planned = runner.planned_traffic();
  planned += runner.planned_data_traffic();
  report.bytes_moved = groups.traffic().received;
  report.bytes_planned = planned.in_bytes(8).received;
  return report;
}

}  // namespace

Result<ProgramCheckReport> check_program(const ProgramCheckRequest& request) {
  int64_t ranks = 1, elements = 0;
  for (const Axis& axis : request.mesh) ranks *= axis.size;
  for (size_t value = 0; value < request.program.values.size(); ++value)
    elements += request.program.num_elements(value);
  if (ranks > ProgramCheckRequest::kMostRanks)
    return Error{.problem = fmt::format("{} ranks are too many to try a strategy with, at most {} are possible", ranks,
                                        ProgramCheckRequest::kMostRanks),
                 .advice = "Give a smaller mesh."};
  if (elements > ProgramCheckRequest::kMostElements)
    return Error{.problem = fmt::format("{} has {} elements, too many to try a strategy with, at most {} are possible",
                                        request.program.name, with_commas(elements),
                                        with_commas(ProgramCheckRequest::kMostElements)),
                 .advice = "Make its dims smaller: a strategy that is right for small ones is for large ones."};
  if (auto error = find_wrong_custom(request.program)) return *std::move(error);
  std::mutex guard;
  std::optional<ProgramCheckReport> all;
  std::optional<Error> failed;
  const auto body = [&](World& world) {
    at::set_num_threads(1);
    const Result<ProgramCheckReport> own = check_rank(world, request);
    const std::lock_guard lock(guard);
    if (!own) {
      failed = own.error();
    } else if (!all) {
      all = *own;
    } else {
      all->bytes_moved += own->bytes_moved;
      all->bytes_planned += own->bytes_planned;
      if (own->largest_difference > all->largest_difference) {
        all->largest_difference = own->largest_difference;
        all->worst = own->worst;
      }
    }
  };
  if (auto error = run_thread_ranks(ranks, {}, body)) return *std::move(error);
  if (failed) return *failed;
  return *all;
}

std::optional<Error> find_wrong_custom(const Program& program) {
  const CustomOperators custom = CustomOperators::built_in();
  const AxisGrid one = *AxisGrid::create({{"one", 1}});
  std::set<OperatorPart> known;
  for (size_t op = 0; op < program.operators.size(); ++op) {
    const Operator& own = program.operators[op];
    if (own.kind != OperatorKind::kCustom || custom.find(own) == nullptr) continue;
    if (auto error = find_wrong_call(program, own)) return error;
    int64_t elements = program.num_elements(own.result);
    for (const size_t operand : own.operands) elements += program.num_elements(operand);
    if (elements > ProgramCheckRequest::kMostElements) continue;
    if (!known.insert(part_of(program, own, {Choice::same()}, one)).second) continue;
    if (auto error = find_wrong_rule(program, op, custom)) return error;
  }
  return std::nullopt;
}

std::optional<Error> find_wrong_custom(const Model& model) {
  constexpr int64_t kSamples = 3;  // one for each of the ranks that rules are tried on
  for (const Module& module : model.modules) {
    for (const Block* kind : kinds_of_blocks(module)) {
      if (!kind->program || kind->program->program.operators.empty()) continue;
      if (auto error = find_wrong_custom(sized_program(*kind->program, kSamples))) {
        error->source = model.name;
        return error;
      }
    }
  }
  return std::nullopt;
}

}  // namespace weft
