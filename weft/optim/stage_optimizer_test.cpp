#include "weft/optim/stage_optimizer.h"

#include <map>
#include <mutex>
#include <sys/resource.h>

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/support/optim/example_stage.h"
#include "weft/comm/failure.h"
#include "weft/comm/threads/run_threads.h"
#include "weft/layers/linear.h"
#include "weft/layers/run_context.h"
#include "weft/optim/clip.h"
#include "weft/tensor/flat_memory.h"

namespace weft {
namespace {

constexpr int64_t kMicrobatches = 2;

void on_ranks(int64_t size, const std::function<void(World&)>& body) {
  at::set_num_threads(1);
  const auto error = run_thread_ranks(size, {.timeout = std::chrono::seconds(60)}, [&](World& world) {
    at::set_num_threads(1);
    body(world);
  });
  ASSERT_FALSE(error.has_value()) << error->message();
}

OptimizerOptions in_double(int64_t zero) {
  return {.zero = zero, .compute_type = at::kDouble, .master_type = at::kDouble, .reduce_type = at::kDouble};
}

double rate_of(int64_t step) {
  return 0.01 * static_cast<double>(step);
}

double once(const Parameter& /*parameter*/, const WeightPiece&) {
  return 1;
}

/// Adds what a backward would, the last parameter first.
void add_gradients(const StageOptimizer& optimizer, const ExampleBackward& backward,
                   const std::function<void(const Parameter&)>& ready = {}) {
  for (size_t i = kExampleStage.size(); i-- > 0;) {
    Parameter& parameter = *optimizer.parameters()[i].parameter;
    if (kExampleStage[i].is_frozen) continue;
    if (backward.has_gradient(i))
      parameter.add_gradient(at::tensor(backward.gradient(i)).view(kExampleStage[i].shape).to(parameter.gradient_type));
    if (ready) ready(parameter);
  }
}

/// Gradients of a step, reduced. With `says_ready`, the optimizer is told of every parameter.
void run_backwards(StageOptimizer& optimizer, int64_t zero, int64_t step, int64_t rank, bool says_ready = false) {
  optimizer.begin_step();
  for (int64_t microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
    const bool is_last_of_its_kind = zero >= 2 || microbatch + 1 == kMicrobatches;
    optimizer.start_gather_values();
    optimizer.gather_values();
    optimizer.release_values();
    optimizer.gather_values(1);
    optimizer.gather_values();
    std::function<void(const Parameter&)> ready;
    if (says_ready && is_last_of_its_kind) ready = [&](const Parameter& p) { optimizer.gradient_ready(p); };
    add_gradients(optimizer, {step, rank, microbatch}, ready);
    optimizer.microbatch_done();
    optimizer.release_values();
  }
  optimizer.start_reduce();
  optimizer.finish_reduce();
}

double summed_over(Group& group, double x) {
  group.all_reduce(Buffer{.data = &x, .count = 1, .type = DataType::kFp64}, Reduction::kSum).wait();
  return x;
}

void expect_elements(const at::Tensor& found, const std::vector<double>& expected, double tolerance,
                     const std::string& what) {
  const at::Tensor numbers = found.detach().to(at::kDouble).contiguous();
  ASSERT_EQ(numbers.numel(), static_cast<int64_t>(expected.size())) << what;
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(numbers.data_ptr<double>()[i] - expected[i]);
    largest = std::max(largest, std::isnan(difference) ? INFINITY : difference);
  }
  EXPECT_LE(largest, tolerance) << what;
}

void expect_values(StageOptimizer& optimizer, const PlainStage& plain, double tolerance, const std::string& what) {
  optimizer.gather_values();
  for (size_t i = 0; i < kExampleStage.size(); ++i)
    expect_elements(optimizer.parameters()[i].parameter->value, plain[i].weights, tolerance,
                    what + ", parameter " + std::to_string(i));
}

// Elements of one bucket that are updated otherwise than their neighbours, in every way of dividing them.
TEST(WeightRules, GiveWeightsTheirOwnRateAndDecay) {
  const std::vector<WeightRule> rules = {{.weights = "w?", .learning_rate = {}, .weight_decay = 0.3},
                                         {.weights = "w0", .learning_rate = 0.005, .weight_decay = {}},
                                         {.weights = "w[", .learning_rate = 1, .weight_decay = 1},
                                         {.weights = "*6", .learning_rate = 0.04, .weight_decay = 0},
                                         {.weights = "w8", .learning_rate = 0, .weight_decay = 0}};
  for (int64_t zero = 0; zero <= 3; ++zero) {
    on_ranks(3, [&](World& world) {
      OptimizerOptions options = in_double(zero);
      options.weight_rules = rules;
      options.peak_learning_rate = 0.02;
      StageOptimizer optimizer(example_parameters(), world.all(), options);
      std::vector<PlainAdamW> plain;
      for (size_t i = 0; i < kExampleStage.size(); ++i) plain.push_back({.weights = example_value(i)});
      for (int64_t step = 1; step <= 3; ++step) {
        run_backwards(optimizer, zero, step, world.rank());
        const double rate = rate_of(step);
        optimizer.update(rate, 1);
        for (size_t i = 0; i < kExampleStage.size(); ++i) {
          if (kExampleStage[i].is_frozen) continue;
          AdamWSettings settings;
          settings.weight_decay = i == 6 || i == 8 ? 0 : 0.3;
          const double own = i == 0 ? rate / 4 : i == 6 ? rate * 2 : i == 8 ? 0 : rate;
          plain[i].update(PlainStage::summed(i, step, 3, kMicrobatches), settings, own, step);
        }
      }
      optimizer.gather_values();
      for (size_t i = 0; i < kExampleStage.size(); ++i)
        expect_elements(optimizer.parameters()[i].parameter->value, plain[i].weights, 1e-12,
                        "zero " + std::to_string(zero) + ", parameter " + std::to_string(i));
      // Not one bit of a weight whose rate is 0 has changed.
      expect_elements(optimizer.parameters()[8].parameter->value, example_value(8), 0, "w8");
    });
  }
}

struct Case {
  int64_t ranks;
  int64_t zero;
  bool keep_gathered = false;
};

class EveryZero : public testing::TestWithParam<Case> {};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const int64_t ranks : {1, 2, 3, 4}) {
    for (const int64_t zero : {0, 1, 2, 3}) cases.push_back({ranks, zero});
    cases.push_back({ranks, 3, true});
  }
  return cases;
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return "Ranks" + std::to_string(info.param.ranks) + "Zero" + std::to_string(info.param.zero) +
         (info.param.keep_gathered ? "Kept" : "");
}

TEST_P(EveryZero, TrainsAsOneRankWithAllGradients) {
  const Case& c = GetParam();
  for (const double buckets_mb : {0.0, 200e-6, 64.0}) {
    for (const bool overlap : {true, false}) {
      for (const int64_t alignment : {1, 64}) {
        const std::string what = "buckets of " + std::to_string(buckets_mb) + " MB, overlap " +
                                 std::to_string(overlap) + ", alignment " + std::to_string(alignment);
        on_ranks(c.ranks, [&](World& world) {
          OptimizerOptions options = in_double(c.zero);
          options.keep_gathered = c.keep_gathered;
          options.buckets_mb = buckets_mb;
          options.overlap = overlap;
          options.alignment = alignment;
          StageOptimizer optimizer(example_parameters(), world.all(), options);
          PlainStage plain;
          for (int64_t step = 1; step <= 5; ++step) {
            run_backwards(optimizer, c.zero, step, world.rank(), /*says_ready=*/step % 2 == 0);
            double squared = 0;
            for (size_t i = 0; i < kExampleStage.size(); ++i) {
              if (kExampleStage[i].is_frozen) continue;
              for (const double x : PlainStage::summed(i, step, c.ranks, kMicrobatches)) squared += x * x;
            }
            const double found = summed_over(world.all(), optimizer.local_squared_norm(once).item<double>());
            EXPECT_NEAR(found, squared, 1e-12 * squared) << what;
            const double scale = clip_factor(1.5, std::sqrt(found));
            EXPECT_LT(scale, 1);
            if (step % 2 == 0)
              optimizer.update(rate_of(step), scale);
            else
              optimizer.start_update(rate_of(step), scale);
            plain.update(step, c.ranks, kMicrobatches, rate_of(step), clip_factor(1.5, std::sqrt(squared)));
            expect_values(optimizer, plain, 1e-12, what + ", step " + std::to_string(step));
          }
          EXPECT_EQ(optimizer.step(), 5);
        });
      }
    }
  }
}

TEST_P(EveryZero, KeepsMastersInFloatWhereValuesAreShort) {
  const Case& c = GetParam();
  on_ranks(c.ranks, [&](World& world) {
    StageOptimizer optimizer(example_parameters(at::kFloat), world.all(),
                             {.zero = c.zero, .keep_gathered = c.keep_gathered});
    PlainStage plain;
    // Masters begin with what was given, not with what is left of it in 16 bits.
    for (const OwnedPart& part : optimizer.owned_parts()) {
      if (kExampleStage[part.index].is_frozen) continue;
      const at::Tensor given = at::tensor(example_value(part.index)).to(at::kFloat);
      EXPECT_TRUE(part.state.master.equal(given.narrow(0, part.elements.begin, part.elements.size())));
    }
    for (int64_t step = 1; step <= 5; ++step) {
      run_backwards(optimizer, c.zero, step, world.rank());
      for (const StageParameter& p : optimizer.parameters()) {
        EXPECT_EQ(p.parameter->gradient_type, at::kFloat);
      }
      optimizer.update(rate_of(step), 1);
      plain.update(step, c.ranks, kMicrobatches, rate_of(step), 1);
    }
    optimizer.gather_values();
    for (const OwnedPart& part : optimizer.owned_parts()) {
      const std::vector<double>& all = plain[part.index].weights;
      const std::vector<double> mine(all.begin() + part.elements.begin, all.begin() + part.elements.end);
      const double tolerance = kExampleStage[part.index].is_frozen ? 0.02 : 2e-6;
      expect_elements(part.state.master, mine, tolerance, "master of " + std::to_string(part.index));
      const at::Tensor value =
          part.parameter->value.detach().view({-1}).narrow(0, part.elements.begin, part.elements.size());
      EXPECT_EQ(value.scalar_type(), at::kBFloat16);
      EXPECT_TRUE(value.equal(part.state.master.to(at::kBFloat16)));
    }
    expect_values(optimizer, plain, 0.02, "values");
  });
}

TEST_P(EveryZero, HoldsWhatItsLevelLeaves) {
  const Case& c = GetParam();
  on_ranks(c.ranks, [&](World& world) {
    OptimizerOptions options{.zero = c.zero, .keep_gathered = c.keep_gathered};
    StageOptimizer optimizer(example_parameters(at::kFloat), world.all(), options);
    int64_t all = 0, trained = 0;
    for (const BucketLayout& bucket : optimizer.buckets()) {
      all += bucket.num_elements;
      if (bucket.is_trained) trained += bucket.num_elements;
    }
    run_backwards(optimizer, c.zero, 1, world.rank());
    optimizer.update(0.1, 1);
    optimizer.release_values();
    const HeldElements held = optimizer.held_elements();
    const bool releases = c.zero == 3 && !c.keep_gathered;
    EXPECT_EQ(held.states, 3 * trained / (c.zero >= 1 ? c.ranks : 1));
    EXPECT_EQ(held.gradients, trained / (c.zero >= 2 ? c.ranks : 1));
    EXPECT_EQ(held.values, all / (releases ? c.ranks : 1));
    for (const StageParameter& p : optimizer.parameters()) {
      if (p.parameter->value.numel() == 0) continue;
      EXPECT_EQ(p.parameter->value.storage().nbytes() == 0, releases);
    }
    optimizer.gather_values();
    EXPECT_EQ(optimizer.held_elements().values, all + (releases ? all / c.ranks : 0));
  });
}

TEST_P(EveryZero, MovesTheBytesOfTheClosedForm) {
  const Case& c = GetParam();
  for (const double buckets_mb : {0.0, 64.0}) {
    on_ranks(c.ranks, [&](World& world) {
      StageOptimizer optimizer(example_parameters(at::kFloat), world.all(),
                               {.zero = c.zero, .keep_gathered = c.keep_gathered, .buckets_mb = buckets_mb});
      int64_t all = 0, trained = 0;
      for (const BucketLayout& bucket : optimizer.buckets()) {
        all += bucket.num_elements;
        if (bucket.is_trained) trained += bucket.num_elements;
      }
      optimizer.release_values();
      const Traffic before = world.all().traffic();
      optimizer.begin_step();
      for (int64_t microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
        for (int64_t pass = 0; pass < 2; ++pass) {
          optimizer.gather_values();
          optimizer.gather_values();
          if (pass == 1) add_gradients(optimizer, {1, world.rank(), microbatch});
          optimizer.release_values();
        }
        optimizer.microbatch_done();
      }
      optimizer.start_reduce();
      optimizer.finish_reduce();
      optimizer.update(0.1, 1);
      // Of every element all ranks but one send it on: gradients of 4 bytes, values of 2.
      const int64_t reduced = 4 * trained / c.ranks * (c.ranks - 1), gathered = 2 * trained / c.ranks * (c.ranks - 1);
      const int64_t gathered_all = 2 * all / c.ranks * (c.ranks - 1);
      int64_t expected = 0;
      if (c.zero == 0) expected = 2 * reduced;
      if (c.zero == 1) expected = reduced + gathered;
      if (c.zero == 2 || c.keep_gathered) expected = kMicrobatches * reduced + gathered;
      if (c.zero == 3 && !c.keep_gathered) expected = kMicrobatches * (reduced + 2 * gathered_all);
      const Traffic after = world.all().traffic();
      EXPECT_EQ(after.sent - before.sent, expected);
      EXPECT_EQ(after.received - before.received, expected);
    });
  }
}

TEST_P(EveryZero, CopiesOfAParameterCountOnce) {
  const Case& c = GetParam();
  on_ranks(c.ranks, [&](World& world) {
    StageOptimizer optimizer(example_parameters(), world.all(), in_double(c.zero));
    run_backwards(optimizer, c.zero, 1, world.rank());
    const auto weight = [&](const Parameter& p, const WeightPiece&) {
      if (&p == optimizer.parameters()[0].parameter.get()) return 0.25;
      return &p == optimizer.parameters()[6].parameter.get() ? 0.0 : 1.0;
    };
    double expected = 0;
    for (size_t i = 0; i < kExampleStage.size(); ++i) {
      if (kExampleStage[i].is_frozen || i == 6) continue;
      for (const double x : PlainStage::summed(i, 1, c.ranks, kMicrobatches)) expected += (i == 0 ? 0.25 : 1) * x * x;
    }
    EXPECT_NEAR(summed_over(world.all(), optimizer.local_squared_norm(weight).item<double>()), expected,
                1e-12 * expected);
  });
}

TEST_P(EveryZero, ItsStateContinuesInAnother) {
  const Case& c = GetParam();
  on_ranks(c.ranks, [&](World& world) {
    const OptimizerOptions options = in_double(c.zero);
    StageOptimizer first(example_parameters(), world.all(), options);
    PlainStage plain;
    for (int64_t step = 1; step <= 2; ++step) {
      run_backwards(first, c.zero, step, world.rank());
      first.update(rate_of(step), 1);
      plain.update(step, c.ranks, kMicrobatches, rate_of(step), 1);
    }
    std::vector<StageParameter> others = example_parameters();
    for (const StageParameter& p : others)
      if (p.parameter->is_trainable()) p.parameter->value.detach().fill_(99);
    StageOptimizer second(others, world.all(), options);
    second.load(first.state());
    expect_values(second, plain, 1e-12, "after loading");
    for (int64_t step = 3; step <= 4; ++step) {
      run_backwards(second, c.zero, step, world.rank());
      second.update(rate_of(step), 1);
      plain.update(step, c.ranks, kMicrobatches, rate_of(step), 1);
    }
    expect_values(second, plain, 1e-12, "after continuing");
  });
}

INSTANTIATE_TEST_SUITE_P(Optimizer, EveryZero, testing::ValuesIn(all_cases()), name_of);

/// Whole states by parameter, as a checkpoint would keep them.
struct SavedParameter {
  at::Tensor master, moment1, moment2;
};
using SavedStage = std::map<size_t, SavedParameter>;

void save(const StageOptimizer& optimizer, SavedStage& saved) {
  for (const OwnedPart& part : optimizer.owned_parts()) {
    SavedParameter& whole = saved[part.index];
    const auto put = [&](const at::Tensor& from, at::Tensor& to) {
      if (!from.defined()) return;
      if (!to.defined()) to = at::empty({part.parameter->value.numel()}, at::kDouble).fill_(NAN);
      range_view(to, part.elements).copy_(from);
    };
    put(part.state.master, whole.master);
    put(part.state.moment1, whole.moment1);
    put(part.state.moment2, whole.moment2);
  }
}

TEST(StageOptimizer, SavedByParameterItContinuesOnOtherRanksAndAnotherLevel) {
  SavedStage saved;
  std::mutex lock;
  on_ranks(3, [&](World& world) {
    StageOptimizer optimizer(example_parameters(), world.all(), in_double(2));
    for (int64_t step = 1; step <= 2; ++step) {
      run_backwards(optimizer, 2, step, world.rank());
      optimizer.update(rate_of(step), 1);
    }
    const std::lock_guard guard(lock);
    save(optimizer, saved);
  });
  for (const int64_t zero : {0, 1, 3}) {
    on_ranks(2, [&](World& world) {
      std::vector<StageParameter> fresh = example_parameters();
      for (const StageParameter& p : fresh) p.parameter->value.detach().fill_(99);
      OptimizerOptions options = in_double(zero);
      options.buckets_mb = 100e-6;
      StageOptimizer optimizer(fresh, world.all(), options);
      for (const OwnedPart& part : optimizer.owned_parts()) {
        const SavedParameter& whole = saved.at(part.index);
        part.state.master.copy_(range_view(whole.master, part.elements));
        if (!part.state.moment1.defined()) continue;
        part.state.moment1.copy_(range_view(whole.moment1, part.elements));
        part.state.moment2.copy_(range_view(whole.moment2, part.elements));
      }
      optimizer.restore(2);
      PlainStage plain;
      for (int64_t step = 1; step <= 2; ++step) plain.update(step, 3, kMicrobatches, rate_of(step), 1);
      expect_values(optimizer, plain, 1e-12, "restored");
      run_backwards(optimizer, zero, 3, world.rank());
      optimizer.update(rate_of(3), 1);
      plain.update(3, 2, kMicrobatches, rate_of(3), 1);
      expect_values(optimizer, plain, 1e-12, "continued");
    });
  }
}

TEST(StageOptimizer, LayersKeepWorkingWhileValuesComeAndGo) {
  on_ranks(2, [](World& world) {
    auto weight = c10::make_intrusive<Parameter>();
    weight->value = at::arange(6, at::kDouble).view({2, 3}).set_requires_grad(true);
    const at::Tensor same = weight->value;
    StageOptimizer optimizer({{.parameter = weight}}, world.all(), in_double(3));
    optimizer.release_values();
    EXPECT_TRUE(weight->value.is_same(same));
    EXPECT_TRUE(weight->is_trainable() && weight->value.is_leaf());

    optimizer.begin_step();
    optimizer.gather_values();
    const at::Tensor x = at::arange(12, at::kDouble).view({4, 3}).set_requires_grad(true);
    const at::Tensor y = linear(x, weight, {}, {});
    const at::Tensor whole = at::arange(6, at::kDouble).view({2, 3});
    EXPECT_TRUE(y.detach().equal(x.detach().mm(whole.t())));
    // What autograd saved is the same memory, gone and come back.
    optimizer.release_values();
    EXPECT_EQ(weight->value.storage().nbytes(), 0);
    optimizer.gather_values();
    const at::Tensor dy = at::arange(8, at::kDouble).view({4, 2});
    torch::autograd::backward({y}, {dy});
    EXPECT_TRUE(x.grad().equal(dy.mm(whole)));
    EXPECT_TRUE(weight->gradient.equal(dy.t().mm(x.detach())));
    optimizer.microbatch_done();
    EXPECT_FALSE(weight->gradient.defined());
  });
}

TEST(StageOptimizer, LayersAddToGradientsWhereTheyLie) {
  on_ranks(2, [](World& world) {
    StageOptimizer optimizer(example_parameters(), world.all(), in_double(1));
    optimizer.begin_step();
    Parameter& parameter = *optimizer.parameters()[0].parameter;
    EXPECT_FALSE(parameter.gradient.defined());
    EXPECT_EQ(optimizer.held_elements().gradients, 0);
    optimizer.expect_gradient(parameter);
    const at::Tensor before = parameter.gradient;
    EXPECT_EQ(before.abs().sum().item<double>(), 0);
    add_gradients(optimizer, {1, world.rank(), 1});
    EXPECT_TRUE(parameter.gradient.is_same(before));
    EXPECT_GT(before.abs().sum().item<double>(), 0);
    optimizer.begin_step();
    EXPECT_FALSE(parameter.gradient.defined());
    EXPECT_EQ(optimizer.held_elements().gradients, 0);
  });
}

TEST(StageOptimizer, WholeGradientsHaveThePagesOfTheStepBefore) {
  constexpr int64_t kElements = int64_t{8} << 20;  // 32 MiB
  on_ranks(1, [](World& world) {
    for (const int zero : {0, 1}) {
      auto weight = c10::make_intrusive<Parameter>();
      weight->value = at::ones({kElements}, at::kFloat).set_requires_grad(true);
      StageOptimizer optimizer({{.parameter = weight}}, world.all(),
                               {.zero = zero, .compute_type = at::kFloat, .reduce_type = at::kFloat});
      const auto faults_of_step = [&] {
        rusage before{}, after{};
        optimizer.begin_step();
        getrusage(RUSAGE_THREAD, &before);
        optimizer.expect_gradient(*weight);
        EXPECT_FALSE(weight->gradient.any().item<bool>());
        weight->gradient.fill_(1);
        getrusage(RUSAGE_THREAD, &after);
        return after.ru_minflt - before.ru_minflt;
      };
      // Fewer where pages are large, none where they are there already.
      const int64_t first = faults_of_step();
      EXPECT_LT(faults_of_step(), first / 2);
    }
  });
}

TEST(StageOptimizer, AGradientThatLeavesItsPlaceIsRefused) {
  on_ranks(1, [](World& world) {
    for (const int zero : {0, 1, 2}) {
      StageOptimizer optimizer(example_parameters(), world.all(), in_double(zero));
      optimizer.begin_step();
      Parameter& parameter = *optimizer.parameters()[0].parameter;
      parameter.gradient = at::ones_like(parameter.value);  // which nobody announced: it is taken over
      optimizer.expect_gradient(parameter);
      EXPECT_TRUE(parameter.gradient.eq(1).all().item<bool>());
      parameter.gradient = parameter.gradient.clone();
      EXPECT_THROW(optimizer.expect_gradient(parameter), InternalError);
      parameter.gradient = at::Tensor();
      EXPECT_THROW(optimizer.expect_gradient(parameter), InternalError);
      optimizer.begin_step();
      optimizer.expect_gradient(parameter);
      EXPECT_FALSE(parameter.gradient.any().item<bool>());
    }
  });
}

TEST(StageOptimizer, ParametersWithoutMemoryHaveTheElementsThatTheirOwnersWrite) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    on_ranks(2, [&](World& world) {
      std::vector<StageParameter> parameters = example_parameters();
      for (const StageParameter& p : parameters) free_memory(p.parameter->value);
      StageOptimizer optimizer(parameters, world.all(), in_double(zero));
      const HeldElements made = optimizer.held_elements();
      for (const OwnedPart& part : optimizer.owned_parts()) {
        EXPECT_EQ(part.state.master.count_nonzero().item<int64_t>(), 0);
        part.state.master.copy_(range_view(at::tensor(example_value(part.index)), part.elements));
      }
      optimizer.restore(0);
      // What comes and goes is not there before it is used.
      EXPECT_EQ(optimizer.held_elements().values, made.values);
      PlainStage plain;
      expect_values(optimizer, plain, 0, "as written");
      run_backwards(optimizer, zero, 1, world.rank());
      optimizer.update(0.1, 1);
      plain.update(1, 2, kMicrobatches, 0.1, 1);
      expect_values(optimizer, plain, 1e-12, "updated");
      optimizer.release_values();
      EXPECT_EQ(optimizer.held_elements().values, made.values);
    });
  }
}

TEST(StageOptimizer, ValuesThatWereLoadedLaterAreAdopted) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    on_ranks(2, [&](World& world) {
      std::vector<StageParameter> parameters = example_parameters();
      for (const StageParameter& p : parameters) p.parameter->value.detach().fill_(99);
      StageOptimizer optimizer(parameters, world.all(), in_double(zero));
      optimizer.gather_values();
      for (size_t i = 0; i < parameters.size(); ++i)
        parameters[i].parameter->value.detach().copy_(at::tensor(example_value(i)).view(kExampleStage[i].shape));
      optimizer.adopt_values();
      optimizer.release_values();
      PlainStage plain;
      run_backwards(optimizer, zero, 1, world.rank());
      optimizer.update(0.1, 1);
      plain.update(1, 2, kMicrobatches, 0.1, 1);
      expect_values(optimizer, plain, 1e-12, "adopted");
    });
  }
}

TEST(StageOptimizer, SeveralShareAGroupWithReductionsUnderWay) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    on_ranks(3, [&](World& world) {
      StageOptimizer first(example_parameters(), world.all(), in_double(zero));
      StageOptimizer second(example_parameters(), world.all(), in_double(zero));
      PlainStage plain;
      const std::vector<StageOptimizer*> both = {&first, &second};
      for (StageOptimizer* optimizer : both) {
        optimizer->begin_step();
        for (int64_t microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
          add_gradients(*optimizer, {1, world.rank(), microbatch});
          optimizer->microbatch_done();
        }
        optimizer->start_reduce();
      }
      for (StageOptimizer* optimizer : both) optimizer->finish_reduce();
      for (StageOptimizer* optimizer : both) optimizer->start_update(0.1, 1);
      plain.update(1, 3, kMicrobatches, 0.1, 1);
      for (StageOptimizer* optimizer : both) expect_values(*optimizer, plain, 1e-12, "shared group");
    });
  }
}

TEST(StageOptimizer, OnlyOneKindIsGatheredWhereOneIsAsked) {
  on_ranks(2, [](World& world) {
    StageOptimizer optimizer(example_parameters(), world.all(), in_double(3));
    optimizer.release_values();
    optimizer.gather_values(1);
    for (size_t i = 0; i < kExampleStage.size(); ++i) {
      if (kExampleStage[i].num_elements() == 0) continue;
      EXPECT_EQ(optimizer.parameters()[i].parameter->value.storage().nbytes() > 0, kExampleStage[i].bundle == 1) << i;
    }
    optimizer.release_values(1);
    EXPECT_EQ(optimizer.parameters()[6].parameter->value.storage().nbytes(), 0);
  });
}

TEST(StageOptimizer, AStageWithoutParametersDoesNothing) {
  on_ranks(2, [](World& world) {
    StageOptimizer optimizer({}, world.all(), in_double(3));
    optimizer.begin_step();
    optimizer.microbatch_done();
    optimizer.start_reduce();
    optimizer.finish_reduce();
    EXPECT_EQ(optimizer.local_squared_norm(once).item<double>(), 0);
    optimizer.update(0.1, 1);
    EXPECT_EQ(world.all().traffic().sent, 0);
  });
}

TEST(StageOptimizer, CallsInAWrongOrderAreRefused) {
  on_ranks(1, [](World& world) {
    StageOptimizer whole(example_parameters(), world.all(), in_double(1));
    whole.begin_step();
    EXPECT_THROW(whole.update(0.1, 1), InternalError);
    EXPECT_THROW((void)whole.local_squared_norm(once), InternalError);
    EXPECT_THROW(whole.finish_reduce(), InternalError);
    whole.gradient_ready(*whole.parameters()[0].parameter);
    EXPECT_THROW(whole.gradient_ready(*whole.parameters()[0].parameter), InternalError);
    whole.start_reduce();
    whole.finish_reduce();
    EXPECT_THROW(whole.start_reduce(), InternalError);

    StageOptimizer scattered(example_parameters(), world.all(), in_double(2));
    scattered.begin_step();
    add_gradients(scattered, {1, 0, 0});
    EXPECT_THROW(scattered.start_reduce(), InternalError);

    StageOptimizer released(example_parameters(), world.all(), in_double(3));
    released.release_values();
    EXPECT_THROW(released.adopt_values(), InternalError);

    std::vector<StageParameter> twice = example_parameters();
    twice.push_back(twice.front());
    EXPECT_THROW(StageOptimizer(twice, world.all(), in_double(0)), InternalError);
  });
}

}  // namespace
}  // namespace weft
