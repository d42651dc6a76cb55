#include "weft/pipeline/stage_weights.h"

#include <algorithm>
#include <chrono>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "weft/base/check.h"
#include "weft/comm/run_ranks.h"

namespace weft {
namespace {

constexpr size_t kBlocks = 4;
constexpr int64_t kElements = 128;  ///< of each block's only parameter

struct ExampleBlocks {
  std::vector<StageBlock> blocks;
  std::vector<StageParameter> parameters;

  ExampleBlocks() {
    for (size_t block = 0; block < kBlocks; ++block) {
      auto parameter = c10::make_intrusive<Parameter>();
      parameter->spec = {.pieces = {whole_weight("w" + std::to_string(block), {kElements})}, .shape = {kElements}};
      parameter->value = at::ones({kElements}, at::kDouble).set_requires_grad(true);
      blocks.push_back({.parameters = {parameter}});
      parameters.push_back({parameter, static_cast<int64_t>(block)});
    }
  }
  void add_gradient(size_t block, double value) {
    blocks[block].parameters.front()->add_gradient(at::full({kElements}, value, at::kDouble));
  }
};

void on_two_ranks(int64_t zero,
                  const std::function<void(ExampleBlocks&, StageOptimizer&, StageWeights&, Group&)>& body) {
  const auto error =
      run_ranks({.size = 2, .comm = {.timeout = std::chrono::seconds(60), .is_checked = true}}, [&](World& world) {
        ExampleBlocks stage;
        const OptimizerOptions options{.zero = zero,
                                       .buckets_mb = 0,
                                       .compute_type = at::kDouble,
                                       .master_type = at::kDouble,
                                       .reduce_type = at::kDouble};
        StageOptimizer optimizer(stage.parameters, world.all(), options);
        StageWeights weights(stage.blocks, {&optimizer},
                             {.overlap = true, .complete = [](const StageOptimizer&, size_t) {}});
        body(stage, optimizer, weights, world.all());
      });
  WEFT_CHECK(!error, "{}", error->message());
}

/// What every element of a block's gradient is in the end.
double summed(const StageOptimizer& optimizer, const ExampleBlocks& stage, size_t block) {
  return optimizer.reduced_gradients(*stage.blocks[block].parameters.front())[0].item<double>();
}

TEST(StageWeights, GradientsGoWhileTheBackwardIsInTheBlockBefore) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    on_two_ranks(zero, [&](ExampleBlocks& stage, StageOptimizer& optimizer, StageWeights& weights, Group& group) {
      optimizer.release_values();
      optimizer.begin_step();
      for (int microbatch = 0; microbatch < 2; ++microbatch) {
        const bool is_last = microbatch == 1;
        weights.begin_gradients(is_last);
        weights.begin_backward(nullptr);
        for (size_t block = kBlocks; block-- > 0;) {
          const int64_t before = group.traffic().sent;
          weights.hooks().before_backward(block);
          const int64_t sent = group.traffic().sent - before;
          const bool hands_on = block + 1 < kBlocks && (zero >= 2 || is_last);
          const int64_t gathers = zero < 3 ? 0 : block + 1 == kBlocks ? 2 : block > 0 ? 1 : 0;
          const int64_t bytes = kElements * 8;
          // On two ranks half of a bucket is sent in a scatter and in a gather, and all of it in their sum.
          EXPECT_EQ(sent, gathers * bytes / 2 + (hands_on ? (zero == 0 ? bytes : bytes / 2) : 0))
              << "ZeRO " << zero << ", microbatch " << microbatch << ", block " << block;
          stage.add_gradient(block, static_cast<double>(block + 1));
        }
        weights.end_backward();
        weights.end_gradients();
      }
      weights.reduce();
      optimizer.finish_reduce();
      for (size_t block = 0; block < kBlocks; ++block)
        EXPECT_EQ(summed(optimizer, stage, block), 4 * static_cast<double>(block + 1)) << "ZeRO " << zero;
    });
  }
}

TEST(StageWeights, RanksThatHaveNoDataInABlockCommunicateAllTheSame) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    for (const bool is_deferred : {false, true}) {
      on_two_ranks(zero, [&](ExampleBlocks& stage, StageOptimizer& optimizer, StageWeights& weights, Group& group) {
        optimizer.release_values();
        optimizer.begin_step();
        WeightGradients queue;
        if (!is_deferred) weights.begin_gradients(/*is_last=*/true);
        weights.begin_backward(is_deferred ? &queue : nullptr);
        // The second rank's backward jumps over block 2 and never comes to blocks 1 and 0.
        for (size_t block = kBlocks; block-- > 0;) {
          if (group.rank() == 1 && block != 3) continue;
          weights.hooks().before_backward(block);
          if (zero == 3) {
            EXPECT_EQ(stage.blocks[block].parameters.front()->value.sum().item<double>(),
                      static_cast<double>(kElements));
          }
          if (is_deferred) {
            queue.add([&stage, block] { stage.add_gradient(block, 1); });
          } else {
            stage.add_gradient(block, 1);
          }
        }
        weights.end_backward();
        if (zero == 3) {
          EXPECT_EQ(optimizer.held_elements().values, static_cast<int64_t>(kBlocks) * kElements / 2);
        }
        if (is_deferred) {
          weights.begin_gradients(/*is_last=*/true);
          queue.run();
        }
        weights.end_gradients();
        weights.reduce();
        optimizer.finish_reduce();
        for (size_t block = 0; block < kBlocks; ++block)
          EXPECT_EQ(summed(optimizer, stage, block), block == 3 ? 2.0 : 1.0) << "ZeRO " << zero;
      });
    }
  }
}

// Blocks 0 and 2 are the same on all four ranks, 1 and 3 only on ranks that are two apart, or on no other.
TEST(StageWeights, BlocksOfSeveralOptimizersGoToDifferentRanks) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    for (const bool has_copies : {true, false}) {
      const auto body = [&](World& world) {
        ExampleBlocks stage;
        const OptimizerOptions options{.zero = zero,
                                       .buckets_mb = 0,
                                       .compute_type = at::kDouble,
                                       .master_type = at::kDouble,
                                       .reduce_type = at::kDouble,
                                       .alignment = 32};
        OptimizerOptions of_experts = options;
        if (!has_copies) of_experts.zero = 0;
        const int64_t rank = world.rank();
        Group same = *world.group(
            "same", has_copies ? std::vector<int64_t>{rank % 2, rank % 2 + 2} : std::vector<int64_t>{rank});
        StageOptimizer shared({stage.parameters[0], stage.parameters[2]}, world.all(), options);
        StageOptimizer experts({stage.parameters[1], stage.parameters[3]}, same, of_experts);
        std::vector<std::pair<bool, size_t>> completed;
        StageWeights weights(stage.blocks, {&shared, &experts},
                             {.complete = [&](const StageOptimizer& optimizer, size_t block) {
                               completed.emplace_back(&optimizer == &experts, block);
                             }});
        for (StageOptimizer* optimizer : {&shared, &experts}) {
          optimizer->release_values();
          optimizer->begin_step();
        }
        if (zero == 3) {
          EXPECT_EQ(shared.held_elements().values, 2 * kElements / 4);
          EXPECT_EQ(experts.held_elements().values, has_copies ? kElements : 2 * kElements);
        }
        for (int microbatch = 0; microbatch < 2; ++microbatch) {
          const bool is_last = microbatch == 1;
          weights.begin_gradients(is_last);
          weights.begin_backward(nullptr);
          for (size_t block = kBlocks; block-- > 0;) {
            const int64_t before = same.traffic().sent;
            weights.hooks().before_backward(block);
            EXPECT_EQ(stage.blocks[block].parameters.front()->value.sum().item<double>(),
                      static_cast<double>(kElements));
            // The gradient of block 3 goes when the backward comes to block 2.
            if (block == 2 && has_copies && (zero >= 2 || is_last)) {
              EXPECT_GT(same.traffic().sent, before);
            }
            stage.add_gradient(block, static_cast<double>((block + 1) * static_cast<size_t>(rank + 1)));
          }
          weights.end_backward();
          weights.end_gradients();
        }
        weights.reduce();
        if (!has_copies) {
          EXPECT_EQ(same.traffic().sent, 0);
        }
        for (StageOptimizer* optimizer : {&shared, &experts}) optimizer->finish_reduce();
        // Every optimizer completes all blocks in order, in every microbatch in which its gradients go.
        const bool divides_experts = zero >= 2 && has_copies;
        EXPECT_EQ(std::count_if(completed.begin(), completed.end(), [](const auto& c) { return c.first; }),
                  divides_experts ? 8 : 4);
        EXPECT_EQ(std::count_if(completed.begin(), completed.end(), [](const auto& c) { return !c.first; }),
                  zero >= 2 ? 8 : 4);
        for (size_t block = 0; block < kBlocks; ++block) {
          const bool is_expert = block % 2 == 1;
          const int64_t ranks = !is_expert ? 10 : has_copies ? 2 * (rank % 2 + 1) + 2 : rank + 1;
          EXPECT_EQ(summed(is_expert ? experts : shared, stage, block),
                    static_cast<double>(2 * static_cast<int64_t>(block + 1) * ranks))
              << "ZeRO " << zero;
        }
      };
      const auto error =
          run_ranks({.size = 4, .comm = {.timeout = std::chrono::seconds(60), .is_checked = true}}, body);
      EXPECT_FALSE(error) << error->message();
    }
  }
}

}  // namespace
}  // namespace weft
