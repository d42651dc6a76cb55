// Bytes of going on by another plan, with checkpoints as runs write them: what ranks read over what they need, and
// what a change in memory moves over the least possible (at most 1.1 wanted of both). Pairs of plans are drawn, with
// degrees and placements for each module. Nothing here depends on time.
//
//   build/bench/weft_reshard_bytes [PAIRS [SEED]]
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include "tests/support/checkpoint/owned_elements.h"
#include "tests/support/meaning/random_plan.h"
#include "tests/support/weights/example_files.h"
#include "tests/training/small_run.h"
#include "weft/checkpoint/load_checkpoint.h"
#include "weft/checkpoint/save_checkpoint.h"
#include "weft/spec/model_reader.h"

namespace {

using namespace weft;
using namespace weft::training;

struct Case {
  const char* name;
  const char* fixture;
  const char* sizes;  ///< JSON that goes over the fixture's configuration
};

constexpr Case kCases[] = {
    {"text", "llama_tied",
     R"({"hidden_size": 768, "intermediate_size": 2048, "num_attention_heads": 12, "num_key_value_heads": 4,
         "head_dim": 64, "num_hidden_layers": 6, "vocab_size": 16000})"},
    {"vision", "qwen2_vl_untied",
     R"({"text_config": {"layer_types": null, "hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8,
         "num_key_value_heads": 2, "num_hidden_layers": 6, "vocab_size": 8000,
         "rope_parameters": {"mrope_section": [16, 8, 8], "rope_theta": 10000.0, "rope_type": "default"}},
         "vision_config": {"depth": 6, "embed_dim": 384, "num_heads": 6, "hidden_size": 512, "mlp_ratio": 4}})"},
    {"experts", "qwen3_moe_norm",
     R"({"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
         "moe_intermediate_size": 256, "num_hidden_layers": 4, "vocab_size": 8000})"}};

Model model_of(const Case& given) {
  auto model = read_model_file(fixture_folder(given.fixture));
  WEFT_CHECK(model.ok(), "{}", model.error().message());
  Json config = model->config;
  config.merge_patch(Json::parse(given.sizes));
  model = read_model({.source = given.name, .root = std::move(config)}, given.name);
  WEFT_CHECK(model.ok(), "{}", model.error().message());
  return *std::move(model);
}

std::unique_ptr<TrainingRank> rank_of(World& world, const Plan& plan, std::optional<uint64_t> seed) {
  auto rank = TrainingRank::create(world, plan, {.seed = seed});
  WEFT_CHECK(rank.ok(), "{}", rank.error().message());
  return *std::move(rank);
}

struct Bytes {
  int64_t read = 0, wanted = 0, state = 0;  ///< wanted by all ranks, copies included; state: of the model, once
  int64_t moved = 0, least = 0;
};

constexpr int64_t kRanks = 8;
constexpr int64_t kElementBytes = 4;

Bytes measure(const Plan& before, const Plan& after) {
  const ScratchFolder scratch;
  std::atomic<int64_t> read = 0, wanted = 0, state = 0, moved = 0, least = 0;
  std::vector<OwnedElements> held(kRanks), next(kRanks);
  on_ranks(kRanks, [&](World& world) {
    const auto mine = static_cast<size_t>(world.rank());
    auto rank = rank_of(world, before, 3);
    held[mine] = owned_elements(rank->optimizers());
    const auto saved =
        save_checkpoint({.checkpoints = scratch.path(), .step = 1, .plan = before}, world.all(), rank->optimizers());
    WEFT_CHECK(saved.ok(), "{}", saved.error().message());
    {
      auto loaded = rank_of(world, after, std::nullopt);
      const auto checkpoint = read_checkpoint(scratch / "step-00000001");
      WEFT_CHECK(checkpoint.ok(), "{}", checkpoint.error().message());
      MovedBytes bytes;
      const auto error = load_checkpoint(*checkpoint, world.all(), loaded->optimizers(), &bytes);
      WEFT_CHECK(!error, "{}", error->message());
      read += bytes.read;
      wanted += bytes.wanted;
    }
    auto switched = rank_of(world, after, std::nullopt);
    MovedBytes bytes;
    const auto error = move_states(world.all(), rank->optimizers(), switched->optimizers(), &bytes);
    WEFT_CHECK(!error, "{}", error->message());
    moved += bytes.received;
    next[mine] = owned_elements(switched->optimizers());
    world.all().barrier().wait();
  });
  const OwnedElements there = united(held);
  for (size_t rank = 0; rank < held.size(); ++rank)
    least += least_moved_bytes(held[rank], next[rank], there, kElementBytes);
  // What a single reader would need of everything.
  state = least_moved_bytes({}, united(next), there, kElementBytes);
  return {.read = read, .wanted = wanted, .state = state, .moved = moved, .least = least};
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t pairs = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 5;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  fmt::print("{:8} {:>5} {:>10} {:>12} {:>11} {:>13} {:>12}\n", "model", "seed", "states MB", "read/wanted",
             "read/states", "moved MB", "moved/least");
  double most_read = 0, most_moved = 0;
  for (const Case& given : kCases) {
    const Model model = model_of(given);
    for (uint64_t i = seed; i < seed + pairs; ++i) {
      const auto drawn = [&](uint64_t number) {
        Plan plan = random_plan(model, number, {.world_size = kRanks});
        plan.precision = {.compute = Precision::kFp32, .master = Precision::kFp32, .reduce = Precision::kFp32};
        return plan;
      };
      const Bytes bytes = measure(drawn(2 * i), drawn(2 * i + 1));
      const auto over = [](int64_t part, int64_t all) {
        return all == 0 ? 1.0 : static_cast<double>(part) / static_cast<double>(all);
      };
      most_read = std::max(most_read, over(bytes.read, bytes.state));
      most_moved = std::max(most_moved, over(bytes.moved, bytes.least));
      fmt::print("{:8} {:>5} {:>10.1f} {:>12.4f} {:>11.4f} {:>13.1f} {:>12.4f}\n", given.name, i,
                 static_cast<double>(bytes.state) / 1e6, over(bytes.read, bytes.wanted), over(bytes.read, bytes.state),
                 static_cast<double>(bytes.moved) / 1e6, over(bytes.moved, bytes.least));
      std::fflush(stdout);
    }
  }
  fmt::print("most: read/states {:.4f}, moved/least {:.4f}\n", most_read, most_moved);
  return most_read <= 1.1 && most_moved <= 1.1 ? 0 : 1;
}
