#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/source_tree.h"
#include "weft/base/file.h"
#include "weft/base/json.h"

namespace weft {
namespace {

const std::filesystem::path kParity = source_tree() / "tests/parity";

/// A folder with a tiny model, a small tokenizer whose <|a|> stands for an image, a template and a picture of 37 by 23.
class DescribeData : public testing::Test {
 protected:
  void SetUp() override {
    Json config = Json::parse(*read_file(kParity / "fixtures/qwen2_vl_tied/config.json", 1 << 20));
    const std::string tokenizer = *read_file(kParity / "text/qwen2_form/tokenizer.json", 1 << 22);
    const Json parsed = Json::parse(tokenizer);
    for (const Json& token : parsed["added_tokens"]) {
      if (token["content"] == "<|a|>") config["image_token_id"] = token["id"];
      if (token["content"] == "<|ab|>") config["video_token_id"] = token["id"];
    }
    config["text_config"]["vocab_size"] = 1000;
    config["vision_config"]["patch_size"] = 14;
    config["vision_config"]["temporal_patch_size"] = 2;
    folder_.write("config.json", config.dump());
    folder_.write("tokenizer.json", tokenizer);
    folder_.write("preprocessor_config.json",
                  R"({"patch_size":14,"merge_size":2,"temporal_patch_size":2,"min_pixels":3136,"max_pixels":1003520})");
    folder_.write(
        "chat_template.jinja",
        "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}{% else %}{% for p in "
        "m.content %}{{ p.text if p.type == 'text' else '<|a|>' }}{% endfor %}{% endif %}\n{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}");
    std::filesystem::copy_file(kParity / "media/alpha.png", folder_.path() / "a.png");
    std::string lines;
    for (int i = 0; i < 9; ++i) {
      lines +=
          R"({"images":["a.png"],"messages":[{"role":"user","content":"<image>What?"},{"role":"assistant","content":"A shape."}]})"
          "\n";
    }
    lines +=
        R"({"images":["missing.png"],"messages":[{"role":"user","content":"<image>"},{"role":"assistant","content":"b"}]})"
        "\n";
    data_ = folder_.write("chats.jsonl", lines);
  }

  TemporaryFolder folder_;
  std::string data_;
};

TEST_F(DescribeData, CountsTokensAndPatchesAndWritesAWorkload) {
  const std::string out = (folder_.path() / "workload.json").string();
  const ProgramRun run =
      run_weft({"describe", "--data", data_, "--model", folder_.path().string(), "--out", out, "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const Json json = Json::parse(run.out);
  EXPECT_EQ(json["records"], 10);
  EXPECT_EQ(json["skips"]["skipped"], 1);
  // By hand: below min_pixels, the picture is resized to 84 by 56, six by four patches, and four of them are a token.
  EXPECT_EQ(json["distributions"]["patches_per_image"]["max"], 24);
  EXPECT_EQ(json["distributions"]["sequence_tokens"]["max"].get<double>() -
                json["distributions"]["text_tokens"]["max"].get<double>(),
            6);
  EXPECT_EQ(json["workload"], Json::parse(*read_file(out, 1 << 20)));
  const ProgramRun again = run_weft({"describe", "--model", folder_.path().string(), "--workload", out});
  EXPECT_EQ(again.exit_status, 0) << "the workload suits the model: " << again.err;
  const ProgramRun text = run_weft({"describe", "--data", data_, "--model", folder_.path().string()});
  EXPECT_EQ(text.exit_status, 0) << text.err;
  EXPECT_NE(text.out.find("10 records, 10 looked at, 1 skipped"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("missing.png"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("chats.jsonl, record 9: "), std::string::npos) << "whose file it is\n" << text.out;
}

TEST_F(DescribeData, PackedRowsAreTheSamplesOfTheWorkload) {
  const std::string settings =
                        folder_.write("packed.yaml", "sets: [{file: chats.jsonl}]\ncutoff_tokens: 80\npack: true"),
                    out = (folder_.path() / "rows.json").string();
  const ProgramRun plain = run_weft({"describe", "--data", data_, "--model", folder_.path().string(), "--json"});
  const double tokens = Json::parse(plain.out)["distributions"]["sequence_tokens"]["max"].get<double>();
  const ProgramRun run =
      run_weft({"describe", "--data", settings, "--model", folder_.path().string(), "--out", out, "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  // Nine samples of one length, as many in a row as fit.
  const double fit = std::floor(80 / tokens), rows = std::ceil(9 / fit);
  ASSERT_GE(fit, 2);
  const Json json = Json::parse(run.out);
  EXPECT_EQ(json["packed"]["row_tokens"], 80);
  EXPECT_NEAR(json["packed"]["samples_per_row"].get<double>(), 9 / rows, 1e-9);
  EXPECT_NEAR(json["packed"]["fill_share"].get<double>(), 9 * tokens / (80 * rows), 1e-9);
  EXPECT_EQ(json["workload"]["sequence_tokens"].get<double>(), std::round(9 * tokens / rows));
  EXPECT_EQ(json["workload"]["patches_per_image"], 24);
  // Attention within samples of one length: pairs of all samples among those of whole rows.
  const double full = std::floor(9 / fit), rest = 9 - full * fit;
  EXPECT_NEAR(json["workload"]["sequences_per_sample"].get<double>(), (full * fit * fit + rest * rest) / 9, 0.006);
  const ProgramRun again = run_weft({"describe", "--model", folder_.path().string(), "--workload", out});
  EXPECT_EQ(again.exit_status, 0) << "the workload suits the model: " << again.err;
  const ProgramRun text = run_weft({"describe", "--data", settings, "--model", folder_.path().string()});
  EXPECT_NE(text.out.find("packed into rows of 80 tokens: "), std::string::npos) << text.out;
}

TEST_F(DescribeData, SetsAreMixedAsTrainingMixesThem) {
  const auto lines = [](int count, const std::string& answer) {
    std::string text;
    for (int i = 0; i < count; ++i)
      text += R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":")" + answer + "\"}]}\n";
    return text;
  };
  const std::string few = folder_.write("few.jsonl", lines(30, "A. A. A. A. A. A. A. A.")),
                    many = folder_.write("many.jsonl", lines(3000, "A."));
  const auto mean = [&](const std::string& settings) {
    const ProgramRun run = run_weft(
        {"describe", "--data", folder_.write("mix.yaml", settings), "--model", folder_.path().string(), "--json"});
    EXPECT_EQ(run.exit_status, 0) << run.err;
    return run.exit_status == 0 ? Json::parse(run.out)["distributions"]["sequence_tokens"]["mean"].get<double>() : 0;
  };
  const double long_ones = mean("sets: [{file: few.jsonl}]"), short_ones = mean("sets: [{file: many.jsonl}]");
  ASSERT_GT(long_ones, short_ones + 5);
  EXPECT_NEAR(mean("sets: [{file: few.jsonl}, {file: many.jsonl}]"), (long_ones + 100 * short_ones) / 101, 1e-9);
  EXPECT_NEAR(mean("sets: [{file: few.jsonl, weight: 3}, {file: many.jsonl, weight: 1}]"),
              (3 * long_ones + short_ones) / 4, 0.02 * (long_ones - short_ones));
}

TEST_F(DescribeData, SamplesThatTrainingWouldSkipAsTooLongAreSkipped) {
  Json config = Json::parse(*read_file(folder_.path() / "config.json", 1 << 20));
  config["text_config"]["max_position_embeddings"] = 12;
  folder_.write("config.json", config.dump());
  const ProgramRun run = run_weft({"describe", "--data", data_, "--model", folder_.path().string()});
  EXPECT_EQ(run.exit_status, 2);
  EXPECT_NE(run.err.find("tokens, but the model's max_position_embeddings is 12"), std::string::npos) << run.err;
}

TEST_F(DescribeData, WrongInputIsRefusedWithTheReason) {
  const auto refused = [&](const std::vector<std::string>& arguments) {
    const ProgramRun run = run_weft(arguments);
    EXPECT_EQ(run.exit_status, 2) << run.err;
    EXPECT_EQ(run.out, "");
    return run.err;
  };
  const std::string model = folder_.path().string();
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(refused({"describe", "--data", data_}), "--model"));
  EXPECT_TRUE(has(refused({"describe", "--data", data_, "--model", "qwen2-vl-72b"}), "folder"));
  EXPECT_TRUE(has(refused({"describe", "--data", data_ + "x", "--model", model}), "cannot be read"));
  EXPECT_TRUE(has(refused({"describe", "--model", model, "--out", model + "/x.json"}), "--data"));
  EXPECT_TRUE(has(refused({"describe", "--data", folder_.write("one.json", R"({"messages": []})"), "--model", model}),
                  "is one record, a list of them is needed"));
  EXPECT_TRUE(has(refused({"describe", "--data", folder_.write("empty.jsonl", ""), "--model", model}), "empty"));
  EXPECT_TRUE(has(refused({"describe", "--data", folder_.write("odd.jsonl", "{\"x\":1}\n"), "--model", model}),
                  "no sample that can be used"));
  Json config = Json::parse(*read_file(folder_.path() / "config.json", 1 << 20));
  config["text_config"]["vocab_size"] = 110;
  folder_.write("config.json", config.dump());
  EXPECT_TRUE(has(refused({"describe", "--data", data_, "--model", model}), "another model's"));
  folder_.write("chat_template.jinja", "{% include 'x' %}");
  EXPECT_TRUE(has(refused({"describe", "--data", data_, "--model", model}), "'include'"));
}

}  // namespace
}  // namespace weft
