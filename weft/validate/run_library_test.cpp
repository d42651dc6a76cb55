#include "weft/validate/run_library.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/validate/joint_fit.h"

namespace weft::run_library_test {
namespace {

RunLibrary library() {
  const Scenarios scenarios(source_tree() / "scenarios");
  Result<RunLibrary> read = read_run_library(scenarios);
  EXPECT_TRUE(read.ok()) << read.error().message();
  return *std::move(read);
}

TEST(RunLibrary, CoversWhatPlansAreMadeOf) {
  bool has_zero3 = false, has_cp = false, has_ep = false, has_overlap = false, has_fused = false, has_kept = false;
  bool has_full = false, has_half = false, has_nodes = false, has_zero2 = false, has_pp = false, has_unfused = false;
  bool has_exposed_reduction = false, has_sequence_parallel = false, has_chunks = false, has_exposed_rows = false;
  std::set<std::string> systems, models_with_tp;
  for (const PublishedTable& table : library().tables) {
    EXPECT_FALSE(table.not_alike.empty()) << table.source;
    EXPECT_TRUE(table.software == "weft" || table.url.starts_with("https://")) << table.source;
    systems.insert(table.software);
    for (const TrainingRun& run : table.runs) {
      has_zero3 |= run.zero == 3;
      has_zero2 |= run.zero == 2;
      has_pp |= run.pp > 1;
      has_unfused |= !run.fused_attention;
      has_exposed_reduction |= run.dp > 1 && !run.overlaps_dp;
      has_cp |= run.cp > 1;
      has_ep |= run.ep > 1;
      has_overlap |= run.overlaps_dp;
      has_fused |= run.fused_attention;
      has_kept |= run.recompute == Recomputation::kNone;
      has_full |= run.recompute == Recomputation::kFull;
      has_half |= run.recompute == Recomputation::kHalf;
      has_nodes |= run.num_devices > table.cluster.devices_per_node;
      has_sequence_parallel |= run.tp > 1 && run.sequence_parallel;
      has_chunks |= run.vpp > 1;
      has_exposed_rows |= run.tp > 1 && !run.overlaps_tp;
      if (run.tp > 1) models_with_tp.insert(run.model->name);
    }
  }
  EXPECT_TRUE(has_zero3 && has_cp && has_ep && has_overlap && has_fused && has_kept && has_full && has_half &&
              has_nodes);
  EXPECT_TRUE(has_zero2 && has_pp && has_unfused && has_exposed_reduction);
  EXPECT_TRUE(has_sequence_parallel && has_chunks && has_exposed_rows);
  EXPECT_GE(systems.size(), 7U);
  EXPECT_GE(models_with_tp.size(), 9U);
}

// tp x cp x pp is 2^64, which 64 bits hold as 0.
TEST(RunLibrary, CommonSettingsThatAreNoMappingAndDegreesWithoutEndAreNamed) {
  std::string name = (std::filesystem::temp_directory_path() / "weft_library_XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const std::filesystem::path root = name;
  std::filesystem::create_directories(root / "validation/runs");
  std::filesystem::copy(source_tree() / "scenarios/clusters", root / "clusters");
  std::ofstream(root / "validation/software.yaml") << "some: {}\n";
  const auto problem_with = [&](const std::string& common) {
    std::ofstream(root / "validation/runs/x.yaml")
        << "source: s\nnot_alike: n\ncluster: local_cpu\nsoftware: some\ncommon: " << common
        << "\nruns: [{name: x, sequence_length: 2048, num_gpus: 8, micro_batch: 8, global_batch: 2048, recompute: "
           "full, "
           "tokens_per_s: 410}]\n";
    const auto library = read_run_library(Scenarios(root));
    return library.ok() ? "" : library.error().message();
  };
  EXPECT_EQ(problem_with("[1]"),
            root.string() + "/validation/runs/x.yaml: common: is a list, a mapping of fields is needed");
  EXPECT_NE(problem_with("{model: nowhere, tp: 67108864, cp: 67108864, pp: 4096}").find("nowhere"), std::string::npos);
  std::filesystem::remove_all(root);
}

TEST(RunLibrary, StepTimesFollowFromThroughput) {
  for (const PublishedTable& table : library().tables) {
    for (const TrainingRun& run : table.runs) {
      if (run.name != "70B, full" || table.software != "torchtitan_eager") continue;
      // 64 samples of 8,192 tokens on 64 devices at 331 tokens a second each.
      EXPECT_NEAR(run.measured_ms, 1e3 * 8192 / 331, 1e-6);
      return;
    }
  }
  FAIL() << "the run is gone";
}

// Megatron Core's rule: 40 million gradients in fp32, or a million for each data-parallel rank.
TEST(RunLibrary, BucketsOfNeMoFollowItsRule) {
  int num_runs = 0, num_larger = 0;
  for (const PublishedTable& table : library().tables) {
    if (table.software != "nemo") continue;
    for (const TrainingRun& run : table.runs) {
      EXPECT_EQ(run.buckets_mb, std::max(160.0, 4.0 * static_cast<double>(run.dp))) << run.name;
      EXPECT_EQ(plan_of(run, table.cluster)->buckets_mb, run.buckets_mb) << run.name;
      ++num_runs;
      num_larger += run.buckets_mb > 160 ? 1 : 0;
    }
  }
  EXPECT_GE(num_runs, 30);
  EXPECT_GT(num_larger, 0);
}

TEST(RunLibrary, TensorParallelismThatOverlapsNothingTakesLonger) {
  const RunLibrary all = library();
  const std::vector<LibraryRun> runs = *prepare(all);
  int num_runs = 0;
  for (const LibraryRun& run : runs) {
    if (run.prepared.run.overlaps_tp || run.prepared.run.tp == 1) continue;
    PreparedRun with = run.prepared;
    with.plan.overlap_tp = true;
    EXPECT_FALSE(run.prepared.plan.overlap_tp);
    const Efficiency efficiency = shipped(all).efficiency_of(run);
    EXPECT_GT(predict_ms(run.prepared, efficiency), 1.01 * predict_ms(with, efficiency)) << run.prepared.run.name;
    ++num_runs;
  }
  EXPECT_GE(num_runs, 25);
}

TEST(RunLibrary, SoftwareChangesItsOwnFieldsAlone) {
  const Result<Software> read = Software::read({.source = "s", .root = {{"kernel_us", 3}, {"overlap", 0.5}}});
  ASSERT_TRUE(read.ok()) << read.error().message();
  const Efficiency changed = read->applied_to({.matrix = 0.5});
  EXPECT_EQ(changed.kernel_us, 3);
  EXPECT_EQ(changed.overlap, 0.5);
  EXPECT_EQ(changed.matrix, 0.5);
  const Result<Software> bad = Software::read({.source = "s", .root = {{"matrix", 0.7}}});
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.error().message().find("matrix"), std::string::npos) << "a machine's";
}

TEST(RunLibrary, ShippedValuesPredictPublishedRuns) {
  const RunLibrary all = library();
  const std::vector<LibraryRun> runs = *prepare(all);
  const Accuracy accuracy = accuracy_of(predict(runs, shipped(all)));
  EXPECT_LE(accuracy.mean_error_percent, 6);
  EXPECT_LE(accuracy.max_error_percent, 25);
}

// 48 layers of width 7,168 on eight devices of 80 GiB: 8,192 tokens a device do not fit, 6,144 just do.
TEST(RunLibrary, RunsWithoutRoomForTheirMemoryOverlapNothing) {
  const RunLibrary all = library();
  const Result<std::vector<LibraryRun>> runs = prepare(all);
  ASSERT_TRUE(runs.ok()) << runs.error().message();
  int num_overfull = 0, num_with_room = 0;
  for (const LibraryRun& run : *runs) {
    const Efficiency efficiency = shipped(all).efficiency_of(run);
    const bool plans_memory = all.software.at(run.software).plans_memory();
    EXPECT_EQ(run.prepared.waits_where_overfull, !plans_memory) << run.software;
    if (run.model == "mpt-30b" && run.prepared.run.name == "30B, 8192 tokens, 8 devices") {
      EXPECT_TRUE(run.prepared.is_overfull);
      PreparedRun with_room = run.prepared;
      with_room.is_overfull = false;
      EXPECT_GT(predict_ms(run.prepared, efficiency), 1.04 * predict_ms(with_room, efficiency));
      PreparedRun planned = run.prepared;
      planned.waits_where_overfull = false;
      EXPECT_EQ(predict_ms(planned, efficiency), predict_ms(with_room, efficiency));
      ++num_overfull;
    }
    if (run.software == "llm_foundry_a100" && run.prepared.run.name == "30B, 2048 tokens, 8 devices") {
      EXPECT_FALSE(run.prepared.is_overfull);
      ++num_with_room;
    }
  }
  EXPECT_EQ(num_overfull, 2) << "on A100 and on H100";
  EXPECT_EQ(num_with_room, 1);
}

TEST(RunLibrary, TheDefaultsErrorIsTheOneThatIsPrinted) {
  const RunLibrary all = library();
  const std::vector<LibraryRun> runs = *prepare(all);
  std::vector<PredictedRun> predicted;
  for (const LibraryRun& run : runs) {
    const PreparedRun& prepared = run.prepared;
    predicted.push_back({prepared.run.name, prepared.run.measured_ms, predict_ms(prepared, Efficiency{})});
  }
  const Accuracy accuracy = accuracy_of(predicted);
  EXPECT_EQ(default_error().runs, static_cast<int64_t>(runs.size()));
  EXPECT_NEAR(default_error().mean_percent, accuracy.mean_error_percent, 0.5);
  EXPECT_NEAR(default_error().max_percent, accuracy.max_error_percent, 0.5);
}

TEST(JointFit, FindsMachinesAndSystemsApart) {
  const RunLibrary all = library();
  std::vector<LibraryRun> runs = *prepare(all);
  // As if two systems on one machine had measured them.
  JointFit truth;
  truth.hardware["h100"] = {.matrix = 0.62, .memory = 0.75};
  truth.software["torchtitan_compiled"].set(&Efficiency::passes_per_operator, 1.2);
  truth.software["maxtext"].set(&Efficiency::passes_per_operator, 2.5);
  std::erase_if(runs, [&](const LibraryRun& run) { return !truth.software.contains(run.software); });
  ASSERT_GE(runs.size(), 6U);
  for (LibraryRun& run : runs) run.prepared.run.measured_ms = predict_ms(run.prepared, truth.efficiency_of(run));
  const JointFit found = fit(runs);
  EXPECT_LT(accuracy_of(predict(runs, found)).mean_error_percent, 1);
  EXPECT_NEAR(found.hardware.at("h100").matrix, 0.62, 0.04);
  // A model that is left out is not seen.
  for (LibraryRun& run : runs) {
    if (run.model == "llama3-8b") run.prepared.run.measured_ms *= 7;
  }
  EXPECT_NEAR(fit(runs, "llama3-8b").hardware.at("h100").matrix, 0.62, 0.04);
}

}  // namespace
}  // namespace weft::run_library_test
