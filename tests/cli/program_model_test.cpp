// A user's own program through the verbs: described, planned, checked, trained on any ranks, resumed, evaluated.
#include <algorithm>
#include <cstring>

#include "tests/cli/training_runs.h"
#include "weft/base/document.h"
#include "weft/weights/safetensors_writer.h"

namespace weft::train_test {
namespace {

constexpr const char* kSamples = "global_batch_samples: 8\nsequence_tokens: 6\nprecision: fp64\n";

class ProgramModelVerbs : public TrainingRuns {
 protected:
  std::string encoder_plan(const std::string& name, int devices, const std::string& space) {
    return plan(name, devices, space, (source_tree() / "docs/manual/encoder.txt").string(), kSamples);
  }
  ProgramRun train(const std::string& plan_file, const std::string& settings, const std::string& run,
                   const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"train", "--plan", plan_file, "--config", settings, "--run", run_folder(run)};
    words.insert(words.end(), more.begin(), more.end());
    return run_weft(words);
  }
  std::vector<double> losses(const std::string& run) const {
    std::vector<double> all;
    for (const Json& line : metrics(run)) all.push_back(line["loss"]);
    return all;
  }
  /// Numbers below 11, as the program's entries are, or `number` alone.
  std::string tensors(const std::string& name, const std::vector<std::pair<std::string, std::vector<int64_t>>>& shapes,
                      std::optional<int64_t> number = {}) {
    std::vector<WeightEntry> entries;
    std::vector<std::vector<int64_t>> numbers(shapes.size());
    for (size_t i = 0; i < shapes.size(); ++i) {
      int64_t count = 1;
      for (const int64_t size : shapes[i].second) count *= size;
      for (int64_t k = 0; k < count; ++k)
        numbers[i].push_back(number.value_or((7 * k + 3 * static_cast<int64_t>(i)) % 11));
      entries.push_back({.info = {.name = shapes[i].first, .type = WeightType::kI64, .shape = shapes[i].second},
                         .bytes = std::as_bytes(std::span(numbers[i])),
                         .owner = {}});
    }
    const std::string file = (folder_.path() / name).string();
    EXPECT_FALSE(write_safetensors(file, entries, {}));
    return file;
  }
};

TEST_F(ProgramModelVerbs, CountsParametersAndProducts) {
  const std::string workload = folder_.write("samples.yaml", kSamples);
  const ProgramRun run = run_weft(
      {"describe", "--model", (source_tree() / "docs/manual/encoder.txt").string(), "--workload", workload, "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  // Table and head; a layer's four matrices and four vectors of norms.
  const int64_t layer = 24 * 8 + 8 * 8 + 16 * 8 + 8 * 16 + 4 * 8;
  EXPECT_EQ(Json::parse(run.out)["parameters"]["total"], 2 * 11 * 8 + 2 * layer) << run.out;
}

TEST_F(ProgramModelVerbs, OperatorsAreMeasuredAndPricePlans) {
  const std::string model = (source_tree() / "docs/manual/encoder.txt").string();
  const std::string workload =
      folder_.write("fp32.yaml", "global_batch_samples: 8\nsequence_tokens: 6\nprecision: fp32\n");
  const std::string space = folder_.write("two.yaml", "mbs: 2\nllm: {tp: 2, pp: 1, dp: 1}\n");
  const std::string profile = (folder_.path() / "profile.json").string(),
                    here = (folder_.path() / "here.yaml").string();
  const ProgramRun measured = run_weft({"profile", "--model", model, "--workload", workload, "--space", space,
                                        "--ranks", "2", "--time-limit", "10", "--out", profile, "--cluster-out", here});
  ASSERT_EQ(measured.exit_status, 0) << measured.err;
  const Json file = read_document(profile)->root;
  ASSERT_FALSE(file["operators"].empty());
  EXPECT_TRUE(file["blocks"].empty());
  const auto has = [&](const std::string& op, const std::string& parts) {
    return std::any_of(file["operators"].begin(), file["operators"].end(), [&](const Json& each) {
      return each["operator"] == op && each["parts"] == parts && each["busy_ranks"] == 2 && each["forward_ms"] > 0;
    });
  };
  // The usual strategy's part, and that of another one.
  EXPECT_TRUE(has("einsum(rows, weight) : b s h, f h -> b s f", "2x6x8, 8x8 -> 2x6x8"));
  EXPECT_TRUE(has("einsum(rows, weight) : b s h, f h -> b s f", "1x6x8, 16x8 -> 1x6x16"));
  const std::string plan_file = (folder_.path() / "plan.json").string();
  const ProgramRun planned = run_weft({"plan", "--model", model, "--workload", workload, "--space", space, "--cluster",
                                       here, "--profile", profile, "--out", plan_file});
  ASSERT_EQ(planned.exit_status, 0) << planned.err;
  const ProgramRun simulated = run_weft({"simulate", "--plan", plan_file, "--profile", profile});
  ASSERT_EQ(simulated.exit_status, 0) << simulated.err;
  EXPECT_NE(simulated.out.find(": 3 of 3 blocks measured"), std::string::npos) << simulated.out;
}

TEST_F(ProgramModelVerbs, TrainsTheSameOnAnyRanksAndGoesOn) {
  const std::string one = encoder_plan("one", 1, "mbs: 4\nllm: {tp: 1, pp: 1, dp: 1}\n");
  const std::string eight = encoder_plan("eight", 8, "mbs: 1\nllm: {tp: 2, pp: 2, dp: 2}\nschedule: [1f1b]\n");
  const ProgramRun whole = train(one, config(6, 6), "whole");
  ASSERT_EQ(whole.exit_status, 0) << whole.err;
  ASSERT_EQ(train(eight, config(6, 6), "eight").exit_status, 0);
  const std::vector<double> expected = losses("whole"), found = losses("eight");
  ASSERT_EQ(expected.size(), 6);
  ASSERT_EQ(found.size(), 6);
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(found[i], expected[i], 1e-9 * expected[i]) << "step " << i + 1;
  // Three steps and three more are the same bits as six, by the same plan; by another one they are those of one rank.
  ASSERT_EQ(train(eight, config(3, 3), "parts").exit_status, 0);
  ASSERT_EQ(train(eight, config(6, 3), "parts", {"--resume"}).exit_status, 0);
  EXPECT_EQ(losses("parts"), found);
  ASSERT_EQ(train(eight, config(3, 3), "changed").exit_status, 0);
  const ProgramRun rest = train(one, config(6, 3), "changed", {"--resume"});
  ASSERT_EQ(rest.exit_status, 0) << rest.err;
  const std::vector<double> changed = losses("changed");
  ASSERT_EQ(changed.size(), 6);
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(changed[i], expected[i], 1e-9 * expected[i]) << "step " << i + 1;
  const ProgramRun evaluated = run_weft({"eval", "--checkpoint", run_folder("whole"), "--config", config(6, 6)});
  EXPECT_EQ(evaluated.exit_status, 0) << evaluated.err;
  // Nobody else has code for it: its weights come out by their names, and nothing is said of other programs' files.
  EXPECT_NE(whole.out.find("writes its weights, by their names in the program"), std::string::npos) << whole.out;
  const std::string out = (folder_.path() / "weights").string();
  const ProgramRun converted = run_weft({"convert", "--from", run_folder("whole"), "--to", out});
  EXPECT_EQ(converted.exit_status, 0) << converted.err;
  EXPECT_NE(converted.out.find("weights of a program"), std::string::npos) << converted.out;
  EXPECT_EQ(converted.err.find("note"), std::string::npos) << converted.err;
}

/// The plan with a strategy for its program's operators, as a file of its own.
std::string with_strategy(const std::string& plan_file, const Json& blocks) {
  Json plan = Json::parse(text_of(plan_file));
  plan["modules"]["llm"]["strategy"] = {{"mesh", {{"tp", plan["modules"]["llm"]["tp"]}}}, {"blocks", blocks}};
  const std::string changed = plan_file + ".strategy.json";
  std::ofstream(changed) << plan.dump(1);
  return changed;
}

TEST_F(ProgramModelVerbs, TrainsWithStrategiesAndGoesOnWithOthers) {
  const std::string one = encoder_plan("one", 1, "mbs: 4\nllm: {tp: 1, pp: 1, dp: 1}\n");
  const std::string usual = encoder_plan("usual", 4, "mbs: 2\nllm: {tp: 2, pp: 2, dp: 1, zero: 0}\nschedule: [1f1b]\n");
  const std::string samples =
      with_strategy(usual, {{"layer", {{"*", {{"tp", "cut b"}}}}}, {"exit", {{"logits", {{"tp", "cut s"}}}}}});
  ASSERT_EQ(train(one, config(6, 6), "whole").exit_status, 0);
  const std::vector<double> expected = losses("whole");
  const auto expect_same = [&](const std::string& run) {
    const std::vector<double> found = losses(run);
    ASSERT_EQ(found.size(), 6) << run;
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(found[i], expected[i], 1e-9 * expected[i]) << run << " " << i + 1;
  };
  const ProgramRun checked = run_weft({"check", "--plan", samples});
  EXPECT_EQ(checked.exit_status, 0) << checked.out << checked.err;
  const ProgramRun simulated = run_weft({"simulate", "--plan", samples});
  EXPECT_EQ(simulated.exit_status, 0) << simulated.err;
  ASSERT_EQ(train(samples, config(6, 6), "samples").exit_status, 0);
  expect_same("samples");
  // From one strategy to another and to none.
  const std::string other =
      with_strategy(encoder_plan("other", 2, "mbs: 2\nllm: {tp: 2, pp: 1, dp: 1}\n"),
                    {{"entry", {{"x", "h"}}}, {"layer", {{"up", "b"}, {"down", "h"}, {"y", "h"}, {"out", "h"}}}});
  ASSERT_EQ(train(samples, config(3, 1), "changed").exit_status, 0);
  const ProgramRun second = train(other, config(5, 1), "changed", {"--resume"});
  ASSERT_EQ(second.exit_status, 0) << second.err;
  const ProgramRun third = train(usual, config(6, 1), "changed", {"--resume"});
  ASSERT_EQ(third.exit_status, 0) << third.err;
  expect_same("changed");
  const ProgramRun processes =
      run_weft_with_mpi(2, {"train", "--plan", other, "--config", config(6, 6), "--run", run_folder("processes")});
  ASSERT_EQ(processes.exit_status, 0) << processes.err;
  expect_same("processes");
  const ProgramRun elsewhere = run_weft({"check", "--plan", with_strategy(usual, {{"layer", {{"loss", "b"}}}})});
  EXPECT_NE(elsewhere.exit_status, 0);
  EXPECT_NE((elsewhere.out + elsewhere.err).find("no operator of layer fits, but one of exit does"), std::string::npos)
      << elsewhere.out << elsewhere.err;
}

TEST_F(ProgramModelVerbs, TakesAStrategyThatWasFound) {
  const std::string regression = (source_tree() / "docs/manual/regression.txt").string();
  const std::string strategy =
      folder_.write("strategy.yaml", "weft_strategy: 1\nmesh: {tp: 4}\noperators: {\"*\": {tp: b}}\n");
  const std::string workload = folder_.write("samples.yaml", "global_batch_samples: 32\nsequence_tokens: 1\n");
  const auto plan_with = [&](const std::string& file, const std::string& space) {
    return run_weft({"plan", "--model", regression, "--cluster", "local_cpu", "--workload", workload, "--space",
                     folder_.write("space.yaml", space), "--strategy", file, "--json"});
  };
  const ProgramRun found = plan_with(strategy, "mbs: 4\n");
  ASSERT_EQ(found.exit_status, 0) << found.err;
  const Json llm = Json::parse(found.out)["plan"]["modules"]["llm"];
  EXPECT_EQ(llm["tp"], 4);
  EXPECT_EQ(llm["strategy"]["mesh"], Json({{"tp", 4}}));
  EXPECT_EQ(llm["strategy"]["blocks"]["layer"]["up"], Json({{"tp", "cut b"}}));
  const ProgramRun pinned = plan_with(strategy, "mbs: 4\nllm: {tp: 2}\n");
  EXPECT_EQ(pinned.exit_status, 2);
  EXPECT_NE(pinned.err.find("llm.tp: does not allow 4"), std::string::npos) << pinned.err;
  const ProgramRun mesh = plan_with(folder_.write("mesh.yaml", "weft_strategy: 1\nmesh: {tp: 4, dp: 2}\n"), "mbs: 4\n");
  EXPECT_EQ(mesh.exit_status, 2);
  EXPECT_NE(mesh.err.find("mesh.yaml: mesh: is not of the axis tp alone"), std::string::npos) << mesh.err;
  const ProgramRun inputs =
      plan_with(folder_.write("inputs.yaml", "weft_strategy: 1\nmesh: {tp: 4}\ninputs: {x: {tp: b}}\n"), "mbs: 4\n");
  EXPECT_NE(inputs.err.find("inputs.x: is 'b', but what comes from elsewhere is whole"), std::string::npos)
      << inputs.err;
}

TEST_F(ProgramModelVerbs, ReadsDataByName) {
  const std::string one = encoder_plan("one", 1, "mbs: 4\nllm: {tp: 1, pp: 1, dp: 1}\n");
  const std::string file = tensors("train.safetensors", {{"ids", {40, 6}}, {"labels", {40, 6}}});
  const auto settings = [&](const std::string& inputs) {
    return folder_.write("data.yaml", config_text(2, 0, "data: {inputs: " + inputs + ", held_out_share: 0.2}\n"));
  };
  const std::string good = "{ids: " + file + ", targets: {file: " + file + ", tensor: labels}}";
  const ProgramRun run = train(one, settings(good), "data");
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(metrics("data").size(), 2);

  const std::string narrow = tensors("narrow.safetensors", {{"ids", {40, 5}}, {"targets", {40}}, {"few", {30, 6}}});
  const auto expect_refused = [&](const std::string& inputs, const std::string& says) {
    const ProgramRun refused = train(one, settings(inputs), "refused");
    EXPECT_EQ(refused.exit_status, 2) << refused.err;
    EXPECT_NE(refused.err.find(says), std::string::npos) << refused.err;
  };
  expect_refused("{ids: " + file + "}", "data.inputs.targets: is missing, but the program reads it");
  expect_refused("{ids: " + file + ", tragets: " + file + "}", "data.inputs.tragets: is no input of the program");
  expect_refused("{ids: " + narrow + ", targets: {file: " + file + ", tensor: labels}}", "the dim 's' has 6 elements");
  expect_refused("{ids: " + file + ", targets: " + narrow + "}", "which lacks the dim 's'");
  expect_refused("{ids: " + file + ", targets: {file: " + narrow + ", tensor: few}}",
                 "has 30 samples, but 'ids' has 40");
  expect_refused("{ids: " + file + ", targets: {file: " + file + ", tensor: label}}", "has no tensor 'label'");
  expect_refused("{}",
                 "data.inputs: is empty, but the program reads tensors. Give a file for each: 'data: {inputs: "
                 "{ids: train.safetensors, targets: train.safetensors}}'");
  const std::string none = tensors("none.safetensors", {{"targets", {40, 6}}}, -100);
  const ProgramRun unlearnt = train(one, settings("{ids: " + file + ", targets: " + none + "}"), "unlearnt");
  EXPECT_NE(unlearnt.exit_status, 0);
  EXPECT_NE(unlearnt.err.find("data.inputs.targets: step 1: none of its 8 samples has a target: all numbers of "
                              "'targets' are below 0 in '"),
            std::string::npos)
      << unlearnt.err;
}

TEST_F(ProgramModelVerbs, GoesOnWithOtherSamplesAtOnceButNoOtherProgram) {
  const std::string text = text_of(source_tree() / "docs/manual/encoder.txt");
  const auto plan_of = [&](const std::string& name, const std::string& what, const std::string& instead) {
    std::string changed = text;
    changed.replace(changed.find(what), what.size(), instead);
    return plan(name, 1, "mbs: 4\nllm: {tp: 1, pp: 1, dp: 1}\n", folder_.write("encoder.txt", changed), kSamples);
  };
  ASSERT_EQ(train(plan_of("whole", "dim b 4", "dim b 4"), config(6, 6), "whole").exit_status, 0);
  ASSERT_EQ(train(plan_of("first", "dim b 4", "dim b 4"), config(3, 3), "parts").exit_status, 0);
  const ProgramRun rest = train(plan_of("longer", "dim b 4", "dim b 16"), config(6, 3), "parts", {"--resume"});
  ASSERT_EQ(rest.exit_status, 0) << rest.err;
  EXPECT_EQ(losses("parts"), losses("whole"));
  const ProgramRun other = train(plan_of("other", "does relu", "does tanh"), config(9, 3), "parts", {"--resume"});
  EXPECT_EQ(other.exit_status, 2);
  EXPECT_NE(other.err.find("of another configuration of it"), std::string::npos) << other.err;
  EXPECT_NE(other.err.find("; does relu' there, 'act = elementwise("), std::string::npos) << other.err;
}

TEST_F(ProgramModelVerbs, PlansSayThatNoOtherSystemReadsPrograms) {
  const ProgramRun planned = run_weft({"plan", "--model", (source_tree() / "docs/manual/encoder.txt").string(),
                                       "--cluster", "local_cpu", "--workload", folder_.write("samples.yaml", kSamples),
                                       "--space", folder_.write("space.yaml", "mbs: 1\nllm: {tp: 1, pp: 1, dp: 8}\n")});
  ASSERT_EQ(planned.exit_status, 0) << planned.err;
  EXPECT_NE(planned.out.find("exports to no other system, since none reads programs\n"), std::string::npos)
      << planned.out;
  EXPECT_EQ(planned.out.find("--for"), std::string::npos) << planned.out;
}

TEST_F(ProgramModelVerbs, WhatDoesNotFitIsRefusedByName) {
  const std::string cluster = "local_cpu";
  const auto plan_of = [&](const std::string& model, const std::string& workload, const std::string& space) {
    return run_weft({"plan", "--model", model, "--cluster", cluster, "--workload",
                     folder_.write("samples.yaml", workload), "--space", folder_.write("space.yaml", space), "--out",
                     (folder_.path() / "refused.json").string()});
  };
  const std::string encoder = (source_tree() / "docs/manual/encoder.txt").string();
  const std::string regression = (source_tree() / "docs/manual/regression.txt").string();
  const ProgramRun rows = plan_of(encoder, "global_batch_samples: 8\nsequence_tokens: 7\n", "llm: {dp: 8}\n");
  EXPECT_EQ(rows.exit_status, 2);
  EXPECT_NE(rows.err.find("sequence_tokens: is 7, but a sample of the program encoder has 6 rows"), std::string::npos)
      << rows.err;
  const ProgramRun stages = plan_of(regression, "global_batch_samples: 32\nsequence_tokens: 1\n", "llm: {pp: 2}\n");
  EXPECT_EQ(stages.exit_status, 2);
  EXPECT_NE(stages.err.find("llm.pp: does not allow 1, but the program marks no layers"), std::string::npos)
      << stages.err;
  const std::string undeclared = folder_.write(
      "undeclared.txt", "weft_program 1 t\ndim b 2\ndim h 4\ninput x [b h]\ny = einsum(x, w) : b h, h h -> b h\n");
  const ProgramRun unknown = run_weft({"describe", "--model", undeclared});
  EXPECT_EQ(unknown.exit_status, 2);
  EXPECT_NE(unknown.err.find("'w' is not there yet"), std::string::npos) << unknown.err;
  const std::string targets =
      folder_.write("targets.txt",
                    "weft_program 1 t\ndim b 2\ndim v 4\ninput x [b v]\ndata t [b v]\nweight w [v v]\n"
                    "y = einsum(x, w) : b i, v i -> b v\nloss = cross_entropy(y, t) : b v, b v -> b\n");
  const ProgramRun loss = run_weft({"describe", "--model", targets});
  EXPECT_EQ(loss.exit_status, 2);
  EXPECT_NE(loss.err.find("line 8: loss: cross_entropy with the rule 'b v, b v -> b' has other targets"),
            std::string::npos)
      << loss.err;
}

}  // namespace
}  // namespace weft::train_test
