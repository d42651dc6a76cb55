// Weights of Hugging Face folders that come into a run and go out of it.
#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "tests/support/weights/example_files.h"
#include "tests/training/small_run.h"
#include "weft/checkpoint/export_checkpoint.h"
#include "weft/checkpoint/initial_weights.h"
#include "weft/checkpoint/load_checkpoint.h"
#include "weft/checkpoint/save_checkpoint.h"
#include "weft/comm/threads/run_threads.h"
#include "weft/models/load_weights.h"
#include "weft/models/network.h"
#include "weft/spec/model_reader.h"
#include "weft/weights/safetensors_writer.h"

namespace weft::training {
namespace {

const PrecisionPlan kMixed{.compute = Precision::kBf16, .master = Precision::kFp32, .reduce = Precision::kFp32};

/// A folder's weights as one rank without a plan reads them.
struct WholeModel {
  WholeModel(const std::filesystem::path& folder, at::ScalarType type) : maker(at::TensorOptions().dtype(type)) {
    const Network network = *Network::create(*read_model_file(folder), maker);
    const auto error = load_weights(*WeightFolder::open(folder), maker.all(), network.numbers().files);
    WEFT_CHECK(!error, "{}", error->message());
  }
  /// As files have it.
  at::Tensor value(const std::string& name) const { return NamedWeights(maker.all()).value(name); }
  /// Of the weight that a piece is of, in the orientation of parameters.
  at::Tensor value(const WeightPiece& piece) const {
    return piece.is_transposed ? value(piece.name).t() : value(piece.name);
  }

  WholeParameters maker;
};

/// Every piece of a rank's parameters is the slice of the whole weight.
void expect_slices(const std::vector<ParameterPtr>& parameters, const WholeModel& whole) {
  for (const ParameterPtr& parameter : parameters) {
    int64_t begin = 0;
    for (const WeightPiece& piece : parameter->spec.pieces) {
      const at::Tensor found = parameter->value.detach().reshape({-1}).narrow(0, begin, piece.num_elements());
      begin += piece.num_elements();
      if (piece.name.empty()) {
        EXPECT_EQ(found.count_nonzero().item<int64_t>(), 0);
      } else {
        const at::Tensor expected = held_part(piece, whole.value(piece)).reshape({-1});
        EXPECT_TRUE(found.equal(expected.to(found.scalar_type()))) << piece.name;
      }
    }
    EXPECT_EQ(begin, parameter->value.numel());
  }
}

std::vector<SmallRun> spread_runs() {
  std::vector<SmallRun> all;
  for (const char* fixture : {"gpt2", "llama_tied", "qwen2_tied", "llama_bias", "qwen2_vl_untied", "qwen2_vl_tied"}) {
    all.push_back({.fixture = fixture, .tp = 2});
    all.push_back({.fixture = fixture, .pp = 2});
    all.push_back({.fixture = fixture, .tp = 2, .pp = 2, .dp = 2, .zero = 1});
  }
  all.push_back({.fixture = "qwen2_tied", .tp = 3});
  all.push_back({.fixture = "qwen2_sharded", .tp = 2, .dp = 2, .zero = 3, .buckets_mb = 0.01});
  all.push_back({.fixture = "llama_tied", .tp = 2, .dp = 2, .zero = 2, .precision = kMixed, .buckets_mb = 0.01});
  all.push_back({.fixture = "qwen2_vl_tied", .pp = 2, .frozen = {ModuleKind::kVision}, .precision = kMixed});
  all.push_back({.fixture = "qwen3_moe_mixed", .pp = 2, .dp = 2, .zero = 1});
  all.push_back({.fixture = "qwen3_moe_norm", .tp = 2, .dp = 2, .ep = 2});
  all.push_back({.fixture = "qwen3_moe_norm", .tp = 2, .ep = 2, .sequence_parallel = true, .experts_over_tp = true});
  return all;
}

class SpreadWeights : public testing::TestWithParam<SmallRun> {};

TEST_P(SpreadWeights, AreSlicesOfTheWhole) {
  const Plan plan = plan_of(GetParam());
  const std::filesystem::path folder = fixture_folder(GetParam().fixture);
  const WholeModel whole(folder, at::kDouble);
  on_ranks(plan.world_size, [&](World& world) {
    // Into the parameters.
    const auto files = WeightFolder::open(folder);
    auto rank = make_rank(world, plan, 3);
    rank->gather_values();
    auto error = load_weight_parts(*files, *list_weights(plan.model), rank->parameters());
    WEFT_CHECK(!error, "{}", error->message());
    expect_slices(rank->parameters(), whole);
    rank->adopt_values();

    // Into what the optimizers own, from where the parameters get it; not rounded to the values' type on the way.
    auto other = make_rank(world, plan, 4);
    error = load_initial_weights(*files, plan.model, world.all(), other->optimizers());
    WEFT_CHECK(!error, "{}", error->message());
    other->gather_values();
    expect_slices(other->parameters(), whole);
    for (const StageOptimizer* optimizer : other->optimizers()) {
      for (const OwnedPart& part : optimizer->owned_parts()) {
        const Parameter& parameter = *part.parameter;
        const WeightPiece& piece = parameter.spec.pieces.front();
        if (parameter.spec.pieces.size() > 1) continue;
        const at::Tensor expected = held_part(piece, whole.value(piece)).reshape({-1});
        const at::Tensor mine = expected.narrow(0, part.elements.begin, part.elements.size());
        EXPECT_TRUE(part.state.master.equal(mine.to(part.state.master.scalar_type()))) << piece.name;
      }
    }
    if (plan.precision.compute == plan.precision.master) {
      rank->gather_values();
      expect_same(state_of(*other), state_of(*rank));
    }
    EXPECT_EQ(take_step(*other, plan, 1), take_step(*rank, plan, 1));
  });
}

INSTANTIATE_TEST_SUITE_P(Plans, SpreadWeights, testing::ValuesIn(spread_runs()),
                         [](const auto& named) { return named.param.text(); });

TEST(SpreadWeights, OfAnotherModelAreRefusedOnAllRanks) {
  const Plan plan = plan_of({.fixture = "qwen2_tied", .pp = 2});
  std::mutex guard;
  std::vector<std::string> messages;
  on_ranks(2, [&](World& world) {
    auto rank = make_rank(world, plan, 3);
    const auto files = WeightFolder::open(fixture_folder("llama_tied"));
    const auto initial = load_initial_weights(*files, plan.model, world.all(), rank->optimizers());
    const auto parts = load_weight_parts(*files, *list_weights(plan.model), rank->parameters());
    const std::lock_guard lock(guard);
    messages.push_back(initial ? initial->message() : "");
    messages.push_back(parts ? parts->message() : "");
  });
  ASSERT_EQ(messages.size(), 4U);
  for (const std::string& message : messages) EXPECT_EQ(message, messages.front());
  EXPECT_NE(messages.front().find("model.embed_tokens.weight: has the shape"), std::string::npos) << messages.front();
}

TEST(SpreadWeights, AreReadOutsideTheTimeOut) {
  const Plan plan = plan_of({.fixture = "qwen2_tied", .pp = 2});
  const std::filesystem::path folder = fixture_folder("qwen2_tied");
  const auto failure = run_thread_ranks(2, {.timeout = std::chrono::milliseconds(200)}, [&](World& world) {
    std::unique_ptr<TrainingRank> rank;
    {
      const UnlimitedWaits patience(world.all());
      rank = make_rank(world, plan, 3);
      world.all().barrier().wait();
    }
    const auto files = WeightFolder::open(folder);
    if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    auto error = load_initial_weights(*files, plan.model, world.all(), rank->optimizers());
    WEFT_CHECK(!error, "{}", error->message());
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    error = load_initial_adapters({}, plan.model, world.all(), rank->optimizers());
    WEFT_CHECK(!error, "{}", error->message());
  });
  EXPECT_FALSE(failure);
}

TEST(SpreadWeights, ANumberThatIsNotFiniteIsAnErrorOfAllRanks) {
  const Plan plan = plan_of({.pp = 2});
  const ScratchFolder scratch;
  // One weight of the last stage alone.
  const WeightFolder good = *WeightFolder::open(fixture_folder("llama_tied"));
  std::vector<WeightEntry> entries = good.files().front().entries();
  std::string bytes;
  for (WeightEntry& entry : entries) {
    if (entry.info.name != "model.norm.weight") continue;
    bytes = text_of(entry.bytes);
    const float wrong = std::nanf("");
    std::memcpy(bytes.data() + sizeof(float), &wrong, sizeof(float));
    entry.bytes = bytes_in(bytes);
  }
  ASSERT_FALSE(bytes.empty());
  ASSERT_FALSE(write_safetensors(scratch / "model.safetensors", entries, {}));
  std::mutex guard;
  std::vector<std::string> messages;
  on_ranks(2, [&](World& world) {
    auto rank = make_rank(world, plan, 3);
    const auto error =
        load_initial_weights(*WeightFolder::open(scratch.path()), plan.model, world.all(), rank->optimizers());
    const std::lock_guard lock(guard);
    messages.push_back(error ? error->field + " " + error->problem : "");
  });
  EXPECT_EQ(messages, std::vector<std::string>(2, "model.norm.weight holds a value that is not a finite number"));
}

struct ExportCase {
  SmallRun run;
  std::optional<Precision> type;
  int64_t max_file_bytes = 5'000'000'000;
};

/// Trains a little, saves, and exports.
void train_and_export(const ExportCase& which, const ScratchFolder& scratch,
                      std::map<std::string, at::Tensor>& trained) {
  const Plan plan = plan_of(which.run);
  std::mutex guard;
  on_ranks(plan.world_size, [&](World& world) {
    auto rank = make_rank(world, plan, 3);
    auto error = load_initial_weights(*WeightFolder::open(fixture_folder(which.run.fixture)), plan.model, world.all(),
                                      rank->optimizers());
    WEFT_CHECK(!error, "{}", error->message());
    for (int64_t step = 1; step <= 2; ++step) take_step(*rank, plan, step);
    const auto saved = save_checkpoint({.checkpoints = scratch / "checkpoints", .step = 2, .plan = plan}, world.all(),
                                       rank->optimizers());
    WEFT_CHECK(saved.ok(), "{}", saved.error().message());
    // Master weights, one element at a time.
    const std::lock_guard lock(guard);
    for (const StageOptimizer* optimizer : rank->optimizers()) {
      for (const OwnedPart& part : optimizer->owned_parts()) {
        int64_t element = 0;
        for (const WeightPiece& piece : part.parameter->spec.pieces) {
          at::Tensor& whole = trained[piece.name];
          if (!whole.defined()) whole = at::full(piece.shape, std::nan(""), at::kDouble);
          at::Tensor held = held_part(piece, whole).reshape({-1});  // a copy where it is cut by columns
          for (int64_t i = 0; i < piece.num_elements(); ++i, ++element) {
            if (element < part.elements.begin || element >= part.elements.end) continue;
            held[i] = part.state.master[element - part.elements.begin];
          }
          at::Tensor place = held_part(piece, whole);
          place.copy_(held.view(place.sizes()));
        }
      }
    }
  });
  trained.erase("");
  const auto checkpoint = read_checkpoint(scratch / "checkpoints" / "step-00000002");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  const auto error = export_checkpoint(*checkpoint, scratch / "exported",
                                       {.type = which.type, .max_file_bytes = which.max_file_bytes});
  ASSERT_FALSE(error) << error->message();
}

TEST(ExportCheckpoint, WritesTheTrainedWeights) {
  const SmallRun zero3{.fixture = "qwen2_tied", .tp = 2, .pp = 2, .dp = 2, .zero = 3, .buckets_mb = 0.01};
  const std::vector<ExportCase> cases = {
      {.run = zero3, .type = Precision::kFp64},
      {.run = {.fixture = "qwen2_tied", .tp = 3}, .type = Precision::kFp64, .max_file_bytes = 20'000},
      {.run = {.fixture = "qwen2_vl_untied", .tp = 2, .pp = 2, .frozen = {ModuleKind::kVision}}},
      {.run = {.fixture = "llama_tied", .dp = 2, .zero = 2, .precision = kMixed}, .type = Precision::kBf16},
      {.run = {.fixture = "qwen2_5_omni", .pp = 2}},
  };
  for (const ExportCase& which : cases) {
    SCOPED_TRACE(which.run.text());
    const ScratchFolder scratch;
    std::map<std::string, at::Tensor> trained;
    train_and_export(which, scratch, trained);
    const WholeModel exported(scratch / "exported", at::kDouble);
    const WholeModel before(fixture_folder(which.run.fixture), at::kDouble);
    const at::ScalarType written = which.type == Precision::kFp64   ? at::kDouble
                                   : which.type == Precision::kBf16 ? at::kBFloat16
                                                                    : at::kFloat;  // the fixtures' own
    EXPECT_EQ(NamedWeights(exported.maker.all()).names().size(), trained.size());
    int64_t num_changed = 0;
    for (const auto& [name, value] : trained) {
      const at::Tensor found = exported.value(name);
      ASSERT_TRUE(found.defined()) << name;
      EXPECT_TRUE(found.equal(value.to(written).to(at::kDouble))) << name;
      num_changed += found.equal(before.value(name)) ? 0 : 1;
    }
    EXPECT_GT(num_changed, 0);
    EXPECT_EQ(std::filesystem::exists(scratch / "exported" / "model.safetensors.index.json"),
              which.max_file_bytes < 1'000'000);
  }
}

TEST(ExportCheckpoint, WritesTheConfigurationWithTheTypeOfItsWeights) {
  const ScratchFolder scratch;
  std::map<std::string, at::Tensor> trained;
  train_and_export({.run = {}, .type = Precision::kBf16}, scratch, trained);
  Json expected = plan_of({}).model.config;
  ASSERT_EQ(expected["dtype"], "float32");
  expected["dtype"] = "bfloat16";
  EXPECT_EQ(read_document(scratch / "exported" / "config.json")->root, expected);
  const WeightFolder weights = *WeightFolder::open(scratch / "exported");
  for (const WeightEntry& entry : weights.files().front().entries()) EXPECT_EQ(entry.info.type, WeightType::kBf16);
  const auto again =
      export_checkpoint(*read_checkpoint(scratch / "checkpoints" / "step-00000002"), scratch / "exported");
  ASSERT_TRUE(again);
  EXPECT_EQ(again->problem, "is there already, and not an empty folder");
}

/// Takes a checkpoint of every plan to every other.
void expect_spread_anew(const std::vector<SmallRun>& shapes) {
  for (const SmallRun& from : shapes) {
    const ScratchFolder scratch;
    const Plan plan = plan_of(from);
    on_ranks(plan.world_size, [&](World& world) {
      auto rank = make_rank(world, plan, 3);
      for (int64_t step = 1; step <= 2; ++step) take_step(*rank, plan, step);
      const auto saved =
          save_checkpoint({.checkpoints = scratch.path(), .step = 2, .plan = plan}, world.all(), rank->optimizers());
      WEFT_CHECK(saved.ok(), "{}", saved.error().message());
    });
    const auto first = read_checkpoint(scratch / "step-00000002");
    ASSERT_FALSE(export_checkpoint(*first, scratch / "first", {.type = Precision::kFp64}));
    // To every other plan and from there, unchanged, into a checkpoint of its own.
    for (const SmallRun& to : shapes) {
      SCOPED_TRACE(from.text() + " to " + to.text());
      const Plan other = plan_of(to);
      on_ranks(other.world_size, [&](World& world) {
        auto rank = make_rank(world, other, 99);
        const auto error = load_checkpoint(*first, world.all(), rank->optimizers());
        WEFT_CHECK(!error, "{}", error->message());
        for (const StageOptimizer* optimizer : rank->optimizers()) EXPECT_EQ(optimizer->step(), 2);
        const auto saved =
            save_checkpoint({.checkpoints = scratch.path(), .step = 3, .plan = other}, world.all(), rank->optimizers());
        WEFT_CHECK(saved.ok(), "{}", saved.error().message());
      });
      const auto second = read_checkpoint(scratch / "step-00000003");
      std::filesystem::remove_all(scratch / "second");
      ASSERT_FALSE(export_checkpoint(*second, scratch / "second", {.type = Precision::kFp64}));
      const ScratchFolder* folder = &scratch;
      EXPECT_TRUE(folder->read("first/model.safetensors") == folder->read("second/model.safetensors"));
      // Moments as well: back on the first plan, every rank has the bits that it had.
      std::vector<std::vector<std::pair<std::string, at::Tensor>>> states(static_cast<size_t>(plan.world_size));
      on_ranks(plan.world_size, [&](World& world) {
        auto direct = make_rank(world, plan, 98);
        auto around = make_rank(world, plan, 97);
        ASSERT_FALSE(load_checkpoint(*first, world.all(), direct->optimizers()));
        ASSERT_FALSE(load_checkpoint(*second, world.all(), around->optimizers()));
        expect_same(state_of(*around), state_of(*direct));
      });
    }
  }
}

TEST(LoadCheckpoint, SpreadsStatesAnewForAnotherPlan) {
  expect_spread_anew({
      {.fixture = "qwen2_tied"},
      {.fixture = "qwen2_tied", .tp = 2, .pp = 2, .dp = 2, .zero = 3, .buckets_mb = 0.01},
      {.fixture = "qwen2_tied", .tp = 3},
      {.fixture = "qwen2_tied", .cp = 2, .dp = 2, .zero = 2},
      {.fixture = "qwen2_tied", .dp = 3, .zero = 1, .buckets_mb = 0.02},
      {.fixture = "qwen2_tied", .pp = 2, .vpp = 2, .schedule = "zb_v", .microbatches = 4},
  });
}

TEST(LoadCheckpoint, SpreadsExpertsAnewForAnotherPlan) {
  expect_spread_anew({
      {.fixture = "qwen3_moe_norm"},
      {.fixture = "qwen3_moe_norm", .dp = 4, .ep = 2, .zero = 3, .buckets_mb = 0.01},
      {.fixture = "qwen3_moe_norm", .dp = 4, .ep = 4, .zero = 2},
      {.fixture = "qwen3_moe_norm", .tp = 2, .pp = 2, .dp = 2, .ep = 2, .zero = 1},
      {.fixture = "qwen3_moe_norm", .tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true, .experts_over_tp = true},
  });
}

}  // namespace
}  // namespace weft::training
