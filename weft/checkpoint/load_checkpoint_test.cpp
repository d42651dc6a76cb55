#include "weft/checkpoint/load_checkpoint.h"

#include <random>

#include <gtest/gtest.h>

#include "tests/support/checkpoint/example_run.h"
#include "tests/support/draws.h"
#include "tests/support/weights/example_files.h"
#include "weft/checkpoint/checkpoint_json.h"
#include "weft/checkpoint/crc32c.h"

namespace weft {
namespace {

const std::string kStep = "step-00000003/";

/// A good checkpoint that a test may damage.
class LoadCheckpoint : public testing::Test {
 protected:
  void SetUp() override { save_example(scratch_.path(), {3}); }

  std::string problem() const {
    std::string message = load_problem(scratch_ / "step-00000003");
    const std::string folder = (scratch_ / "step-00000003").string();
    if (message.starts_with(folder)) message = message.substr(folder.size());
    return message;
  }
  Json json() const { return read_document(scratch_ / (kStep + "checkpoint.json"))->root; }
  /// After a change of checkpoint.json that someone made who knows its format.
  std::string problem_with(const std::string& pointer, const Json& value) const {
    const std::string good = scratch_.read(kStep + "checkpoint.json");
    Json changed = json();
    changed[Json::json_pointer(pointer)] = value;
    changed.erase("crc32c");
    std::string text = changed.dump();
    text.pop_back();
    scratch_.write(kStep + "checkpoint.json", sealed(text));
    const std::string message = problem();
    scratch_.write(kStep + "checkpoint.json", good);
    return message;
  }

  ScratchFolder scratch_;
};

TEST_F(LoadCheckpoint, ADamagedFileIsNamed) {
  const std::string name = kStep + "rank-00001.safetensors";
  const std::string good = scratch_.read(name);
  for (const size_t place : {size_t{3}, good.size() / 2, good.size() - 1}) {
    std::string bad = good;
    bad[place] = static_cast<char>(bad[place] ^ 16);
    scratch_.write(name, bad);
    const std::string message = problem();
    expect_start(message, "/rank-00001.safetensors: has the CRC-32C ");
    EXPECT_NE(message.find("The checkpoint is damaged: copy it again, or use an older one."), std::string::npos);
  }
  scratch_.write(name, good);
  EXPECT_EQ(problem(), "");
}

TEST_F(LoadCheckpoint, TruncatedAndMissingFilesAreNamed) {
  const std::string name = kStep + "rank-00001.safetensors";
  const std::string good = scratch_.read(name);
  scratch_.write(name, good.substr(0, good.size() - 100));
  expect_start(problem(), "/rank-00001.safetensors: has ");
  EXPECT_NE(problem().find(" bytes, but checkpoint.json says "), std::string::npos);
  scratch_.write(name, "");
  expect_start(problem(), "/rank-00001.safetensors: has 0 bytes, but checkpoint.json says ");
  std::filesystem::remove(scratch_ / name);
  expect_start(problem(),
               "/rank-00001.safetensors: cannot be read, and checkpoint.json names it: No such file or directory.");
  std::filesystem::remove(scratch_ / (kStep + "checkpoint.json"));
  EXPECT_EQ(problem(), ": is no checkpoint: there is no checkpoint.json in it. Give the path of a step-… folder.");
}

TEST_F(LoadCheckpoint, AFileThatDoesNotHoldItsPartsIsNamed) {
  // As long as it was, and with its checksum, but with another name in it.
  const std::string name = kStep + "rank-00000.safetensors";
  std::string bytes = scratch_.read(name);
  const size_t place = bytes.find("a.weight#0.moment2");
  ASSERT_NE(place, std::string::npos);
  bytes[place] = 'c';
  scratch_.write(name, bytes);
  const std::string checksum = fmt::format("{:08x}", crc32c(bytes_in(bytes)));
  expect_start(problem_with("/files/0/crc32c", checksum),
               "/rank-00000.safetensors: a.weight#0.moment2: is missing. The checkpoint is damaged");
}

TEST_F(LoadCheckpoint, FieldsAreReadStrictly) {
  const auto expect = [&](const std::string& pointer, const Json& value, const std::string& message) {
    expect_start(problem_with(pointer, value), "/checkpoint.json: " + message);
  };
  expect("/weft_checkpoint", 2,
         "weft_checkpoint: is 2, but this program reads versions up to 1. Use the Weft that wrote it, or a newer one.");
  expect("/weft_checkpoint", "1", "weft_checkpoint: is the text '1', a whole number");
  expect("/stepp", 4, "stepp: is not a known field");
  expect("/step", -1, "step: is -1, a whole number from 0");
  expect("/updates", nullptr, "updates: is null, a value is needed");
  expect("/run", 3, "run: is the number 3, a mapping of fields is needed");
  expect("/world_size", 3, "world_size: is 3, but the plan is for 2 ranks");
  expect("/plan/buckets_mb", 1, "plan_hash: is '");
  expect("/plan_hash", "00", "plan_hash: is '00', but the plan below it has ");
  expect("/files", Json::object(), "files: is a mapping, a list of mappings is needed");
  expect("/files/0/name", "../../etc/passwd",
         "files[0].name: is '../../etc/passwd', but rank 0 writes rank-00000.safetensors");
  expect("/files/1/rank", 2, "files[1].name: is 'rank-00001.safetensors', but rank 2 writes");
  expect("/files/0/crc32c", "xyz", "files[0].crc32c: is 'xyz', eight hexadecimal digits are needed");
  expect("/files/0/crc32c", "0000000g", "files[0].crc32c: is '0000000g', eight");
  expect("/files/0/sha", "", "files[0].sha: is not a known field");
  expect("/files/0/parts/0/shape", Json::array(), "files[0].parts[0].shape: must be the sizes of a weight's dims");
  expect("/files/0/parts/0/shape", {4'000'000'000'000, 4'000'000'000'000}, "files[0].parts[0].shape: must be");
  expect("/files/0/parts/0/rows", {0, 65}, "files[0].parts[0].rows[1]: is 65, a whole number from 0 to 64 is needed");
  expect("/files/0/parts/0/rows", {5, 4}, "files[0].parts[0].rows: must be two numbers");
  expect("/files/0/parts/0/columns", {0, 34}, "files[0].parts[0].columns[1]: is 34, a whole number from 0 to 33");
  expect("/files/0/parts/0/elements", {0, 1, 2}, "files[0].parts[0].elements: must be two numbers");
  expect("/files/0/parts/0/elements", {0, 99'999},
         "files[0].parts[0].elements[1]: is 99999, a whole number from 0 to ");
  expect("/files/0/parts/0/trained", 1, "files[0].parts[0].trained: is the number 1, true or false is needed");
  expect("/files/0/parts/0/extra", 1, "files[0].parts[0].extra: is not a known field");
  Json files = json()["files"];
  files[1] = files[0];
  expect("/files", files, "files[1].rank: is 0, as of another file");
  const std::string text = scratch_.read(kStep + "checkpoint.json");
  scratch_.write(kStep + "checkpoint.json", text.substr(0, text.size() / 2));
  EXPECT_NE(problem().find("is not valid JSON"), std::string::npos) << problem();
}

TEST_F(LoadCheckpoint, AnyDamageOfTheJsonIsRefused) {
  const std::string good = scratch_.read(kStep + "checkpoint.json");
  std::mt19937_64 random(23);
  for (int round = 0; round < draws(400); ++round) {
    std::string bad = good;
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t place = random() % bad.size();
      switch (random() % 3) {
        case 0:
          bad[place] = "0123456789-[]{},:\"eE.x"[random() % 22];
          break;
        case 1:
          bad.erase(place, 1 + random() % 40);
          break;
        default:
          bad.insert(place, bad.substr(random() % bad.size(), 1 + random() % 40));
      }
    }
    scratch_.write(kStep + "checkpoint.json", bad);
    if (bad == good) continue;
    EXPECT_FALSE(read_checkpoint(scratch_ / "step-00000003").ok()) << bad;
  }
  scratch_.write(kStep + "checkpoint.json", good + "\n");
  EXPECT_EQ(problem(),
            "/checkpoint.json: crc32c: is not that of the text before it, which was changed after it was written. The "
            "checkpoint is damaged: copy it again, or use an older one.");
}

TEST_F(LoadCheckpoint, WhatIsMissingOrDoesNotFitIsNamed) {
  Json files = json()["files"];
  files.erase(1);
  expect_start(problem_with("/files", files), "/checkpoint.json: a.weight: is not complete: ");
  const std::string folder = (scratch_ / "step-00000003").string();
  expect_start(
      load_problem(folder, 1, 65),
      folder + "/checkpoint.json: a.weight: has the shape [64, 33] in the checkpoint, but [65, 33] in the model");
  Json renamed = json()["files"];
  for (Json& file : renamed) {
    for (Json& part : file["parts"]) {
      if (part["weight"] == "b.bias") part["weight"] = "b.bia";
    }
  }
  expect_start(problem_with("/files", renamed),
               "/checkpoint.json: b.bias: is a weight of the model, but the checkpoint does not have it. Is this the "
               "checkpoint of another model? Did you mean 'b.bia'?");
  Json frozen = json()["files"];
  for (Json& file : frozen) {
    for (Json& part : file["parts"]) part["trained"] = false;
  }
  expect_start(problem_with("/files", frozen),
               "/checkpoint.json: a.weight: is trained now, but was frozen when the checkpoint was saved");
}

TEST_F(LoadCheckpoint, TheTextIsThatOfWhatWasRead) {
  const std::string text = scratch_.read(kStep + "checkpoint.json");
  EXPECT_EQ(checkpoint_to_text(*checkpoint_from(*parse_document(text, "checkpoint.json", Syntax::kJson))), text);
}

TEST_F(LoadCheckpoint, AnotherPlanIsTold) {
  const Checkpoint checkpoint = *read_checkpoint(scratch_ / "step-00000003");
  const auto difference = [&](const std::function<void(Plan&)>& change) {
    Plan plan = example_plan(kExampleRanks);
    change(plan);
    const auto error = check_same_plan(checkpoint, plan);
    return error ? error->field + ": " + error->problem : "";
  };
  EXPECT_EQ(difference([](Plan&) {}), "");
  EXPECT_EQ(difference([](Plan& plan) { plan.world_size = 8; }),
            "world_size: is 2 in the checkpoint's plan, but 8 in this one");
  EXPECT_EQ(difference([](Plan& plan) { plan.modules[0].zero = 3; }),
            "modules.llm.zero: is 1 in the checkpoint's plan, but 3 in this one");
  EXPECT_EQ(difference([](Plan& plan) { plan.workload.frozen = {ModuleKind::kLlm}; }),
            "workload.frozen: is [] in the checkpoint's plan, but [llm] in this one");
  EXPECT_EQ(difference([](Plan& plan) { plan.model.config["rope_theta"] = 7; }).substr(0, 14), "model.hash: is");
  EXPECT_EQ(difference([](Plan& plan) {
              plan.precision.master = Precision::kFp64;
              plan.schedule.name = "1f1b";
            }),
            "schedule.name: is \"gpipe\" in the checkpoint's plan, but \"1f1b\" in this one; 1 more differ");
  // What decides no number of the run.
  EXPECT_EQ(difference([](Plan& plan) {
              plan.predicted.step_time_ms = 1;
              plan.batch_seed = 5;
              plan.buckets_mb = 3;
              plan.overlap_dp = false;
              plan.cluster.name = "another";
              plan.workload.name = "another";
              plan.modules[0].recompute[0][0].add(BlockRecompute::kFull, 1);
              plan.modules[0].zero_keep_gathered = true;
            }),
            "");
}

TEST(Checkpoints, NamesAreReadAsTheyAreWritten) {
  const ScratchFolder scratch;
  for (const char* name : {"step-00000007", "step-123456789", "step-7", "step-0000000x", "step-000000008",
                           "step--0000007", ".saving-step-00000009", "other"})
    std::filesystem::create_directory(scratch / name);
  EXPECT_EQ(*list_checkpoints(scratch.path()), (std::vector<int64_t>{7, 123456789}));
  EXPECT_EQ(*list_checkpoints(scratch / "nothing"), std::vector<int64_t>());
  EXPECT_EQ(*newest_checkpoint(scratch / "nothing"), std::nullopt);
  EXPECT_FALSE(list_checkpoints(scratch.write("file", "")).ok());
}

}  // namespace
}  // namespace weft
