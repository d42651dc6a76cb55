#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include "tests/support/runner/random_program.h"
#include "tests/support/tensor/spread_tensor.h"
#include "weft/comm/threads/run_threads.h"
#include "weft/runner/program_runner.h"

namespace weft {

// Programs on ranks, compared with one rank.

/// A way to run a program: all of it is drawn, none of it may change a number.
struct RunVariant {
  RunLengths lengths = {};
  std::vector<bool> wants_gradient = {};
  bool splits_backward = false;  ///< gradients of inputs first, those of weights later
  int in_flight = 1;             ///< forwards before the first backward
};

inline std::vector<int64_t> shape_of(const Program& program, size_t value, const RunLengths& lengths) {
  std::vector<int64_t> shape;
  for (const size_t dim : program.values[value].dims)
    shape.push_back(lengths.empty() ? program.dims[dim].length : lengths[dim].length);
  return shape;
}

/// How many numbers data may be of that are read as entries or classes; nothing for others.
inline std::optional<int64_t> num_choices(const Program& program, size_t value) {
  for (const size_t reader : program.readers_of(value)) {
    const Operator& op = program.operators[reader];
    const auto length = [&](size_t of, size_t place) { return program.dims[program.values[of].dims[place]].length; };
    if (op.kind == OperatorKind::kLookup) return length(op.operands[1], 0);
    if (op.kind == OperatorKind::kCrossEntropy)
      return length(op.operands[0], program.values[op.operands[0]].dims.size() - 1);
  }
  return std::nullopt;
}

/// Whole tensors for all that a program is given.
inline std::vector<at::Tensor> random_given(const Program& program, uint64_t seed, const RunLengths& lengths = {}) {
  std::vector<at::Tensor> given(program.values.size());
  for (size_t value = 0; value < program.values.size(); ++value) {
    const ProgramValue& one = program.values[value];
    const std::vector<int64_t> shape = shape_of(program, value, lengths);
    const auto choices = num_choices(program, value);
    if (one.role == ProgramValue::Role::kData && choices) {
      given[value] = at::randint(0, *choices, shape, at::detail::createCPUGenerator(seed + value), at::kLong);
    } else if (one.role != ProgramValue::Role::kResult) {
      given[value] = random_tensor(shape, seed + value);
    }
  }
  return given;
}

struct WholeRun {
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> gradients;
};

inline constexpr uint64_t kSlopes = 500;  ///< added to the seed of given tensors

inline RunDraws some_draws() {
  return {.seed = 5, .step = 3};
}

/// What one rank makes of it.
inline WholeRun run_whole(World& world, const Program& program, const std::vector<at::Tensor>& given, uint64_t seed,
                          const RunLengths& lengths = {}) {
  const Mesh alone = *Mesh::create({{"one", 1}}, {world.rank()});
  const MeshGroups groups = *MeshGroups::create(world, alone);
  ProgramRunner runner = *ProgramRunner::create(program, on_one_rank(program), groups);
  WholeRun run;
  RunnerTape tape;
  run.outputs = runner.forward(given, {.draws = some_draws(), .lengths = lengths}, tape);
  std::vector<at::Tensor> slopes;
  for (const at::Tensor& output : run.outputs) slopes.push_back(random_tensor(output.sizes().vec(), seed++));
  run.gradients = runner.backward(slopes, tape);
  return run;
}

/// All that has a gradient, in other bits: what a program makes of these says how far rounding moves its results.
inline std::vector<at::Tensor> disturbed(const Program& program, std::vector<at::Tensor> given) {
  constexpr double kRounding = 1e-15;
  for (size_t value = 0; value < given.size(); ++value) {
    if (given[value].defined() && program.has_gradient(value))
      given[value] = given[value] * (1 + kRounding * random_tensor(given[value].sizes().vec(), value));
  }
  return given;
}

/// One microbatch of a variant on a rank, from its forward to its backward.
class MicrobatchCheck {
 public:
  MicrobatchCheck(World& world, ProgramRunner& runner, const Program& program, const MeshGroups& groups,
                  const MeshGroups& checking, const RunVariant& variant, uint64_t seed)
      : runner_(runner), program_(program), groups_(groups), checking_(checking), variant_(variant), seed_(seed) {
    given_ = random_given(program, seed, variant.lengths);
    whole_ = run_whole(world, program, given_, seed + kSlopes, variant.lengths);
    disturbed_ = run_whole(world, program, disturbed(program, given_), seed + kSlopes, variant.lengths);
  }

  void forward() {
    std::vector<at::Tensor> parts(given_.size());
    for (size_t value = 0; value < given_.size(); ++value) {
      if (!given_[value].defined()) continue;
      const Layout layout = runner_.layout(value, variant_.lengths);
      parts[value] = program_.has_gradient(value)
                         ? spread(given_[value], layout, groups_.position(), seed_ + 900 + value)
                         : block_of(given_[value], layout.box(groups_.position())).contiguous();
    }
    planned_ = runner_.planned_bytes(parts, variant_.lengths);
    outputs_ = runner_.forward(parts, {.draws = some_draws(), .lengths = variant_.lengths}, tape_);
  }

  Traffic planned() const { return planned_; }

  void backward() {
    std::vector<at::Tensor> slopes;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Layout layout = runner_.layout(runner_.outputs()[i], variant_.lengths);
      const at::Tensor slope = random_tensor(whole_.outputs[i].sizes().vec(), seed_ + kSlopes + i);
      slopes.push_back(spread(slope, layout.gradient(), groups_.position(), seed_ + 700 + i));
    }
    if (!variant_.splits_backward) {
      gradients_ = runner_.backward(slopes, tape_);
      return;
    }
    gradients_ = runner_.backward_inputs(slopes, tape_);
    for (size_t value = 0; value < gradients_.size(); ++value) {
      const bool is_weight = program_.values[value].role == ProgramValue::Role::kWeight;
      EXPECT_FALSE(is_weight && gradients_[value].defined()) << program_.values[value].name;
    }
  }

  void finish() {
    if (!variant_.splits_backward) return;
    const std::vector<at::Tensor> of_weights = runner_.backward_weights(tape_);
    for (size_t value = 0; value < gradients_.size(); ++value) {
      if (of_weights[value].defined()) gradients_[value] = of_weights[value];
    }
  }

  void compare() {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const size_t value = runner_.outputs()[i];
      expect_spread(outputs_[i], runner_.layout(value, variant_.lengths), whole_.outputs[i], checking_,
                    program_.values[value].name, rounding(whole_.outputs[i], disturbed_.outputs[i]));
    }
    for (size_t value = 0; value < given_.size(); ++value) {
      if (!given_[value].defined() || !program_.has_gradient(value) || program_.readers_of(value).empty()) continue;
      const std::string name = "gradient of " + program_.values[value].name;
      if (!variant_.wants_gradient.empty() && !variant_.wants_gradient[value]) {
        EXPECT_FALSE(gradients_[value].defined()) << name;
        continue;
      }
      expect_spread(gradients_[value], runner_.layout(value, variant_.lengths).gradient(), whole_.gradients[value],
                    checking_, name, rounding(whole_.gradients[value], disturbed_.gradients[value]));
    }
  }

 private:
  /// Chains of products make some programs' results depend on the last bits of what they are given. Another order of
  /// sums has several times the effect of one disturbance.
  static double rounding(const at::Tensor& whole, const at::Tensor& disturbed) {
    return 16 * largest_difference(whole, disturbed);
  }

  ProgramRunner& runner_;
  const Program& program_;
  const MeshGroups &groups_, &checking_;
  const RunVariant& variant_;
  uint64_t seed_;
  std::vector<at::Tensor> given_, outputs_, gradients_;
  WholeRun whole_, disturbed_;
  Traffic planned_;
  RunnerTape tape_;
};

/// Outputs and gradients are one rank's, and the bytes that move are those that were planned.
inline void expect_like_one_rank(World& world, const Mesh& mesh, const Program& program, const RunStrategy& strategy,
                                 uint64_t seed, const std::vector<RunVariant>& variants = {{}}) {
  const MeshGroups groups = *MeshGroups::create(world, mesh), checking = *MeshGroups::create(world, mesh);
  for (const RunVariant& variant : variants) {
    Result<ProgramRunner> runner =
        ProgramRunner::create(program, strategy, groups, {.wants_gradient = variant.wants_gradient});
    ASSERT_TRUE(runner.ok()) << runner.error().message();
    std::vector<std::unique_ptr<MicrobatchCheck>> microbatches;
    for (int i = 0; i < variant.in_flight; ++i)
      microbatches.push_back(std::make_unique<MicrobatchCheck>(world, *runner, program, groups, checking, variant,
                                                               seed + 10'000 * static_cast<uint64_t>(i)));
    const Traffic before = groups.traffic();
    for (auto& one : microbatches) one->forward();
    for (auto& one : microbatches) one->backward();
    for (auto& one : microbatches) one->finish();
    const Traffic after = groups.traffic();
    Traffic planned;
    for (auto& one : microbatches) planned += one->planned();
    EXPECT_EQ((Traffic{after.sent - before.sent, after.received - before.received}), planned);
    for (auto& one : microbatches) one->compare();
  }
}

inline void on_thread_ranks(int64_t size, const std::function<void(World&)>& body) {
  at::set_num_threads(1);
  const auto error = run_thread_ranks(size, {.timeout = std::chrono::seconds(60)}, [&](World& world) {
    at::set_num_threads(1);
    body(world);
  });
  ASSERT_FALSE(error.has_value()) << error->message();
}

}  // namespace weft
