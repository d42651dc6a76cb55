#include "weft/profile/profile.h"

#include <functional>

#include <gtest/gtest.h>

namespace weft {
namespace {

Json example() {
  return Json::parse(
      R"({"weft_profile": 3, "device": "A100", "software": "weft", "date": "2026-01-02", "model": "m", "model_hash": "ab", "precision": "fp16",
    "action_ms": 0.25, "step_ms": 3, "reserved_bytes": 5e8,
    "blocks": [{"module": "vision", "block": "layer", "tp": 2, "ep": 1, "cp": 4, "cp_ulysses": 2, "sequence_parallel": true,
                "experts_over_tp": true, "attention": "unfused", "busy_ranks": 2, "tokens": 1024, "sequence_tokens": 256,
                "forward_ms": 1.5, "backward_input_ms": 2, "backward_weight_ms": 0, "attention_ms": 0.5, "kept_bytes": 1e6,
                "forward_peak_bytes": 2e6, "backward_peak_bytes": 3e6, "runs": 9, "spread_percent": 1.5}],
    "operators": [{"operator": "norm(rows, weight) : b h, h -> b h", "parts": "8x16, 16 -> 8x16", "inside": "h 2",
                   "busy_ranks": 2, "forward_ms": 0.5, "backward_input_ms": 1, "backward_weight_ms": 0, "runs": 7,
                   "spread_percent": 1}],
    "updates": [{"busy_ranks": 2, "elements": 1e6, "ms": 0.5, "runs": 9, "spread_percent": 0.5}],
    "links": [{"link": "between_nodes", "collective": "all_gather", "ranks": 4, "ranks_per_node": 1, "bytes": 1e9, "ms": 30,
               "runs": 5, "spread_percent": 2}]})");
}

std::string finding(const Json& json) {
  const Result<Profile> profile = read_profile({.source = "p.json", .root = json});
  return profile.ok() ? "" : profile.error().message();
}

TEST(Profile, WhatIsWrittenIsReadBackTheSame) {
  const Result<Profile> profile = read_profile({.source = "p.json", .root = example()});
  ASSERT_TRUE(profile.ok()) << profile.error().message();
  EXPECT_EQ(profile->blocks.front().shape.module, ModuleKind::kVision);
  EXPECT_EQ(profile->blocks.front().shape.attention, AttentionKernel::kUnfused);
  EXPECT_TRUE(profile->links.front().is_between_nodes);
  EXPECT_EQ(to_json(*profile), example());
}

TEST(Profile, ListsMayBeLeftOutAndDefaultsHold) {
  Json json = example();
  json.erase("links");
  json.erase("precision");
  for (const char* key : {"tp", "ep", "sequence_parallel", "attention"}) json["blocks"][0].erase(key);
  const Result<Profile> profile = read_profile({.source = "p.json", .root = json});
  ASSERT_TRUE(profile.ok()) << profile.error().message();
  EXPECT_EQ(profile->precision, Precision::kBf16);
  EXPECT_EQ(profile->blocks.front().shape.tp, 1);
  EXPECT_EQ(profile->blocks.front().shape.attention, AttentionKernel::kFused);
}

TEST(Profile, VersionOneIsRead) {
  Json json = example();
  json["weft_profile"] = 1;
  for (const char* key : {"software", "date", "action_ms", "step_ms", "reserved_bytes", "updates", "operators"})
    json.erase(key);
  json["blocks"][0].erase("busy_ranks");
  const Result<Profile> profile = read_profile({.source = "p.json", .root = json});
  ASSERT_TRUE(profile.ok()) << profile.error().message();
  EXPECT_EQ(profile->blocks.front().shape.busy_ranks, 1);
  EXPECT_TRUE(profile->updates.empty());
}

TEST(Profile, MistakesNameTheMeasurementAndItsField) {
  const auto changed = [](const std::function<void(Json&)>& change) {
    Json json = example();
    change(json);
    return finding(json);
  };
  const auto expect_start = [](const std::string& text, const std::string& start) {
    EXPECT_EQ(text.substr(0, start.size()), start);
  };
  expect_start(changed([](Json& j) { j["weft_profile"] = 4; }), "p.json: weft_profile: is 4");
  expect_start(changed([](Json& j) { j.erase("device"); }), "p.json: device: is missing");
  expect_start(changed([](Json& j) { j["blocks"] = 3; }), "p.json: blocks: must be a list of measurements");
  expect_start(changed([](Json& j) { j["blocks"][0]["module"] = "text"; }),
               "p.json: blocks[0].module: is the text 'text'");
  expect_start(changed([](Json& j) { j["blocks"][0]["forward_ms"] = 0; }), "p.json: blocks[0].forward_ms: is ");
  expect_start(changed([](Json& j) { j["blocks"][0]["sequence_tokens"] = 2048; }),
               "p.json: blocks[0].sequence_tokens: is 2048, but there are only 1024 tokens");
  expect_start(changed([](Json& j) { j["blocks"][0]["cp_ulysses"] = 3; }),
               "p.json: blocks[0].cp_ulysses: is 3, which does not divide cp 4");
  expect_start(changed([](Json& j) { j["operators"][0]["parts"] = "8x16 16"; }),
               "p.json: operators[0].parts: is '8x16 16', lengths are written like '2x128x512, 704x512 -> 2x128x704'");
  expect_start(changed([](Json& j) { j["operators"][0]["forward_ms"] = 0; }), "p.json: operators[0].forward_ms: is ");
  expect_start(changed([](Json& j) { j["updates"][0]["elements"] = 0; }), "p.json: updates[0].elements: is ");
  expect_start(changed([](Json& j) { j["blocks"][0]["tokns"] = 1; }), "p.json: blocks[0].tokns: ");
  expect_start(changed([](Json& j) { j["blocks"][0] = 7; }), "p.json: blocks[0]");
  expect_start(changed([](Json& j) { j["links"][0]["ranks"] = 1; }), "p.json: links[0].ranks: is 1");
  expect_start(changed([](Json& j) { j["links"][0]["collective"] = "broadcast"; }),
               "p.json: links[0].collective: is the text 'broadcast'");
  expect_start(changed([](Json& j) { j["link"] = 1; }), "p.json: link: ");
}

}  // namespace
}  // namespace weft
