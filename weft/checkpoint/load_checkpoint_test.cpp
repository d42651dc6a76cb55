#include "weft/checkpoint/load_checkpoint.h"

#include <cctype>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/checkpoint/example_run.h"
#include "tests/support/draws.h"
#include "tests/support/weights/example_files.h"
#include "weft/checkpoint/checkpoint_json.h"
#include "weft/checkpoint/crc32c.h"
#include "weft/weights/safetensors_file.h"
#include "weft/weights/safetensors_header.h"

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
    expect_start(message, "/rank-00001.safetensors: ");
    EXPECT_NE(message.find(" of the file have the CRC-32C "), std::string::npos) << message;
    EXPECT_NE(message.find("The checkpoint is damaged: copy it again, or use an older one."), std::string::npos);
    // Behind the header the weight is named, too.
    if (place > good.size() / 3) {
      EXPECT_NE(message.find(".weight#0."), std::string::npos) << message;
    }
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
  std::string checksums;
  for (size_t begin = 0; begin < bytes.size(); begin += kExampleChunk)
    checksums += fmt::format("{:08x}", crc32c(bytes_in(bytes.substr(begin, kExampleChunk))));
  expect_start(problem_with("/files/0/chunks", checksums),
               "/rank-00000.safetensors: a.weight#0.moment2: is missing. The checkpoint is damaged");
}

TEST_F(LoadCheckpoint, FieldsAreReadStrictly) {
  const auto expect = [&](const std::string& pointer, const Json& value, const std::string& message) {
    expect_start(problem_with(pointer, value), "/checkpoint.json: " + message);
  };
  expect("/weft_checkpoint", 3,
         "weft_checkpoint: is 3, but this program reads versions up to 2. Use the Weft that wrote it, or a newer one.");
  expect("/weft_checkpoint", "1", "weft_checkpoint: is the text '1', a whole number");
  expect("/stepp", 4, "stepp: is not a known field");
  expect("/step", -1, "step: is -1, a whole number from 0");
  expect("/updates", nullptr, "updates: is null, a value is needed");
  expect("/updates", 4, "updates: is 4, but the checkpoint is of step 3. The file was changed");
  expect("/files/1/parts/0/updates", 1'000'000'000, "updates of ");
  expect("/run", 3, "run: is the number 3, a mapping of fields is needed");
  expect("/world_size", 3, "world_size: is 3, but the plan is for 2 ranks");
  expect("/plan/buckets_mb", 1, "plan_hash: is '");
  expect("/plan_hash", "00", "plan_hash: is '00', but the plan below it has ");
  expect("/files", Json::object(), "files: is a mapping, a list of mappings is needed");
  expect("/files/0/name", "../../etc/passwd",
         "files[0].name: is '../../etc/passwd', but rank 0 writes rank-00000.safetensors");
  expect("/files/1/rank", 2, "files[1].name: is 'rank-00001.safetensors', but rank 2 writes");
  expect("/files/0/chunks", "xyz", "files[0].chunks: has 3 digits, but ");
  std::string chunks = json()["files"][0]["chunks"];
  chunks[7] = 'g';
  expect("/files/0/chunks", chunks, "files[0].chunks: has '" + chunks.substr(0, 8) + "' at place 0, eight");
  expect("/files/0/chunk_bytes", 0, "files[0].chunk_bytes: is 0, a whole number from 1");
  expect("/files/0/chunk_bytes", 100, "files[0].chunks: has ");
  expect("/files/0/bytes", int64_t{1} << 42, "files[0].chunks: has ");
  // Beyond these numbers what is computed of them would not fit in 64 bits.
  expect("/files/0/bytes", INT64_MAX / 8, "files[0].bytes: is 1152921504606846975, a whole number from 1 to ");
  expect("/files/0/bytes", std::ldexp(1.0, 60), "files[0].bytes: is the number 1.152921504606847e+18, a whole");
  expect("/files/0/chunk_bytes", INT64_MAX / 8, "files[0].chunk_bytes: is 1152921504606846975, a whole number from 1");
  expect("/step", 1'000'000'001, "step: is 1000000001, a whole number from 0 to 1000000000 is needed");
  expect("/updates", 1'000'000'001, "updates: is 1000000001, a whole number from 0 to 1000000000 is needed");
  expect("/samples", 300'000'001, "samples: is 300000001, a whole number from 0 to 300000000 is needed");
  expect("/plan_hash", "", "plan_hash: is '', but the plan below it has ");
  expect("/files/0/name", "", "files[0].name: is '', but rank 0 writes rank-00000.safetensors");
  expect("/files/0/parts/0/shape", {0, 33}, "files[0].parts[0].shape[0]: is 0, a whole number from 1");
  expect("/files/0/parts/0/shape", {1, int64_t{1} << 59, int64_t{1} << 59}, "files[0].parts[0].shape: must be");
  expect("/samples", -5, "samples: is -5, a whole number from 0");
  expect("/first_batch_samples", 0, "first_batch_samples: is 0, a whole number from 1");
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

/// A number, text or list that a forger might put somewhere.
Json forged(std::mt19937_64& random, const Json& before) {
  switch (random() % 8) {
    case 0:
      return static_cast<int64_t>(random() % 200) - 50;
    case 1:
      return INT64_MAX / (1 + static_cast<int64_t>(random() % 9));
    case 2:
      return Json::array({random() % 70, random() % 70});
    case 3:
      return std::string("../") + std::to_string(random());
    case 4:
      return nullptr;
    case 5:
      return before.is_number_integer() ? Json(before.get<int64_t>() + (random() % 2 == 0 ? 1 : -1)) : Json(true);
    case 6:
      return Json::array();
    default:
      return before.is_string() ? Json(before.get<std::string>() + "0") : Json(0);
  }
}

// Someone who knows the format and seals what was changed can make another checkpoint, but nothing else: it is refused,
// or loads, and no reader goes astray. WEFT_FUZZ_S: for so many seconds.
TEST_F(LoadCheckpoint, AForgedDescriptionIsRefusedOrLoads) {
  const std::string good = scratch_.read(kStep + "checkpoint.json");
  const char* seconds = std::getenv("WEFT_FUZZ_S");
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::seconds(seconds != nullptr ? std::stoi(seconds) : 0);
  const uint64_t seed = seconds != nullptr ? std::random_device{}() : 31;
  std::mt19937_64 random(seed);
  int num_refused = 0;
  for (int round = 0; round < draws(60) || std::chrono::steady_clock::now() < until; ++round) {
    Json changed = Json::parse(good);
    changed.erase("crc32c");
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      // Down to somewhere, mostly into the files' entries.
      Json* here = random() % 4 == 0 ? &changed : &changed["files"];
      while (here->is_structured() && !here->empty() && random() % 7 != 0) {
        const auto skipped = static_cast<int64_t>(random() % here->size());
        here = &*std::next(here->begin(), skipped);
      }
      *here = forged(random, *here);
      if (!changed.is_object() || !changed.contains("files")) break;
    }
    if (!changed.is_object() || changed.empty()) continue;
    std::string text = changed.dump();
    text.pop_back();
    scratch_.write(kStep + "checkpoint.json", sealed(text));
    const std::string message = problem();
    num_refused += message.empty() ? 0 : 1;
  }
  EXPECT_GT(num_refused, 20) << "seed " << seed;
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
  Json more = json()["files"];
  Json part = more[0]["parts"][0];
  part["weight"] = "c.weight";
  more[0]["parts"].push_back(part);
  expect_start(problem_with("/files", more),
               "/checkpoint.json: c.weight: is in the checkpoint, but it is no weight of the model. Is this the");
  Json aged = json()["files"];
  for (Json& part_of : aged[0]["parts"]) part_of["updates"] = 1;
  expect_start(problem_with("/files", aged),
               "/checkpoint.json: a.weight: has parts whose moments are of different numbers of updates");
}

// A shape without elements among others of the weight ended a run in a division by zero.
TEST_F(LoadCheckpoint, PartsOfAWeightThatContradictEachOtherAreNamed) {
  Json files = json()["files"];
  Json part = files[1]["parts"][0];
  const auto weight = part["weight"].get<std::string>();
  part["shape"] = {4, 1};
  part["rows"] = {0, 4};
  part["elements"] = {0, 0};
  part.erase("columns");
  files[1]["parts"].push_back(part);
  expect_start(problem_with("/files", files), fmt::format("/checkpoint.json: shape of {} in rank-00001.safetensors: is "
                                                          "[4, 1], but another part of the weight has [64, 33]. The "
                                                          "file was changed after it was written",
                                                          weight));
  // What is missing is compared with every part: the time is that of their square.
  files = json()["files"];
  for (size_t count = 0; count <= 1u << 14; ++count) files[1]["parts"].push_back(files[1]["parts"][0]);
  expect_start(
      problem_with("/files", files),
      fmt::format("/checkpoint.json: parts of {} in rank-00001.safetensors: are more than 16384, which no rank "
                  "writes",
                  weight));
}

// What was frozen has no moments: they begin at zero, with a count of their own.
TEST_F(LoadCheckpoint, AWeightThatIsThawedBeginsAnew) {
  const Checkpoint checkpoint = *read_checkpoint(scratch_ / "step-00000003");
  on_thread_ranks(kExampleRanks, [&](World& world) {
    std::vector<StageParameter> parameters = {{example_parameter("a.weight", {64, 33}, true)},
                                              {example_parameter("b.bias", {7})},
                                              {example_parameter("frozen.weight", {5, 5})}};
    StageOptimizer optimizer(std::move(parameters), world.all(), example_options(1));
    StageOptimizer* const all[] = {&optimizer};
    const auto error = load_checkpoint(checkpoint, world.all(), all);
    WEFT_CHECK(!error, "{}", error->message());
    EXPECT_EQ(optimizer.step(), 3);
    for (const OwnedPart& part : optimizer.owned_parts()) {
      if (part.index > 0) {
        EXPECT_EQ(optimizer.updates_of(part.index), part.index == 1 ? 3 : 0);
      }
      EXPECT_TRUE(part.state.master.eq(3).all().item<bool>());
      if (!part.state.moment1.defined()) continue;
      const double moment = part.index == 1 ? 3.25 : 0;
      EXPECT_TRUE(part.state.moment1.eq(moment).all().item<bool>());
    }
    // Saved again it keeps its own count.
    const auto saved = save_checkpoint(
        {.checkpoints = scratch_ / "again", .step = 4, .plan = example_plan(kExampleRanks)}, world.all(), all);
    WEFT_CHECK(saved.ok(), "{}", saved.error().message());
    const auto again = load_checkpoint(*read_checkpoint(scratch_ / "again/step-00000004"), world.all(), all);
    WEFT_CHECK(!again, "{}", again->message());
    for (const OwnedPart& part : optimizer.owned_parts()) {
      if (part.index > 0) {
        EXPECT_EQ(optimizer.updates_of(part.index), part.index == 1 ? 3 : 0);
      }
    }
  });
}

// As the first version of the format was written.
TEST_F(LoadCheckpoint, TheFirstVersionIsRead) {
  Json changed = json();
  changed["weft_checkpoint"] = 1;
  for (const char* key : {"crc32c", "samples", "first_batch_samples"}) changed.erase(key);
  for (Json& file : changed["files"]) {
    const std::string bytes = scratch_.read(kStep + file["name"].get<std::string>());
    file["crc32c"] = fmt::format("{:08x}", crc32c(bytes_in(bytes)));
    file.erase("chunks");
    file.erase("chunk_bytes");
  }
  std::string text = changed.dump();
  text.pop_back();
  scratch_.write(kStep + "checkpoint.json", sealed(text));
  EXPECT_EQ(problem(), "");
  const Checkpoint checkpoint = *read_checkpoint(scratch_ / "step-00000003");
  EXPECT_EQ(checkpoint.first_batch_samples, checkpoint.plan.workload.global_batch_samples);
  EXPECT_EQ(checkpoint.samples, 3 * checkpoint.first_batch_samples);
  std::string bytes = scratch_.read(kStep + "rank-00000.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  scratch_.write(kStep + "rank-00000.safetensors", bytes);
  EXPECT_NE(problem().find("have the CRC-32C"), std::string::npos) << problem();
}

// A flipped bit anywhere, a file that is cut off anywhere: never another state.
TEST_F(LoadCheckpoint, NoDamageIsLoaded) {
  save_example(scratch_.path(), {2});
  std::mt19937_64 random(29);
  for (const char* name : {"checkpoint.json", "rank-00000.safetensors", "rank-00001.safetensors"}) {
    const std::string good = scratch_.read(kStep + name);
    for (int round = 0; round < draws(40); ++round) {
      std::string bad = good;
      const size_t place = random() % bad.size();
      if (round % 8 == 7) {
        bad.resize(place);
      } else {
        bad[place] = static_cast<char>(bad[place] ^ (1 << random() % 8));
      }
      scratch_.write(kStep + name, bad);
      const std::string message = problem();
      EXPECT_NE(message, "") << name << " at " << place;
      EXPECT_NE(message, "loads as something else") << name << " at " << place;
      const auto read = read_checkpoint(scratch_ / "step-00000003");
      EXPECT_TRUE(!read || verify_checkpoint(*read)) << name << " at " << place;
    }
    EXPECT_EQ(good_checkpoint_beside(scratch_ / "step-00000003"), scratch_ / "step-00000002");
    scratch_.write(kStep + name, good);
  }
  EXPECT_EQ(problem(), "");
}

/// The middle of every word of a JSON text: names, texts, numbers and signs.
std::vector<size_t> words_of(const std::string& text) {
  std::vector<size_t> places;
  for (size_t begin = 0; begin < text.size();) {
    const bool is_text = text[begin] == '"';
    size_t end = begin + 1;
    if (is_text) {
      while (text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      ++end;
    } else if (std::isalnum(static_cast<unsigned char>(text[begin])) != 0 || text[begin] == '-') {
      end = std::min(text.size(), text.find_first_of(",:]} \n", begin));
    }
    if (std::isspace(static_cast<unsigned char>(text[begin])) == 0) places.push_back((begin + end) / 2);
    begin = end;
  }
  return places;
}

/// Every byte of the header's length, begin, middle and end of its text, and of every tensor.
std::vector<size_t> regions_of(const std::string& file) {
  const auto content = read_safetensors(bytes_in(file), "a rank's file");
  WEFT_CHECK(content.ok(), "{}", content.error().message());
  std::vector<size_t> places;
  constexpr auto kLength = static_cast<size_t>(kHeaderLengthBytes);
  for (size_t i = 0; i < kLength; ++i) places.push_back(i);
  size_t data = file.size();
  for (const WeightEntry& entry : content->entries) {
    const auto begin = static_cast<size_t>(entry.bytes.data() - bytes_in(file).data());
    data = std::min(data, begin);
    for (const size_t place : {begin, begin + entry.bytes.size() / 2, begin + entry.bytes.size() - 1})
      places.push_back(place);
  }
  for (const size_t place : {kLength, data / 2, data - 1}) places.push_back(place);
  return places;
}

// By construction: every bit of a byte in every region of every file is told, and by whoever checks all.
TEST_F(LoadCheckpoint, AFlippedBitInEveryRegionOfEveryFileIsTold) {
  save_example(scratch_.path(), {2});
  const std::string description = scratch_.read(kStep + "checkpoint.json");
  const std::vector<size_t> words = words_of(description);
  ASSERT_GT(words.size(), 500u);
  int turn = 0;
  const auto with_flipped = [&](const std::string& good, size_t place) {
    std::string bad = good;
    bad[place] = static_cast<char>(bad[place] ^ (1 << turn++ % 8));
    return bad;
  };
  for (const size_t place : words) {
    scratch_.write(kStep + "checkpoint.json", with_flipped(description, place));
    const auto read = read_checkpoint(scratch_ / "step-00000003");
    ASSERT_FALSE(read.ok()) << place << ": " << description.substr(place, 20);
    EXPECT_NE(read.error().message().find("step-00000003/checkpoint.json: "), std::string::npos)
        << read.error().message();
  }
  EXPECT_EQ(good_checkpoint_beside(scratch_ / "step-00000003"), scratch_ / "step-00000002");
  scratch_.write(kStep + "checkpoint.json", description);
  const Checkpoint checkpoint = *read_checkpoint(scratch_ / "step-00000003");
  for (const char* name : {"rank-00000.safetensors", "rank-00001.safetensors"}) {
    const std::string good = scratch_.read(kStep + name);
    const std::vector<size_t> places = regions_of(good);
    ASSERT_GE(places.size(), 20u);
    for (const size_t place : places) {
      scratch_.write(kStep + name, with_flipped(good, place));
      const auto found = verify_checkpoint(checkpoint);
      ASSERT_TRUE(found) << name << " at " << place;
      for (const std::string& message : {found->message(), load_problem(scratch_ / "step-00000003")}) {
        EXPECT_NE(message.find(kStep + name + ": "), std::string::npos) << message << " at " << place;
        EXPECT_NE(message.find(" have the CRC-32C "), std::string::npos) << message << " at " << place;
      }
    }
    EXPECT_EQ(good_checkpoint_beside(scratch_ / "step-00000003"), scratch_ / "step-00000002");
    scratch_.write(kStep + name, good);
  }
  EXPECT_EQ(problem(), "");
}

TEST_F(LoadCheckpoint, TheTextIsThatOfWhatWasRead) {
  const std::string text = scratch_.read(kStep + "checkpoint.json");
  EXPECT_EQ(checkpoint_to_text(*checkpoint_from(*parse_document(text, "checkpoint.json", Syntax::kJson))), text);
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
