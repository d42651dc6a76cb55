#include "weft/data/conversations/record_list.h"

#include <gtest/gtest.h>

#include "tests/support/weights/example_files.h"

namespace weft {
namespace {

/// What is wrong with a file of this text; else how many records it has.
std::string outcome(const std::string& text) {
  const ScratchFolder folder;
  const Result<RecordList> file = RecordList::open(folder.write("set.json", text));
  return file ? std::to_string(file->size()) : file.error().message();
}

void expect_broken(const std::string& text, const std::string& problem) {
  const std::string found = outcome(text);
  EXPECT_NE(found.find(problem), std::string::npos) << text << " gives: " << found;
}

TEST(RecordList, OnlyBlanksFollowAList) {
  EXPECT_EQ(outcome("[{}, {}] \n\t\r\n"), "2");
  expect_broken("[{\"a\": 1}]\n[{}, {}]\n", "goes on behind the end of its list at byte 11, after 1 record.");
  expect_broken("[{}, {}] and then garbage {{{", "goes on behind the end of its list at byte 9, after 2 records.");
  expect_broken("[{}]\"x\"", "goes on behind");
  expect_broken("[]]", "goes on behind");
  expect_broken("[{}" + std::string(3 << 20, ' ') + "]" + std::string(3 << 20, '\n') + "x", "goes on behind");
}

TEST(RecordList, CommasStandBetweenRecords) {
  EXPECT_EQ(outcome("[ 1 , \"a,]\" ,[[],{}]]"), "3");
  for (const char* text : {"[{},,{}]", "[{},]", "[,{}]", "[,]", "[{}, , {}]", "[{},\n]"})
    expect_broken(text, "lacks a record beside a comma");
  expect_broken("[{}}, {}]", "has a brace that closes nothing at byte 3");
  expect_broken("[{}, ", "ends inside its list, after 1 record.");
}

TEST(RecordList, AByteOrderMarkIsNoRecord) {
  EXPECT_EQ(outcome("\xef\xbb\xbf\n{}\n{}\n"), "2");
  EXPECT_EQ(outcome("\xef\xbb\xbf{}\n{}"), "2");
  EXPECT_EQ(outcome("\xef\xbb\xbf \n [{}, {}]"), "2");
  expect_broken("\xef\xbb\xbf\n", "has no records");
  const ScratchFolder folder;
  const RecordList file = *RecordList::open(folder.write("a.jsonl", "\xef\xbb\xbf\r\n\xef\xbb\xbf\n{\"a\": 1}\n"));
  EXPECT_EQ(file.size(), 2) << "a mark that does not begin the file is what it is anywhere else";
  EXPECT_EQ((*file.read(1))["a"], 1);
}

}  // namespace
}  // namespace weft
