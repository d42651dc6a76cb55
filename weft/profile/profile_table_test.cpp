#include "weft/profile/profile_table.h"

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
      {header + "text,layer,64,64,1,1,1,\n", "t.csv: line 2, module: is 'text'"},
      {header + "\nllm,layer,64,64,-1,1,1,\n", "t.csv: line 3, forward_ms: is -1"},
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
