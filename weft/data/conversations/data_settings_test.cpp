#include "weft/data/conversations/data_settings.h"

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "tests/support/weights/example_files.h"
#include "weft/data/conversations/conversation_sets.h"
#include "weft/data/conversations/model_text.h"

namespace weft {
namespace {

const std::string kRecord =
    R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})";

std::string refusal(const std::string& text) {
  const auto settings = read_data_settings(*parse_document(text, "data.json", Syntax::kJson), "/x");
  return settings ? "" : settings.error().message();
}

std::string mindspeed(const std::string& basic) {
  return R"({"dataset_param": {"basic_parameters": )" + basic + "}}";
}

void expect_part(const std::string& found, const std::string& part) {
  EXPECT_NE(found.find(part), std::string::npos) << part << " in: " << found;
}

TEST(DataSettings, EveryFormNamesAFile) {
  expect_part(refusal(R"({"sets": []})"), "data.json: sets: is empty");
  expect_part(refusal(mindspeed(R"({"dataset": []})")), "dataset_param.basic_parameters.dataset: is empty");
  expect_part(refusal(R"({"sets": [{"file": ""}]})"), "sets[0].file: is empty, a path is needed");
  for (const char* files : {R"({"dataset": ""})", R"({"dataset": [""]})", R"({"dataset": "a.json,"})"})
    expect_part(refusal(mindspeed(files)), "dataset_param.basic_parameters.dataset: is empty, a path is needed");
  EXPECT_EQ(refusal(mindspeed(R"({"dataset": "a.json,b.json", "dataset_dir": ""})")), "");
}

TEST(DataSettings, PathsHaveNoZeroBytes) {
  expect_part(refusal(R"({"sets": [{"file": "a.jsonl\u0000.png"}]})"), "sets[0].file: has a zero byte");
  expect_part(refusal(R"({"sets": [{"file": "a", "folder": "b\u0000"}]})"), "sets[0].folder: has a zero byte");
  expect_part(refusal(mindspeed(R"({"dataset": "a\u0000b"})")), "basic_parameters.dataset: has a zero byte");
  expect_part(refusal(mindspeed(R"({"dataset": "a", "dataset_dir": "\u0000"})")), "dataset_dir: has a zero byte");
}

TEST(DataSettings, TheFewestPixelsAreNotAboveTheMost) {
  for (const std::string kind : {"image", "video"}) {
    const std::string most = kind + "_max_pixels", fewest = kind + "_min_pixels";
    const auto with = [&](const char* min, const char* max) {
      return R"({"sets": [{"file": "a"}], ")" + fewest + "\": " + min + ", \"" + most + "\": " + max + "}";
    };
    expect_part(refusal(with("5000000", "1000")), fewest + ": is 5000000, above " + most + ", which is 1000");
    EXPECT_EQ(refusal(with("1000", "1000")), "");
    expect_part(refusal(R"({"dataset_param": {"basic_parameters": {"dataset": "a"}, "preprocess_parameters": {")" +
                        fewest + R"(": 9, ")" + most + R"(": 8}}})"),
                "preprocess_parameters." + fewest);
  }
  EXPECT_EQ(refusal(R"({"sets": [{"file": "a"}], "image_min_pixels": 5000000})"), "") << "the model's own most counts";
}

TEST(DataSettingsFile, AFileIsReadAsWhatItBeginsAs) {
  const ScratchFolder folder;
  const auto outcome = [&](const std::string& name, const std::string& text) {
    const auto settings = read_data_settings_file(folder.write(name, text));
    if (!settings) return settings.error().message();
    return settings->files.front().file == folder / name ? std::string("records") : std::string("settings");
  };
  EXPECT_EQ(outcome("a.json", "[" + kRecord + "]"), "records");
  EXPECT_EQ(outcome("a.json", kRecord + "\n" + kRecord + "\n"), "records");
  EXPECT_EQ(outcome("a.json", "\xef\xbb\xbf\n" + kRecord + "\n{broken\n"), "records");
  EXPECT_EQ(outcome("a.json", "{\"a\": \"\xff\"}\n" + kRecord), "records") << "broken UTF-8 is replaced";
  EXPECT_EQ(outcome("a.jsonl", "{broken\n" + kRecord), "records");
  EXPECT_EQ(outcome("a.json", R"({"sets": [{"file": "b"}]})"), "settings");
  // What is larger than any document is records.
  EXPECT_EQ(outcome("a.json", "{\"a\": \"" + std::string(5 << 20, 'x') + "\"}\n"), "records");
  EXPECT_EQ(outcome("a.json", "[\"" + std::string(5 << 20, 'x') + "\"]"), "records");
  expect_part(outcome("a.json", R"({"sets": [{"file": "b"}, ]})"), "is not valid JSON");
  expect_part(outcome("a.json", "{\n  \"sets\": [\n    {\"file\": \"b\"},\n  ]\n}\n"), "is not valid JSON");
  expect_part(outcome("a.json", "5"), "is the number 5, a mapping of fields is needed");
  expect_part(outcome("a.yaml", "- a\n- b\n"), "is a list, a mapping of fields is needed");
  expect_part(outcome("a.json", kRecord), "is one record");
}

TEST(ModelText, ConfigurationsOfAnotherTypeAreRefused) {
  const ScratchFolder folder;
  std::filesystem::copy_file(source_tree() / "tests/parity/text/qwen2_form/tokenizer.json", folder / "tokenizer.json");
  const auto outcome = [&](const std::string& name, const std::string& text) {
    folder.write(name, text);
    const auto read = read_model_text(folder.path());
    std::filesystem::remove(folder / name);
    return !read ? read.error().message() : read->chat ? "chat" : "no chat";
  };
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    expect_part(outcome(name, "[]"), std::string(name) + ": is a list, a mapping of fields is needed");
    expect_part(outcome(name, "7"), "is the number 7");
    expect_part(outcome(name, R"({"chat_template": 5})"), "chat_template: is the number 5");
    EXPECT_EQ(outcome(name, R"({"chat_template": null})"), "no chat");
    EXPECT_EQ(outcome(name, R"({"chat_template": "x"})"), "chat");
    EXPECT_EQ(outcome(name, R"({"chat_template": [{"name": "tool_use", "template": "x"}]})"), "no chat");
    EXPECT_EQ(outcome(name, R"({"chat_template": [{"name": "default", "template": "x"}]})"), "chat");
  }
}

}  // namespace
}  // namespace weft
