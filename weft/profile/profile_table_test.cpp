#include "weft/profile/profile_table.h"

#include <filesystem>

#include <gtest/gtest.h>

namespace weft::profile_table_test {
namespace {

TEST(ProfileTable, ReadsBlocksLinksAndUpdatesByTheFieldsOfAProfile) {
  const Result<Profile> table = parse_profile_table(
      "\xEF\xBB\xBFmodule,block,tp,sequence_parallel,tokens,sequence_tokens,forward_ms,backward_input_ms,"
      "backward_weight_ms,link,collective,ranks,bytes,elements,ms,runs,spread_percent\r\n"
      "llm,layer,2,true,8192,4096,7.1,8.0,6.4,,,,,,,20,0.8\r\n"
      "vision,\"layer, full attention\",,,1024,1024,1e-1,2,3,,,,,,,,\r\n"
      "\r\n"
      ",,,,,,,,,within_node,all_reduce,8,1e9,,5.2,,\r\n"
      ",,,,,,,,,,,,,1000000,0.5,,",
      "t.csv");
  ASSERT_TRUE(table.ok()) << table.error().message();
  ASSERT_EQ(table->blocks.size(), 2u);
  const BlockMeasurement& layer = table->blocks[0];
  EXPECT_EQ(
      layer.shape,
      (BlockShape{.block = "layer", .tp = 2, .sequence_parallel = true, .tokens = 8192, .sequence_tokens = 4096}));
  EXPECT_EQ(layer.forward_ms, 7.1);
  EXPECT_EQ(layer.backward_weight_ms, 6.4);
  EXPECT_EQ(layer.sureness, (Sureness{.runs = 20, .spread_percent = 0.8}));
  EXPECT_EQ(table->blocks[1].shape.module, ModuleKind::kVision);
  EXPECT_EQ(table->blocks[1].shape.block, "layer, full attention");
  ASSERT_EQ(table->links.size(), 1u);
  EXPECT_EQ(table->links[0].ranks, 8);
  EXPECT_EQ(table->links[0].bytes, 1e9);
  ASSERT_EQ(table->updates.size(), 1u);
  EXPECT_EQ(table->updates[0].ms, 0.5);
}

// As other programs read such tables: a quote that does not stand around a whole cell means nothing.
TEST(ProfileTable, QuotesStandAroundWholeCells) {
  const std::string header = "module,block,tokens,sequence_tokens,forward_ms,backward_input_ms,backward_weight_ms\n";
  const auto block_of = [&](const std::string& row) {
    const Result<Profile> table = parse_profile_table(header + row + "\n", "t.csv");
    return table.ok() ? table->blocks.front().shape.block : table.error().message();
  };
  EXPECT_EQ(block_of(R"(llm,"a ""b"", c",64,64,1,1,1)"), R"(a "b", c)");
  EXPECT_EQ(block_of(R"( llm , "a" ,64,64,1,1,"1")"), "a");
  const std::string problem =
      "t.csv: line 2: has a quote inside a cell, or one that is not closed. Put quotes around the whole cell, and "
      "write a quote in it as two.";
  for (const char* row : {R"(llm,a,64,64,1"2",1,1)", R"(llm,a,64,64,"1"2,1,1)", R"(llm,a,64,64,1,1,"1)",
                          R"(llm,"a,64,64,1,1,1)", R"(llm,a",64,64,1,1,1)"})
    EXPECT_EQ(block_of(row), problem) << row;
}

// Its reader would refuse the file.
TEST(ProfileTable, AProfileThatIsTooLargeToBeReadIsNotWritten) {
  Profile profile{.device = "cpu", .model = "m", .model_hash = "0"};
  BlockMeasurement block{.forward_ms = 1};
  block.shape.block = std::string(1000, 'x');
  profile.blocks.assign(60'000, block);
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "weft_large_profile.json";
  const auto error = write_profile_file(path, profile);
  ASSERT_TRUE(error);
  EXPECT_NE(error->message().find("67108864 and 5000000 are read. Measure fewer"), std::string::npos)
      << error->message();
  EXPECT_FALSE(std::filesystem::exists(path));
  profile.blocks.resize(1);
  EXPECT_FALSE(write_profile_file(path, profile));
  std::filesystem::remove(path);
}

// Half a step that no clock can have measured must not make a file that cannot be read.
TEST(ProfileTable, TimesAreBroughtIntoTheRangesThatAreRead) {
  Profile profile{.device = "cpu", .model = "m", .model_hash = "0", .step_ms = 1e9};
  profile.blocks.push_back({.shape = {.block = "layer", .tokens = 4, .sequence_tokens = 4},
                            .forward_ms = 0,
                            .backward_input_ms = -1e9,
                            .backward_weight_ms = 1e9,
                            .sureness = {.runs = 3, .spread_percent = 1e12}});
  profile.updates.push_back({.elements = 1, .ms = 1e12});
  EXPECT_FALSE(read_profile({.source = "p", .root = to_json(profile)}).ok());
  keep_in_range(profile);
  const Result<Profile> again = read_profile({.source = "p", .root = to_json(profile)});
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(again->step_ms, 1e7);
}

TEST(ProfileTable, SaysInWhichLineAndColumnSomethingIsWrong) {
  const std::string header =
      "module,block,tokens,sequence_tokens,forward_ms,backward_input_ms,backward_weight_ms,link\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "t.csv: is empty. Give a line that names the columns, and one line for each measurement."},
      {header,
       "t.csv: has a header but no rows. Give a line that names the columns, and one line for each measurement."},
      {"module,forward_s\n", "t.csv: line 1: has the column 'forward_s', which is not known."},
      {"tp,tp\n", "t.csv: line 1: has the column tp twice. Remove one."},
      {header + "llm,layer,1\n",
       "t.csv: line 2: has 3 cells, but the header names 8 columns. Leave cells that say nothing "
       "empty."},
      {header + "llm,layer,64,64,fast,1,1,\n",
       "t.csv: line 2, forward_ms: is 'fast', a number is needed. Correct the cell."},
      {header + "llm,layer,64,64,,1,1,\n", "t.csv: line 2, forward_ms: is missing"},
      {header + "llm,layer,64,128,1,1,1,\n", "t.csv: line 2, sequence_tokens: is 128, but there are only 64 tokens"},
      {header + "text,layer,64,64,1,1,1,\n", "t.csv: line 2, module: is the te"},
      {header + "\nllm,layer,64,64,-1,1,1,\n", "t.csv: line 3, forward_ms: is th"},
      {header + "llm,,64,64,1,1,1,\n",
       "t.csv: line 2: has neither a block nor a link nor elements. Each row measures one "
       "thing: a block, a link, or an update of so many elements."},
      {header + "llm,layer,64,64,1,1,1,within_node\n",
       "t.csv: line 2: has block and link. Each row measures one thing"},
      {header + ",,,,1,,,within_node\n", "t.csv: line 2, "},
  };
  for (const auto& [text, message] : cases) {
    const Result<Profile> table = parse_profile_table(text, "t.csv");
    ASSERT_FALSE(table.ok()) << text;
    EXPECT_EQ(table.error().message().substr(0, message.size()), message) << text;
  }
}

}  // namespace
}  // namespace weft::profile_table_test
