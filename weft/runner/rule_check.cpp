#include "weft/runner/rule_check.h"

#include <cmath>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/comm/failure.h"
#include "weft/comm/threads/run_threads.h"
#include "weft/program/value_layout.h"
#include "weft/runner/program_runner.h"
#include "weft/tensor/local_tensor.h"

namespace weft {
namespace {

at::Tensor drawn(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kDouble));
}

/// A program of one operator of another.
Program alone(const Program& program, size_t index) {
  const Operator& op = program.operators[index];
  Program one{.name = op.name, .dims = program.dims, .values = {}, .operators = {op}, .repeats = {}};
  Operator& own = one.operators[0];
  for (size_t i = 0; i < op.operands.size(); ++i) {
    ProgramValue value = program.values[op.operands[i]];
    if (value.role == ProgramValue::Role::kResult) value.role = ProgramValue::Role::kInput;
    value.name = fmt::format("operand {} ({})", i, value.name);
    one.values.push_back(std::move(value));
    own.operands[i] = i;
  }
  one.values.push_back(program.values[op.result]);
  own.result = op.operands.size();
  return one;
}

class RuleCheck {
 public:
  RuleCheck(Program program, const CustomOperators& custom, const RuleCheckOptions& options)
      : program_(std::move(program)), custom_(custom), options_(options) {}

  std::optional<Error> run() {
    for (size_t i = 0; i < op().operands.size(); ++i) {
      std::vector<int64_t> shape;
      for (const size_t dim : program_.values[i].dims) shape.push_back(program_.dims[dim].length);
      const bool is_given = i < options_.operands.size() && options_.operands[i].defined();
      given_.push_back(is_given ? options_.operands[i] : drawn(shape, options_.seed + i));
    }
    if (auto error = run_alone()) return error;
    if (auto error = check_gradients()) return error;
    for (const int64_t ranks : options_.ranks) {
      for (const Choice choice : choices_of(op().rule)) {
        if (choice == Choice::same()) continue;
        if (auto error = check_choice(choice, ranks)) return error;
      }
    }
    return std::nullopt;
  }

 private:
  const Operator& op() const { return program_.operators[0]; }

  Error refuted(std::string problem, std::string advice) const {
    return {
        .source = {}, .field = op().name, .problem = std::move(problem), .advice = std::move(advice), .details = {}};
  }

  std::vector<at::Tensor> with_result(std::vector<at::Tensor> operands) const {
    operands.emplace_back();
    return operands;
  }

  /// The function threw.
  Error failed(std::string_view reason, Choice choice, int64_t ranks) const {
    reason = reason.substr(0, reason.find('\n'));
    if (const std::string own = op().name + ": "; reason.starts_with(own)) reason.remove_prefix(own.size());
    const std::string cause = printable(reason, 300);
    if (choice == Choice::same())
      return refuted(fmt::format("cannot be computed on one device: {}", cause), "Correct its rule, or its function.");
    return refuted(
        fmt::format("cannot be computed by {} on {} ranks: {}", in_quotes(text_of(op().rule, choice)), ranks, cause),
        choice.kind == Choice::Kind::kCut
            ? fmt::format("Declare {} 'whole', or correct the rule.", in_quotes(op().rule.dims[choice.index].name))
            : advice_for(choice));
  }

  std::string advice_for(Choice choice) const {
    if (choice.kind != Choice::Kind::kCut) return "The result is not linear in these operands: leave out 'linear'.";
    return fmt::format("Parts of {} see each other: declare it 'whole', or 'inside' and sum in the function.",
                       in_quotes(op().rule.dims[choice.index].name));
  }

  /// Runs on thread ranks; what a rank returns or throws first is the answer.
  std::optional<Error> on_ranks(int64_t ranks, Choice choice,
                                const std::function<std::optional<Error>(World&)>& body) const {
    std::mutex guard;
    std::optional<Error> first;
    const auto keep = [&](std::optional<Error> own) {
      const std::lock_guard lock(guard);
      if (own && !first) first = std::move(own);
    };
    const auto guarded = [&](World& world) {
      try {
        keep(body(world));
      } catch (const RankFailure&) {
        throw;  // another rank's
      } catch (const c10::Error& error) {
        keep(failed(error.what_without_backtrace(), choice, ranks));
        throw;
      } catch (const std::exception& error) {
        keep(failed(error.what(), choice, ranks));
        throw;
      }
    };
    try {
      if (auto error = run_thread_ranks(ranks, {}, guarded); error && !first) {
        error->field = op().name;
        return error;
      }
    } catch (const std::exception&) {
      if (!first) throw;
    }
    return first;
  }

  RunStrategy strategy_of(Choice choice) const {
    RunStrategy strategy{.operators = {{choice}}, .sources = {}};
    for (size_t i = 0; i < op().operands.size(); ++i)
      strategy.sources.push_back(operand_states(program_, op(), {choice}, i));
    strategy.sources.emplace_back();
    return strategy;
  }

  std::optional<Error> run_alone() {
    return on_ranks(1, Choice::same(), [&](World& world) -> std::optional<Error> {
      WEFT_TRY(const Mesh mesh, Mesh::contiguous({{"one", 1}}));
      WEFT_TRY(const MeshGroups groups, MeshGroups::create(world, mesh));
      WEFT_TRY(ProgramRunner runner, ProgramRunner::create(program_, strategy_of(Choice::same()), groups,
                                                           {.wants_gradient = {}, .custom = custom_}));
      RunnerTape tape;
      result_ = runner.forward(with_result(given_), {}, tape)[0];
      slope_ = drawn(result_.sizes(), options_.seed + 100);
      gradients_ = runner.backward({slope_}, tape);
      // Along a random direction for each operand.
      for (size_t i = 0; i < given_.size(); ++i) {
        at::Tensor& along = directions_.emplace_back();
        double& change = changes_.emplace_back(0);
        if (!program_.has_gradient(i)) continue;
        along = drawn(given_[i].sizes(), options_.seed + 200 + i);
        constexpr double kStep = 1e-6;
        const auto moved = [&](double step) {
          std::vector<at::Tensor> operands = with_result(given_);
          operands[i] = operands[i] + along * step;
          return (runner.forward(operands, {})[0] * slope_).sum().item<double>();
        };
        change = (moved(kStep) - moved(-kStep)) / (2 * kStep);
      }
      return std::nullopt;
    });
  }

  std::optional<Error> check_gradients() const {
    for (size_t i = 0; i < given_.size(); ++i) {
      if (!program_.has_gradient(i)) continue;
      const at::Tensor terms = gradients_[i] * directions_[i];
      const double found = terms.sum().item<double>();
      const double scale = std::max({std::abs(changes_[i]), terms.abs().sum().item<double>(), 1e-12});
      if (std::abs(found - changes_[i]) <= options_.most_gradient_difference * scale) continue;
      return refuted(fmt::format("the gradient of {} is {:.6g} along a drawn direction, finite differences give {:.6g}",
                                 program_.values[i].name, found, changes_[i]),
                     "Correct the function's backward.");
    }
    return std::nullopt;
  }

  /// Copies are equal, summands are drawn but for the last one.
  at::Tensor part_of(const at::Tensor& whole, const Layout& layout, int64_t position, uint64_t seed) const {
    at::Tensor part = block_of(whole, layout.box(position)).clone(at::MemoryFormat::Contiguous);
    if (layout.partial_axes().empty()) return part;
    const int64_t last = layout.grid().num_positions() - 1;
    if (position < last) return drawn(part.sizes(), seed + static_cast<uint64_t>(position));
    for (int64_t other = 0; other < last; ++other)
      part = part - drawn(part.sizes(), seed + static_cast<uint64_t>(other));
    return part;
  }

  std::optional<Error> check_choice(Choice choice, int64_t ranks) const {
    return on_ranks(ranks, choice, [&](World& world) -> std::optional<Error> {
      WEFT_TRY(const Mesh mesh, Mesh::contiguous({{"ranks", ranks}}));
      WEFT_TRY(const MeshGroups groups, MeshGroups::create(world, mesh));
      WEFT_TRY(ProgramRunner runner,
               ProgramRunner::create(program_, strategy_of(choice), groups, {.wants_gradient = {}, .custom = custom_}));
      std::vector<at::Tensor> parts;
      for (size_t i = 0; i < given_.size(); ++i)
        parts.push_back(part_of(given_[i], runner.layout(i), groups.position(), options_.seed + 1000 * (i + 1)));
      RunnerTape tape;
      const at::Tensor result = runner.forward(with_result(parts), {}, tape)[0];
      const Layout made = runner.layout(op().result);
      const auto gradients =
          runner.backward({part_of(slope_, made.gradient(), groups.position(), options_.seed + 500)}, tape);
      std::optional<Error> wrong = compare(result, made, result_, groups, choice, "the result");
      for (size_t i = 0; i < given_.size(); ++i) {
        if (!program_.has_gradient(i)) continue;
        auto error = compare(gradients[i], runner.layout(i).gradient(), gradients_[i], groups, choice,
                             "the gradient of " + program_.values[i].name);
        if (!wrong) wrong = std::move(error);
      }
      return wrong;
    });
  }

  /// All ranks do this alike.
  std::optional<Error> compare(const at::Tensor& local, const Layout& layout, const at::Tensor& whole,
                               const MeshGroups& groups, Choice choice, const std::string& what) const {
    const at::Tensor sum = local.detach().clone(at::MemoryFormat::Contiguous);
    if (const AxisList partial = layout.partial_axes(); !partial.empty())
      groups.along(partial).all_reduce(buffer_of(sum), Reduction::kSum).wait();
    if (sum.numel() == 0) return std::nullopt;
    const double scale = std::max(whole.abs().max().item<double>(), 1e-300);
    const double difference = (sum - block_of(whole, layout.box(groups.position()))).abs().max().item<double>() / scale;
    if (difference <= options_.most_difference) return std::nullopt;
    return refuted(fmt::format("{} of '{}' differs from one device's by {:.1e} of its largest element", what,
                               text_of(op().rule, choice), difference),
                   advice_for(choice));
  }

  Program program_;
  const CustomOperators& custom_;
  const RuleCheckOptions& options_;
  std::vector<at::Tensor> given_, gradients_, directions_;
  std::vector<double> changes_;
  at::Tensor result_, slope_;
};

}  // namespace

std::optional<Error> find_wrong_rule(const Program& program, size_t op, const CustomOperators& custom,
                                     const RuleCheckOptions& options) {
  return RuleCheck(alone(program, op), custom, options).run();
}

}  // namespace weft
